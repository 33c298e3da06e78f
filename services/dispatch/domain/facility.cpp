#include "services/dispatch/domain/facility.h"

#include <algorithm>
#include <filesystem>

#include "services/dispatch/domain/host_key.h"
#include "shared/base/text.h"
#include "shared/service/names.h"

namespace atl::dispatch {
namespace {

using json::Json;
using json::ObjectReader;
using service::required_name;

constexpr std::size_t kAllowedMax = 1000;
constexpr std::int64_t kKeptLogBytesMax = 1 << 20;

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
    const std::string kind = reader.required_string("kind");
    if (kind == to_string(TransportKind::kSsh)) {
        transport.kind = TransportKind::kSsh;
        transport.host = reader.required_string("host");
        if (!is_ssh_host(transport.host)) reader.fail("host", "is not a host name or alias");
        transport.config_file = reader.string_or("config_file", "");
        if (!transport.config_file.empty() && !is_absolute(transport.config_file))
            reader.fail("config_file", "must be an absolute path");
        transport.host_key = reader.string_or("host_key", "");
        if (reader.one_of("data", {"store", "ssh"}, "store") == "ssh") transport.data = DataPath::kSsh;
    } else if (kind != to_string(TransportKind::kLocal)) {
        reader.fail("kind", "must be local or ssh");
    } else {
        for (const char* key : {"host", "config_file", "host_key", "data"})
            if (!reader.any_or_null(key).is_null())
                reader.fail(key, "applies only to a facility reached by ssh; leave it out");
    }
    ATOLL_RETURN_IF_ERROR(reader.finish());
    ATOLL_TRY(transport.host_key, parse_host_key(transport.host_key, "transport.host_key"));
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

Result<LogPolicy> parse_logs(const Json& value) {
    LogPolicy logs;
    if (value.is_null()) return logs;
    ObjectReader reader(value, "logs");
    const std::string given = reader.one_of("return", {"all", "errors", "none"}, to_string(logs.give));
    logs.give = given == "all" ? LogsGiven::kAll : given == "none" ? LogsGiven::kNone : LogsGiven::kErrors;
    logs.bytes_max = reader.integer_or("bytes_max", logs.bytes_max, 1024, kKeptLogBytesMax);
    ATOLL_RETURN_IF_ERROR(reader.finish());
    return logs;
}

Result<std::vector<std::string>> parse_allow(const Json& value) {
    std::vector<std::string> allow;
    if (value.is_null()) return allow;
    if (value.size() > kAllowedMax)
        return invalid_argument("allow", "has more than " + std::to_string(kAllowedMax) + " names");
    for (const Json& name : value) {
        if (!name.is_string()) return invalid_argument("allow", "must be names of people or programs, or \"*\"");
        allow.push_back(name.get<std::string>());
        if (allow.back() != "*") ATOLL_RETURN_IF_ERROR(service::check_name(allow.back(), "allow"));
    }
    return allow;
}

// A member at the top that belongs further down, as flags of `atoll facility add` are named after it.
Error with_its_place(Error error) {
    static constexpr std::pair<std::string_view, std::string_view> kPlaces[] = {
        {"host", "transport"},
        {"config_file", "transport"},
        {"host_key", "transport"},
        {"data", "transport"},
        {"slots", "batch"},
        {"queues", "batch"},
        {"default_queue", "batch"},
        {"template", "batch"},
        {"partition", "batch.queues.NAME"},
        {"account", "batch.queues.NAME"},
        {"qos", "batch.queues.NAME"},
        {"constraint", "batch.queues.NAME"},
        {"reservation", "batch.queues.NAME"},
        {"gpu_request", "batch.queues.NAME"},
        {"card", "batch.queues.NAME"},
        {"extra", "batch.queues.NAME"},
        {"nodes_max", "batch.queues.NAME"},
        {"time_max", "batch.queues.NAME"},
    };
    if (!error.message.starts_with("unknown field")) return error;
    for (const auto& [member, place] : kPlaces)
        if (error.field == member)
            error.message = "unknown field; did you mean " + std::string(place) + "." + error.field + "?";
    return error;
}

}  // namespace

const char* to_string(TransportKind kind) {
    return kind == TransportKind::kSsh ? "ssh" : "local";
}

const char* to_string(DataPath path) {
    return path == DataPath::kSsh ? "ssh" : "store";
}

const char* to_string(LogsGiven given) {
    if (given == LogsGiven::kErrors) return "errors";
    return given == LogsGiven::kNone ? "none" : "all";
}

bool is_for_jobs_of(const Facility& facility, const std::string& subject) {
    const std::vector<std::string>& allow = facility.allow;
    if (facility.owner.empty() && allow.empty()) return true;
    return facility.owner == subject || std::any_of(allow.begin(), allow.end(), [&](const std::string& name) {
               return name == "*" || name == subject;
           });
}

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
    facility.owner = reader.string_or("owner", "");
    const Json& allow = reader.array_or_null("allow");
    const Json& logs = reader.object_or_null("logs");
    if (!is_absolute(facility.work_dir)) reader.fail("work_dir", "must be an absolute path");
    if (!facility.programs.empty() && !is_absolute(facility.programs))
        reader.fail("programs", "must be an absolute path");
    const Json& image = reader.object_or_null("image");
    if (!image.is_null() && !facility.programs.empty())
        reader.fail("programs", "must be left out with an image, which has its own");
    if (!image.is_null() && facility.work_dir.find_first_of(":,") != std::string::npos)
        reader.fail("work_dir", "must not hold ':' or ',', which a container's binds cannot name");
    if (const Status read = reader.finish(); !read.ok()) return with_its_place(read.error());
    facility.work_dir = normal_path(facility.work_dir);
    ATOLL_TRY(facility.transport, parse_transport(transport));
    ATOLL_TRY(facility.batch, parse_batch_spec(batch, "batch"));
    if (facility.batch.kind == BatchKind::kLocal && facility.launcher == "mpirun")
        facility.launcher.clear();  // its default
    ATOLL_TRY(facility.evaluation, parse_one_process(evaluation, facility.batch, "evaluation"));
    ATOLL_TRY(facility.preparation, parse_one_process(preparation, facility.batch, "preparation"));
    ATOLL_TRY(facility.environment, parse_environment(environment));
    ATOLL_TRY(facility.image, parse_image_spec(image, "image"));
    if (!facility.owner.empty()) ATOLL_RETURN_IF_ERROR(service::check_name(facility.owner, "owner"));
    ATOLL_TRY(facility.allow, parse_allow(allow));
    ATOLL_TRY(facility.logs, parse_logs(logs));
    return facility;
}

