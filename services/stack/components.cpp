#include "services/stack/components.h"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "services/stack/process.h"

namespace atl::stack {
namespace {

namespace fs = std::filesystem;

fs::path own_directory() {
    return fs::read_symlink("/proc/self/exe").parent_path();
}

// Beside the programs as `./dev` builds them (build/release/bin and build/kafka/lib) or as an image installs them.
fs::path find_kafka_jars() {
    if (const char* given = std::getenv("ATOLL_KAFKA_JARS")) return given;
    const fs::path here = own_directory();
    for (const fs::path& candidate :
         {here / "../../kafka/lib", here / "../lib/atoll/kafka", fs::path("/opt/kafka/libs")})
        if (std::error_code none; fs::exists(candidate, none)) return fs::canonical(candidate);
    return (here / "../../kafka/lib").lexically_normal();
}

}  // namespace

const std::vector<std::vector<std::string>>& start_waves() {
    static const std::vector<std::vector<std::string>> waves = {
        {"postgres", "kafka"}, {"registry", "store", "dispatch", "aggregation"}, {"gateway"}};
    return waves;
}

std::size_t wave_of(const std::string& name) {
    const auto& waves = start_waves();
    const auto holds = [&](const auto& wave) { return std::find(wave.begin(), wave.end(), name) != wave.end(); };
    return static_cast<std::size_t>(std::find_if(waves.begin(), waves.end(), holds) - waves.begin());
}

Component component_named(const Stack& stack, const std::string& name) {
    if (name == "postgres") return postgres_component(stack);
    if (name == "kafka") return kafka_component(stack);
    if (name == "gateway") return gateway_component(stack);
    return service_component(stack, name);
}

bool any_running(const Layout& layout) {
    return std::any_of(start_waves().begin(), start_waves().end(), [&](const auto& wave) {
        return std::any_of(wave.begin(), wave.end(),
                           [&](const auto& name) { return running_process(layout.pid_file(name)).has_value(); });
    });
}

fs::path given_or_recorded(const fs::path& given, const Layout& layout, const char* key) {
    if (!given.empty()) return given;
    const auto before = read_stack_file(layout.state);
    return before.ok() ? before->value(key, "") : "";
}

PublicAddress recorded_address(const Layout& layout) {
    const auto before = read_stack_file(layout.state);
    return before.ok() && before->contains("public") ? address_from_json(before->at("public")) : PublicAddress();
}

Stack found_stack(const Layout& layout, const fs::path& programs, const fs::path& kafka_jars) {
    Stack stack;
    stack.layout = layout;
    stack.programs = given_or_recorded(programs, layout, "programs");
    if (stack.programs.empty()) stack.programs = own_directory();
    stack.kafka_jars = given_or_recorded(kafka_jars, layout, "kafka_jars");
    if (stack.kafka_jars.empty()) stack.kafka_jars = find_kafka_jars();
    return stack;
}

Result<Stack> recorded_stack(const fs::path& state) {
    const Layout layout{fs::absolute(state).lexically_normal()};
    ATOLL_RETURN_IF_ERROR(check_owner(layout.state));
    Stack stack = found_stack(layout, {}, {});
    ATOLL_TRY(const nlohmann::json description, read_stack_file(stack.layout.state));
    stack.ports = ports_from_json(description.value("ports", nlohmann::json::object()));
    if (description.contains("public")) stack.address = address_from_json(description.at("public"));
    return stack;
}

}  // namespace atl::stack
