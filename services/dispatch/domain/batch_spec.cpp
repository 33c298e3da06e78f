#include "services/dispatch/domain/batch_spec.h"

#include <algorithm>

#include "services/dispatch/domain/batch_template.h"
#include "shared/base/text.h"
#include "shared/training_memory/cards.h"

namespace atl::dispatch {
namespace {

using json::Json;
using json::ObjectReader;

constexpr std::size_t kWordBytesMax = 200;
constexpr std::size_t kQueuesMax = 100;
constexpr std::int64_t kQueueNodesMax = 10'000;

// An option's value, or a whole option: one word of printable ASCII, so that it can end no line of a batch script.
bool is_word(const std::string& text) {
    return !text.empty() && text.size() <= kWordBytesMax &&
           std::all_of(text.begin(), text.end(), [](unsigned char c) { return c > 0x20 && c < 0x7f; });
}

bool is_option(const std::string& text) {
    return is_word(text) && text.starts_with('-');
}

Result<Queue> parse_queue(const Json& value, const std::string& field) {
    ObjectReader reader(value, field);
    Queue queue;
    for (const auto& [key, word] : {std::pair{"partition", &queue.partition},
                                    {"account", &queue.account},
                                    {"qos", &queue.qos},
                                    {"constraint", &queue.constraint},
                                    {"reservation", &queue.reservation}}) {
        *word = reader.string_or(key, "");
        if (!word->empty() && !is_word(*word)) reader.fail(key, "must be one word of printable ASCII");
    }
    queue.gpu_request = reader.string_or("gpu_request", queue.gpu_request);
    if (!is_option(queue.gpu_request) || queue.gpu_request.find("{gpus}") == std::string::npos)
        reader.fail("gpu_request", "must be an option of sbatch with {gpus} in it, as --gres=gpu:{gpus}");
    queue.card = reader.string_or("card", "");
    if (const auto card = training_memory::find_card(queue.card); !queue.card.empty() && !card.ok())
        reader.fail("card", card.error().message);
    queue.nodes_max = reader.integer_or("nodes_max", 0, 1, kQueueNodesMax);
    const std::string time_max = reader.string_or("time_max", "");
    const Json& extra = reader.array_or_null("extra");
    ATOLL_RETURN_IF_ERROR(reader.finish());
    if (!time_max.empty()) {
        ATOLL_TRY(queue.time_max_s, parse_time(time_max, field + ".time_max"));
    }
    for (const auto& option : extra) {
        if (!option.is_string() || !is_option(option.get<std::string>()))
            return invalid_argument(field + ".extra", "each must be an option of sbatch in one word, as --exclusive");
        queue.extra.push_back(option.get<std::string>());
    }
    return queue;
}

Json to_json(const Queue& queue) {
    Json value = Json::object();
    for (const auto& [key, word] : {std::pair{"partition", &queue.partition},
                                    {"account", &queue.account},
                                    {"qos", &queue.qos},
                                    {"constraint", &queue.constraint},
                                    {"reservation", &queue.reservation}})
        if (!word->empty()) value[key] = *word;
    if (queue.gpu_request != Queue().gpu_request) value["gpu_request"] = queue.gpu_request;
    if (!queue.card.empty()) value["card"] = queue.card;
    if (!queue.extra.empty()) value["extra"] = queue.extra;
    if (queue.nodes_max > 0) value["nodes_max"] = queue.nodes_max;
    if (queue.time_max_s > 0) value["time_max"] = time_text(queue.time_max_s);
    return value;
}

Status parse_slurm(ObjectReader& reader, BatchSpec& batch) {
    const Json& queues = reader.required_object("queues");
    batch.default_queue = reader.string_or("default_queue", "");
    batch.script_template = reader.string_or("template", "");
    const std::string field = reader.field("queues");
    if (queues.empty() || queues.size() > kQueuesMax)
        reader.fail("queues", "must name 1 to " + std::to_string(kQueuesMax) + " queues, as {\"gpu\": {}}");
    ATOLL_RETURN_IF_ERROR(reader.finish());
    std::vector<std::string> names;
    for (const auto& [name, queue] : queues.items()) {
        if (!is_word(name)) return invalid_argument(field, "a queue's name must be one word of printable ASCII");
        if (!queue.is_object()) return invalid_argument(field + "." + name, "must be an object");
        ATOLL_TRY(batch.queues[name], parse_queue(queue, field + "." + name));
        names.push_back(name);
    }
    if (batch.default_queue.empty() && names.size() == 1) batch.default_queue = names.front();
    if (!batch.queues.contains(batch.default_queue))
        return invalid_argument(reader.field("default_queue"), batch.default_queue.empty()
                                                                   ? "is required: one of " + join(names)
                                                                   : "is none of the queues: " + join(names));
    return batch.script_template.empty() ? Status() : check_template(batch.script_template, reader.field("template"));
}

}  // namespace

Json to_json(const QueueLimits& limits) {
    Json value = {{"nodes_max", limits.nodes_max},
                  {"time_max_s", limits.time_max_s},
                  {"time_default_s", limits.time_default_s},
                  {"cores_max", limits.cores_max},
                  {"memory_mib_max", limits.memory_mib_max}};
    if (!limits.state.empty()) value["state"] = limits.state;
    if (!limits.nodes_away.empty()) value.update({{"nodes", limits.nodes}, {"nodes_away", limits.nodes_away}});
    if (!limits.found_at.empty()) value["found_at"] = limits.found_at;
    return value;
}

Result<QueueLimits> parse_queue_limits(const Json& value, const std::string& field) {
    ObjectReader reader(value, field);
    QueueLimits limits;
    limits.nodes_max = reader.required_integer("nodes_max", 0, INT64_MAX);
    limits.time_max_s = reader.required_integer("time_max_s", 0, INT64_MAX);
    limits.time_default_s = reader.required_integer("time_default_s", 0, INT64_MAX);
    limits.cores_max = reader.required_integer("cores_max", 0, INT64_MAX);
    limits.memory_mib_max = reader.required_integer("memory_mib_max", 0, INT64_MAX);
    limits.state = reader.string_or("state", "");
    limits.nodes = reader.integer_or("nodes", 0, 0, INT64_MAX);
    const Json& away = reader.object_or_null("nodes_away");
    limits.found_at = reader.string_or("found_at", "");
    ATOLL_RETURN_IF_ERROR(reader.finish());
    for (const auto& [state, count] : away.items()) {
        if (!count.is_number_integer()) return invalid_argument(field + ".nodes_away", "must hold numbers of nodes");
        limits.nodes_away[state] = count.get<std::int64_t>();
    }
    return limits;
}

std::string nodes_away_text(const QueueLimits& limits) {
    std::vector<std::string> states;
    for (const auto& [state, count] : limits.nodes_away) states.push_back(std::to_string(count) + " " + state);
    if (states.empty()) return "";
    return std::to_string(count_away(limits)) + " of its " + std::to_string(limits.nodes) +
           " nodes take no jobs now: " + join(states);
}

std::string queue_trouble(const QueueLimits& limits) {
    if (!limits.state.empty())
        return "the partition is " + limits.state + ": " +
               (limits.state == "down" ? "jobs wait in it and none starts" : "it takes no new jobs");
    return limits.nodes > 0 && count_away(limits) == limits.nodes ? nodes_away_text(limits) : "";
}

std::int64_t count_away(const QueueLimits& limits) {
    std::int64_t away = 0;
    for (const auto& [state, count] : limits.nodes_away) away += count;
    return away;
}

std::string to_text(const QueueLimits& limits) {
    std::string text = std::to_string(limits.nodes_max) + " nodes of " + std::to_string(limits.cores_max) +
                       " cores and " + human_bytes(static_cast<std::uint64_t>(limits.memory_mib_max) << 20) + ", " +
                       (limits.time_max_s > 0 ? time_text(limits.time_max_s) + " at most" : "any time");
    if (limits.time_default_s > 0) text += ", " + time_text(limits.time_default_s) + " where a job says none";
    return text;
}

const BatchAbilities& abilities_of(BatchKind kind) {
    static constexpr BatchAbilities kLocal{.name = "the batch system", .submitted_file = "process"};
    static constexpr BatchAbilities kSlurm{
        .name = "Slurm", .has_queues = true, .ends_jobs = true, .takes_dependencies = true, .submitted_file = "jobid"};
    return kind == BatchKind::kSlurm ? kSlurm : kLocal;
}

const char* to_string(BatchKind kind) {
    return kind == BatchKind::kSlurm ? "slurm" : "local";
}

Result<BatchSpec> parse_batch_spec(const Json& value, const std::string& field) {
    ObjectReader reader(value, field);
    BatchSpec batch;
    const std::string kind = reader.required_string("kind");
    if (kind == to_string(BatchKind::kSlurm)) {
        batch.kind = BatchKind::kSlurm;
        if (value.size() == 1)
            return invalid_argument(
                field + ".queues",
                "is required: the queues that jobs may name, as {\"gpu\": {\"partition\": \"boost\"}}");
        ATOLL_RETURN_IF_ERROR(parse_slurm(reader, batch));
        return batch;
    }
    for (const char* later : {"pbs", "flux", "hyperqueue", "hq"})
        if (kind == later) reader.fail("kind", "the batch system " + kind + " is not built yet; use slurm or local");
    if (kind != to_string(BatchKind::kLocal)) reader.fail("kind", "must be local or slurm");
    batch.slots = reader.integer_or("slots", 1, 1, 1024);
    ATOLL_RETURN_IF_ERROR(reader.finish());
    return batch;
}

Json to_json(const BatchSpec& batch) {
    if (batch.kind == BatchKind::kLocal) return {{"kind", to_string(batch.kind)}, {"slots", batch.slots}};
    Json queues = Json::object();
    for (const auto& [name, queue] : batch.queues) queues[name] = to_json(queue);
    Json value = {
        {"kind", to_string(batch.kind)}, {"queues", std::move(queues)}, {"default_queue", batch.default_queue}};
    if (!batch.script_template.empty()) value["template"] = batch.script_template;
    return value;
}

const Queue& queue_of(const BatchSpec& batch, const Resources& resources) {
    if (!abilities_of(batch.kind).has_queues) return batch.machine;
    static const Queue kNone;
    const auto found = batch.queues.find(resources.queue.empty() ? batch.default_queue : resources.queue);
    return found == batch.queues.end() ? kNone : found->second;
}

std::int64_t batch_time_s(const BatchSpec& batch, const Resources& resources) {
    if (resources.time_s > 0) return resources.time_s;
    const Queue& queue = queue_of(batch, resources);
    std::int64_t time_s = template_time_s(batch.script_template);
    if (time_s == 0) return queue.found.time_default_s > 0 ? queue.found.time_default_s : queue.found.time_max_s;
    for (const std::int64_t most : {queue.time_max_s, queue.found.time_max_s})
        if (most > 0) time_s = std::min(time_s, most);
    return time_s;
}

namespace {

// What a check has found may have changed since.
std::string found_limit_text(const QueueLimits& found, const std::string& facility) {
    return ", as the facility's check " + (found.found_at.empty() ? "found" : "of " + found.found_at + " found") +
           "; if that has changed: `atoll facility check" + (facility.empty() ? "" : " " + facility) +
           "` reads the limits again";
}

// `most` is what the queue gives; 0: not known.
Status check_limit(std::int64_t asked, std::int64_t most, const std::string& field, const std::string& text) {
    if (most == 0 || asked <= most) return {};
    return invalid_argument(field, text);
}

Status check_queue_limits(const Resources& resources, const std::string& name, const Queue& queue,
                          const std::string& path, const std::string& facility) {
    const QueueLimits& found = queue.found;
    const std::string source = found_limit_text(found, facility);
    const auto gives = [&](const std::string& most) { return "the queue " + name + " gives " + most + " at most"; };
    const std::int64_t cores = resources.tasks_per_node * std::max<std::int64_t>(1, resources.cores_per_task);
    for (const auto& [nodes, why] : {std::pair{queue.nodes_max, std::string()}, {found.nodes_max, source}})
        ATOLL_RETURN_IF_ERROR(check_limit(resources.nodes, nodes, path + "nodes", gives(std::to_string(nodes)) + why));
    for (const auto& [time_s, why] : {std::pair{queue.time_max_s, std::string()}, {found.time_max_s, source}})
        ATOLL_RETURN_IF_ERROR(check_limit(resources.time_s, time_s, path + "time", gives(time_text(time_s)) + why));
    ATOLL_RETURN_IF_ERROR(check_limit(cores, found.cores_max,
                                      path + (resources.cores_per_task > 0 ? "cores_per_task" : "tasks_per_node"),
                                      gives(std::to_string(found.cores_max) + " cores a node") + source));
    return check_limit(resources.memory_mib, found.memory_mib_max, path + "memory",
                       gives(std::to_string(found.memory_mib_max) + "MiB a node") + source);
}

}  // namespace

Status check_resources(const Resources& resources, const BatchSpec& batch, const std::string& field,
                       const std::string& facility) {
    const std::string path = field.empty() ? "" : field + ".";
    if (!abilities_of(batch.kind).has_queues) {
        for (const auto& [key, is_said] : {std::pair{"queue", !resources.queue.empty()},
                                           {"nodes", resources.nodes > 1},
                                           {"cores_per_task", resources.cores_per_task > 0},
                                           {"gpus_per_node", resources.gpus_per_node > 0},
                                           {"memory", resources.memory_mib > 0},
                                           {"time", resources.time_s > 0}})
            if (is_said)
                return invalid_argument(path + key,
                                        "the local batch system of the facility has one node without "
                                        "queues or limits: leave it out");
        const std::int64_t cores = batch.machine.found.cores_max;
        if (cores == 0 || resources.tasks_per_node <= kRanksPerCoreMax * cores) return {};
        return invalid_argument(path + "tasks_per_node",
                                "the facility's machine takes " + std::to_string(kRanksPerCoreMax * cores) +
                                    " ranks at most, " + std::to_string(kRanksPerCoreMax) + " a core");
    }
    const std::string& name = resources.queue.empty() ? batch.default_queue : resources.queue;
    const auto found = batch.queues.find(name);
    if (found == batch.queues.end()) {
        std::vector<std::string> names;
        for (const auto& [known, queue] : batch.queues) names.push_back(known);
        return invalid_argument(path + "queue",
                                "the facility has no queue " + in_quotes(name) + "; it has " + join(names));
    }
    return check_queue_limits(resources, name, found->second, path, facility);
}

}  // namespace atl::dispatch
