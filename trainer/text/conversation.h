#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"

namespace atl::text {

enum class Role { kSystem, kUser, kAssistant, kTool };
const char* to_string(Role role);

struct Message {
    Role role = Role::kUser;
    std::string content;
    // `train`, or `weight` 0 or 1 (OpenAI's name): whether the loss counts it. Not given: as --loss-on says.
    std::optional<bool> train;
};

// At least one message of the assistant; at most one of the system, the first.
using Conversation = std::vector<Message>;

// The conversation of a row {"messages": [{"role": …, "content": …}, …]}, as OpenAI and Hugging Face have it; other
// members of row and messages are no matter. kInvalidArgument names the member that is wrong, without a word of the
// texts, or what is not supported (tools, calls of functions, reasoning, contents in parts); `where` ("file:line")
// begins the message.
Result<Conversation> parse_conversation(const nlohmann::json& row, std::string_view where);

}  // namespace atl::text
