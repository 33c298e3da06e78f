#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <tuple>

#include "services/cli/commands/commands.h"
#include "services/cli/output.h"
#include "services/cli/rest.h"
#include "services/cli/usage.h"
#include "shared/base/id.h"
#include "shared/base/text.h"

namespace atl::cli {
namespace {

using nlohmann::json;

constexpr const char* kAddHelp = R"(Examples:
  atoll facility add here --local --work-dir /srv/atoll-work
  atoll facility add leonardo --ssh leonardo --work-dir /leonardo_scratch/me/atoll --programs /leonardo/home/me/atoll/bin
  atoll facility add karolina --file karolina.yaml        every field of POST /v1/facilities, as Slurm's queues;
                                                          begin with one of examples/facilities

--ssh takes a host or an alias of your ~/.ssh/config: ProxyJump, certificates and agents work as they do by hand.)";

constexpr const char* kSetHelp =
    R"(Only what is said changes. Where attempts run (this machine or ssh, batch system, work directory) changes only while
the facility has no task under way; --ssh and --ssh-config may name another way to the same place at any time. What is
left to do at a site that is gone for good (to clean up, to end cancelled tasks, preparations) waits for it until
--give-up-tasks; its jobs are cancelled first, or go on without it. Examples:
  atoll facility set leonardo --programs /leonardo/home/me/atoll/bin
  atoll facility set leonardo --env HTTPS_PROXY=http://proxy:3128 --slots 2
  atoll facility set leonardo --ssh login02
  atoll facility set leonardo --ssh new-cluster --work-dir /scratch/me/atoll --give-up-tasks
  atoll facility set leonardo --file changes.yaml         null takes a field away
  atoll facility set leonardo --launcher ""              as does an empty text: the default again)";

constexpr const char* kFacilities = "/v1/facilities";

Error facility_error(http::Client& client, const std::string& name, const Error& error) {
    return with_near_name(client, kFacilities, "facility", name, error);
}

// What `add` and `set` can say; empty or 0: not said, but for the texts that may be said as "".
struct FacilityFlags {
    const CLI::App* command = nullptr;
    std::string name;
    std::string file;
    bool local = false;
    std::string ssh;
    std::string ssh_config;
    std::string batch;
    std::int64_t slots = 0;
    std::string work_dir;
    std::string programs;
    std::string launcher;
    std::vector<std::string> environment;
    bool give_up_tasks = false;
};

Result<json> environment_object(const std::vector<std::string>& assignments) {
    json object = json::object();
    for (const std::string& assignment : assignments) {
        const auto equals = assignment.find('=');
        if (equals == std::string::npos || equals == 0)
            return invalid_argument("--env", "'" + assignment + "' is not NAME=VALUE");
        object[assignment.substr(0, equals)] = assignment.substr(equals + 1);
    }
    return object;
}

// The members that the flags name, as a merge patch: null takes one away. The rest is left out.
Result<json> members_from_flags(const FacilityFlags& flags) {
    if (flags.local && !flags.ssh.empty()) return invalid_argument("--ssh", "either --local or --ssh HOST");
    json members = json::object();
    if (flags.local) members["transport"] = {{"kind", "local"}, {"host", nullptr}, {"config_file", nullptr}};
    if (!flags.ssh.empty()) members["transport"] = {{"kind", "ssh"}, {"host", flags.ssh}};
    if (!flags.ssh_config.empty()) members["transport"]["config_file"] = flags.ssh_config;
    if (!flags.batch.empty()) members["batch"]["kind"] = flags.batch;
    if (flags.slots > 0) members["batch"]["slots"] = flags.slots;
    ATOLL_TRY(const json environment, environment_object(flags.environment));
    if (!environment.empty()) members["environment"] = environment;
    for (const auto& [flag, key, value] : {std::tuple{"--work-dir", "work_dir", flags.work_dir},
                                           {"--programs", "programs", flags.programs},
                                           {"--launcher", "launcher", flags.launcher}})
        if (flags.command->count(flag) > 0) members[key] = value.empty() ? json() : json(value);
    return members;
}

// The members of --file, if one is given, with those of the flags over them.
Result<json> said_members(const FacilityFlags& flags) {
    ATOLL_TRY(const json said, members_from_flags(flags));
    if (flags.file.empty()) return said;
    ATOLL_TRY(json members, read_document(flags.file));
    if (!members.is_object()) return invalid_argument("--file", flags.file + " must hold an object");
    for (const auto& [key, value] : said.items()) {
        if (!value.is_object()) {
            members[key] = value;
            continue;
        }
        json& inner = members[key];
        if (!inner.is_object()) inner = json::object();
        inner.update(value);
    }
    return members;
}