Status check_launcher(const Facility& facility) {
    const std::string& launcher = facility.launcher;
    if (launcher == kMpirunInImage)
        return facility.image ? Status() : invalid_argument("launcher", "there is no image to run mpirun in");
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
    if (facility.batch.kind == BatchKind::kSlurm && (launcher == "mpirun" || launcher.starts_with("srun"))) return {};
    return invalid_argument("launcher", "must contain {ranks}, as 'mpirun -n {ranks}'");
}

Status check_resources(const Resources& resources, const Facility& facility, const std::string& field) {
    ATOLL_RETURN_IF_ERROR(check_resources(resources, facility.batch, field, facility.name));
    if (resources.nodes > 1 && (facility.launcher == "mpirun" || facility.launcher == kMpirunInImage))
        return invalid_argument(field.empty() ? "nodes" : field + ".nodes",
                                "the facility's launcher " + in_quotes(facility.launcher) +
                                    " is set up for one node; set another, as srun");
    return {};
}

Json to_json(const Facility& facility) {
    Json transport = {{"kind", to_string(facility.transport.kind)}};
    if (facility.transport.kind == TransportKind::kSsh) {
        transport["host"] = facility.transport.host;
        if (!facility.transport.config_file.empty()) transport["config_file"] = facility.transport.config_file;
        if (!facility.transport.host_key.empty()) transport["host_key"] = facility.transport.host_key;
        if (facility.transport.data != DataPath::kStore) transport["data"] = to_string(facility.transport.data);
    }
    return {{"name", facility.name},
            {"transport", transport},
            {"batch", to_json(facility.batch)},
            {"work_dir", facility.work_dir},
            {"programs", facility.programs},
            {"launcher", facility.launcher},
            {"evaluation", to_json(facility.evaluation)},
            {"preparation", to_json(facility.preparation)},
            {"environment", facility.environment},
            {"image", facility.image ? to_json(*facility.image) : Json()},
            {"logs", {{"return", to_string(facility.logs.give)}, {"bytes_max", facility.logs.bytes_max}}},
            {"owner", facility.owner},
            {"allow", facility.allow}};
}

bool gives_logs(const LogPolicy& policy, Step step) {
    if (policy.give == LogsGiven::kErrors) return step == Step::kFailed || step == Step::kInterrupted;
    return policy.give == LogsGiven::kAll;
}

std::string moved_member(const Facility& before, const Facility& after) {
    if (before.transport.kind != after.transport.kind) return "transport";
    if (before.batch.kind != after.batch.kind) return "batch";
    if (before.work_dir != after.work_dir) return "work_dir";
    return before.batch.slots != after.batch.slots ? kSlotsMember : "";
}

bool is_other_trainer(const Facility& before, const Facility& after) {
    return before.transport.kind != after.transport.kind || before.transport.host != after.transport.host ||
           before.transport.config_file != after.transport.config_file || before.programs != after.programs ||
           before.image != after.image || before.launcher != after.launcher;
}

Result<Facility> patch_facility(const Facility& facility, const Json& patch) {
    if (!patch.is_object()) return unreadable("the patch must be a JSON object");
    Json merged = to_json(facility);
    merged.merge_patch(patch);
    ATOLL_TRY(Facility patched, parse_facility(merged));
    if (patched.name != facility.name) return invalid_argument("name", "a facility's name cannot change");
    if (patched.launcher != facility.launcher || patched.batch.kind != facility.batch.kind ||
        patched.image.has_value() != facility.image.has_value())
        ATOLL_RETURN_IF_ERROR(check_launcher(patched));
    return patched;
}

}  // namespace atl::dispatch
