#include "services/dispatch/domain/facility.h"

#include <algorithm>
#include <filesystem>

#include "shared/service/names.h"

namespace atl::dispatch {
namespace {

using json::Json;
using json::ObjectReader;
using service::required_name;

bool is_absolute(const std::string& path) {
    return !path.empty() && path.front() == '/' && path.find('\0') == std::string::npos &&
           path.find('\n') == std::string::npos;
}

// "/a//b/" and "/a/./b" are the place "/a/b".
std::string normal_path(const std::string& path) {
    std::string normal = std::filesystem::path(path).lexically_normal().string();
    while (normal.size() > 1 && normal.ends_with('/')) normal.pop_back();
    return normal;
}

// ssh would take a leading dash for an option; the rest is what hosts, aliases and users are made of.
bool is_ssh_host(const std::string& host) {
    return !host.empty() && host.front() != '-' && std::all_of(host.begin(), host.end(), [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_' || c == '@' || c == ':' || c == '[' || c == ']';
    });
}

bool is_variable_name(const std::string& name) {
    return !name.empty() && std::isdigit(static_cast<unsigned char>(name.front())) == 0 &&
           std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

Result<TransportSpec> parse_transport(const Json& value) {
    ObjectReader reader(value, "transport");
    TransportSpec transport;
    transport.kind = reader.required_string("kind");
    if (transport.kind == "ssh") {
        transport.host = reader.required_string("host");
        if (!is_ssh_host(transport.host)) reader.fail("host", "is not a host name or alias");
        transport.config_file = reader.string_or("config_file", "");
        if (!transport.config_file.empty() && !is_absolute(transport.config_file))
            reader.fail("config_file", "must be an absolute path");
    } else if (transport.kind != "local") {
        reader.fail("kind", "must be local or ssh");
    }
    ATOLL_RETURN_IF_ERROR(reader.finish());
    return transport;
}

// Of an evaluation or a preparation.
Result<Resources> parse_one_process(const Json& value, const BatchSpec& batch, const std::string& field) {
    if (value.is_null()) return Resources();
    ATOLL_TRY(Resources resources, parse_resources(value, field));
    if (resources.nodes > 1) return invalid_argument(field + ".nodes", "must be 1: it is one process");
    if (resources.tasks_per_node > 1)
        return invalid_argument(field + ".tasks_per_node", "must be 1: it is one process");
    ATOLL_RETURN_IF_ERROR(check_resources(resources, batch, field));
    return resources;
}

Result<std::map<std::string, std::string>> parse_environment(const Json& value) {
    std::map<std::string, std::string> environment;
    if (value.is_null()) return environment;
    for (const auto& [key, text] : value.items()) {
        const std::string field = "environment." + key;
        if (!is_variable_name(key)) return invalid_argument(field, "is not the name of an environment variable");
        if (key == "ATOLL_BATCH_JOB") return invalid_argument(field, "is set by dispatch itself");
        if (!text.is_string()) return invalid_argument(field, "must be a string");
        environment[key] = text.get<std::string>();
        if (environment[key].find('\0') != std::string::npos) return invalid_argument(field, "must not hold a NUL");
    }
    return environment;
}

}  // namespace

Result<Facility> parse_facility(const Json& value) {
    ObjectReader reader(value);
    Facility facility;
    facility.name = required_name(reader, "name");
    const Json& transport = reader.required_object("transport");
    const Json& batch = reader.required_object("batch");
    const Json& environment = reader.object_or_null("environment");
    facility.work_dir = reader.required_string("work_dir");
    facility.programs = reader.string_or("programs", "");
    facility.launcher = reader.string_or("launcher", "");
    const Json& evaluation = reader.object_or_null("evaluation");
    const Json& preparation = reader.object_or_null("preparation");
    if (!is_absolute(facility.work_dir)) reader.fail("work_dir", "must be an absolute path");
    if (!facility.programs.empty() && !is_absolute(facility.programs))
        reader.fail("programs", "must be an absolute path");
    if (!reader.string_or("image", "").empty()) reader.fail("image", "is not built yet; leave it out and set programs");
    ATOLL_RETURN_IF_ERROR(reader.finish());
    facility.work_dir = normal_path(facility.work_dir);
    ATOLL_TRY(facility.transport, parse_transport(transport));
    ATOLL_TRY(facility.batch, parse_batch_spec(batch, "batch"));
    if (facility.batch.kind == "local" && facility.launcher == "mpirun") facility.launcher.clear();  // its default
    ATOLL_TRY(facility.evaluation, parse_one_process(evaluation, facility.batch, "evaluation"));
    ATOLL_TRY(facility.preparation, parse_one_process(preparation, facility.batch, "preparation"));
    ATOLL_TRY(facility.environment, parse_environment(environment));
    return facility;
}

Status check_launcher(const Facility& facility) {
    const std::string& launcher = facility.launcher;
    const std::string ranks = "{ranks}";
    bool has_ranks = false;
    for (auto open = launcher.find('{'); open != std::string::npos; open = launcher.find('{', open + 1)) {
        const auto close = std::min(launcher.find('}', open), launcher.size() - 1);
        const std::string word = launcher.substr(open, close + 1 - open);
        const bool is_shells = open > 0 && launcher[open - 1] == '$';
        if (is_shells && word != ranks) continue;  // ${NAME}
        if (is_shells || word != ranks)
            return invalid_argument(
                "launcher", std::string(is_shells ? "has $" : "has ") + word + ", but {ranks} alone is replaced");
        has_ranks = true;
    }
    if (has_ranks || launcher.empty()) return {};
    if (facility.batch.kind == "slurm" && (launcher == "mpirun" || launcher.starts_with("srun"))) return {};
    return invalid_argument("launcher", "must contain {ranks}, as 'mpirun -n {ranks}'");
}

Status check_resources(const Resources& resources, const Facility& facility, const std::string& field) {
    ATOLL_RETURN_IF_ERROR(check_resources(resources, facility.batch, field));
    if (resources.nodes > 1 && facility.launcher == "mpirun")
        return invalid_argument(field + ".nodes",
                                "the facility's launcher \"mpirun\" is set up for one node; set another, as srun");
    return {};
}

Json to_json(const Facility& facility) {
    Json transport = {{"kind", facility.transport.kind}};
    if (facility.transport.kind == "ssh") {
        transport["host"] = facility.transport.host;
        if (!facility.transport.config_file.empty()) transport["config_file"] = facility.transport.config_file;
    }
    return {{"name", facility.name},
            {"transport", transport},
            {"batch", to_json(facility.batch)},
            {"work_dir", facility.work_dir},
            {"programs", facility.programs},
            {"launcher", facility.launcher},
            {"evaluation", to_json(facility.evaluation)},
            {"preparation", to_json(facility.preparation)},
            {"environment", facility.environment}};
}

std::string moved_member(const Facility& before, const Facility& after) {
    if (before.transport.kind != after.transport.kind) return "transport";
    if (before.batch.kind != after.batch.kind || before.batch.slots != after.batch.slots) return "batch";
    return before.work_dir != after.work_dir ? "work_dir" : "";
}

bool is_other_trainer(const Facility& before, const Facility& after) {
    return before.transport != after.transport || before.programs != after.programs ||
           before.launcher != after.launcher;
}

Result<Facility> patch_facility(const Facility& facility, const Json& patch) {
    if (!patch.is_object()) return invalid_argument("", "the patch must be a JSON object");
    Json merged = to_json(facility);
    merged.merge_patch(patch);
    ATOLL_TRY(Facility patched, parse_facility(merged));
    if (patched.name != facility.name) return invalid_argument("name", "a facility's name cannot change");
    if (patched.launcher != facility.launcher || patched.batch.kind != facility.batch.kind)
        ATOLL_RETURN_IF_ERROR(check_launcher(patched));
    return patched;
}

}  // namespace atl::dispatch