Result<json> new_facility(const FacilityFlags& flags) {
    if (flags.file.empty() && !flags.local && flags.ssh.empty())
        return invalid_argument("--ssh", "say how the facility is reached: --local or --ssh HOST");
    if (flags.file.empty() && flags.work_dir.empty())
        return invalid_argument("--work-dir", "is required: an absolute directory at the site");
    ATOLL_TRY(const json said, said_members(flags));
    json facility = {{"name", flags.name}};
    if (flags.file.empty()) facility["batch"]["kind"] = "local";
    facility.merge_patch(said);
    facility["name"] = flags.name;
    return facility;
}

Status run_add(const Context& context, const FacilityFlags& options) {
    ATOLL_TRY(const json facility, new_facility(options));
    ATOLL_TRY(http::Client client, context.client("dispatch"));
    ATOLL_TRY(const json answer, client.post_json(kFacilities, facility, new_id()));
    if (context.json) return print_json(answer);
    std::cout << "added " << options.name << "; `atoll facility check " << options.name << "` tries it\n";
    return {};
}

std::string transport_text(const json& facility) {
    const json transport = facility.value("transport", json::object());
    return transport.value("kind", "") == "ssh" ? "ssh " + transport.value("host", "") : transport.value("kind", "");
}

// "local, 2 at once" or "slurm: cpu, gpu (default)".
std::string batch_text(const json& facility) {
    const json batch = facility.value("batch", json::object());
    const std::string kind = text(batch, "kind");
    if (kind != "slurm") return kind + ", " + text(batch, "slots") + " at once";
    std::vector<std::string> queues;
    for (const auto& [name, queue] : batch.value("queues", json::object()).items())
        queues.push_back(name + (name == text(batch, "default_queue") ? " (default)" : ""));
    return kind + ": " + join(queues);
}

Status list_facilities(const Context& context) {
    ATOLL_TRY(http::Client client, context.client("dispatch"));
    ATOLL_TRY(const json items, get_all(client, kFacilities));
    return print_items(context, items, {"facility", "reached by", "batch system", "work directory"},
                       [](const json& item) -> std::vector<std::string> {
                           return {text(item, "name"), transport_text(item), batch_text(item), text(item, "work_dir")};
                       });
}

Status print_facility(const Context& context, const json& facility) {
    if (context.json) return print_json(facility);
    json shown = facility;
    shown["transport"] = transport_text(facility);
    shown["batch"] = batch_text(facility);
    if (const std::string file = text(facility, "transport", "config_file"); !file.empty()) shown["ssh_config"] = file;
    return print_members(shown, {"name", "transport", "ssh_config", "batch", "evaluation", "preparation", "work_dir",
                                 "programs", "launcher"});
}

Status show_facility(const Context& context, http::Client& client, const std::string& name) {
    ATOLL_TRY(const json answer, get_named(client, kFacilities, "facility", name));
    return print_facility(context, answer);
}

// Changes what it was when it was read, not what somebody else made of it meanwhile.
Status run_set(const Context& context, const FacilityFlags& options) {
    ATOLL_TRY(const json patch, said_members(options));
    if (patch.empty() && !options.give_up_tasks)
        return invalid_argument("", "say what is to change: `atoll facility set --help` lists the flags");
    ATOLL_TRY(http::Client client, context.client("dispatch"));
    const std::string path = "/v1/facilities/" + segment(options.name);
    ATOLL_TRY(const auto before, client.call(http::Method::kGet, path));
    if (const Status found = before.check(); !found.ok()) return facility_error(client, options.name, found.error());
    http::CallOptions call;
    call.headers = {{"If-Match", before.headers.at("etag")}};
    const std::string query = options.give_up_tasks ? "?give_up_tasks=true" : "";
    ATOLL_TRY(const auto answer, client.call(http::Method::kPatch, path + query, patch.dump(), call));
    ATOLL_TRY(const json after, answer.json());
    return print_facility(context, after);
}

// Fails when a check does, so that scripts can ask.
Status run_check(const Context& context, http::Client& client, const std::string& name) {
    const auto answered = client.post_json("/v1/facilities/" + segment(name) + "/check", json::object());
    if (!answered.ok()) return facility_error(client, name, answered.error());
    const json& answer = *answered;
    if (context.json) {
        ATOLL_RETURN_IF_ERROR(print_json(answer));
    } else {
        Table table({"check", "", "detail"});
        for (const json& check : answer.value("checks", json::array()))
            table.add({text(check, "name"), check.value("ok", false) ? "ok" : "FAILED", text(check, "detail")});
        std::cout << table.text();
    }
    if (answer.value("ok", false)) return {};
    return unavailable("facility " + name + " is not ready for jobs");
}

