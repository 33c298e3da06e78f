#pragma once

#include <string>
#include <vector>

#include "services/stack/component.h"

// The components of a stack by name, and what its stack.json says of it.
namespace atl::stack {

// Each wave needs the one before: the services their database and broker, the gateway's readiness the services.
const std::vector<std::vector<std::string>>& start_waves();
std::size_t wave_of(const std::string& name);  // behind the last: of what is in none

// "postgres", …
Component component_named(const Stack& stack, const std::string& name);

bool any_running(const Layout& layout);

// Where this stack's things are: where the flag says, or as the flag said the last time that it was given; empty:
// never.
std::filesystem::path given_or_recorded(const std::filesystem::path& given, const Layout& layout, const char* key);

PublicAddress recorded_address(const Layout& layout);

// A stack without its ports and its address: only its programs are found, where the flags say, now or the last time.
Stack found_stack(const Layout& layout, const std::filesystem::path& programs, const std::filesystem::path& kafka_jars);

// As stack.json says. kNotFound: no stack was started there; kInvalidArgument: it is another user's.
Result<Stack> recorded_stack(const std::filesystem::path& state);

}  // namespace atl::stack