Status remove_facility(const Context& context, http::Client& client, const std::string& name) {
    ATOLL_TRY(const auto answer, client.call(http::Method::kDelete, "/v1/facilities/" + segment(name)));
    if (const Status removed = answer.check(); !removed.ok()) return facility_error(client, name, removed.error());
    if (context.json) return print_json({{"removed", name}});
    std::cout << name << " is removed; what lies in its work directory stays there\n";
    return {};
}

// Lets OpenSSH itself show the host's key and ask, with the same configuration that dispatch uses.
Status run_trust(const Context&, http::Client& client, const std::string& name) {
    ATOLL_TRY(const json facility, get_named(client, kFacilities, "facility", name));
    if (text(facility, "transport", "kind") != "ssh") {
        std::cout << name << " is this machine: there is no host key to trust\n";
        return {};
    }
    std::vector<std::string> argv = {"ssh", "-o", "StrictHostKeyChecking=ask"};
    if (const std::string file = text(facility, "transport", "config_file"); !file.empty())
        argv.insert(argv.end(), {"-F", file});
    argv.insert(argv.end(), {"--", text(facility, "transport", "host"), "true"});
    return replace_process(argv);
}

void add_named(CLI::App& group, Context& context, const char* verb, const char* about,
               Status (*body)(const Context&, http::Client& dispatch, const std::string& facility)) {
    auto* command = group.add_subcommand(verb, about);
    const auto name = std::make_shared<std::string>();
    command->add_option("name", *name, "the facility")->required();
    set_example(*command, std::string("atoll facility ") + verb + " leonardo");
    on_run(*command, context, [&context, name, body]() -> Status {
        ATOLL_TRY(http::Client client, context.client("dispatch"));
        return body(context, client, *name);
    });
}

void add_members(CLI::App& command, FacilityFlags& flags) {
    flags.command = &command;
    command.add_option("name", flags.name, "its name: lower-case letters, digits, '.', '_', '-'")->required();
    command.add_option("--file", flags.file, "fields, JSON or YAML; the flags below win over it");
    command.add_flag("--local", flags.local, "this machine");
    command.add_option("--ssh", flags.ssh, "login host, or an alias of ~/.ssh/config");
    command.add_option("--ssh-config", flags.ssh_config, "another ssh configuration file");
    command.add_option("--batch", flags.batch, "batch system: local, the default; slurm takes --file, for its queues");
    command.add_option("--slots", flags.slots, "jobs at once, of the local batch system; default: 1")
        ->check(CLI::Range(1, 1024));
    command.add_option("--work-dir", flags.work_dir, "absolute directory at the site for data, models and tasks");
    command.add_option("--programs", flags.programs, "directory of atoll and atoll-trainer at the site");
    command.add_option("--launcher", flags.launcher,
                       "how ranks are started, as 'srun --mpi=pmix_v4'; default: srun --mpi=pmix of Slurm, else mpirun "
                       "of one machine");
    command.add_option("--env", flags.environment, "NAME=VALUE for every batch job and transfer there; repeatable")
        ->allow_extra_args(false);
}

}  // namespace

void add_facility_commands(CLI::App& program, Context& context) {
    auto* group = program.add_subcommand("facility", "the facilities that take part")->require_subcommand(1);
    set_example(*group, "atoll facility add leonardo --ssh leonardo --work-dir /scratch/me/atoll");
    auto* add = group->add_subcommand("add", "register a facility")->footer(kAddHelp);
    const auto added = std::make_shared<FacilityFlags>();
    add_members(*add, *added);
    on_run(*add, context, [&context, added] { return run_add(context, *added); });
    auto* set = group->add_subcommand("set", "correct what is registered of a facility")->footer(kSetHelp);
    const auto changed = std::make_shared<FacilityFlags>();
    add_members(*set, *changed);
    set->add_flag("--give-up-tasks", changed->give_up_tasks,
                  "end what only waits for an answer of the site; batch jobs there may go on");
    on_run(*set, context, [&context, changed] { return run_set(context, *changed); });
    auto* list = group->add_subcommand("list", "all facilities");
    set_example(*list, "atoll facility list");
    on_run(*list, context, [&context] { return list_facilities(context); });
    add_named(*group, context, "show", "one facility, all fields", show_facility);
    add_named(*group, context, "check", "try the transport, the work directory, the programs", run_check);
    add_named(*group, context, "rm", "remove a facility that nothing under way needs", remove_facility);
    add_named(*group, context, "trust", "look at an ssh host's key and accept it", run_trust);
}

}  // namespace atl::cli
