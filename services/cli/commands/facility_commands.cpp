#include <pwd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "services/cli/commands/commands.h"
#include "services/cli/commands/facility_check.h"
#include "services/cli/commands/facility_members.h"
#include "services/cli/output.h"
#include "services/cli/rest.h"
#include "services/cli/terminal.h"
#include "services/cli/usage.h"
#include "services/stack/layout.h"
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
  atoll facility set leonardo --data ssh         its login node does not reach the store
  atoll facility set leonardo --allow ada --allow bo       whose jobs may use the account, beside yours
  atoll facility set leonardo --ssh new-cluster --work-dir /scratch/me/atoll --give-up-tasks
  atoll facility set leonardo --file changes.yaml         null takes a field away
  atoll facility set leonardo --launcher ""              as does an empty text: the default again
  atoll facility set leonardo --set batch.queues.gpu.time_max=12:00:00 --set image=null      any field by its path
  atoll facility set leonardo --set 'batch.queues.long={"partition": "boost_long"}'         a new queue, given whole)";

constexpr const char* kCheckHelp =
    R"(A row is ok, warn, FAIL with what mends it, or - where it could not be looked at. All that the login node can tell is
asked by one script, in less than half a minute. Exit status 0: nothing failed; 1: something did. Examples:
  atoll facility check leonardo
  atoll facility check leonardo --job                        what each rank of a job finds, by the image and launcher of
                                                             trainings; a minute on two nodes (one, where the queue
                                                             has no more), once it has started
  atoll facility check leonardo --job --queue gpu --gpus 4 --wait 60
  atoll --json facility check leonardo                       for scripts: checks[].name, state, seen, mend)";

constexpr const char* kShowHelp =
    R"(YAML that `facility add --file` takes as it is; what dispatch has found out itself stands in comments. Examples:
  atoll facility show leonardo
  atoll facility show leonardo >leonardo.yaml && atoll facility add leonardo2 --file leonardo.yaml --work-dir /scratch/me/2)";

constexpr const char* kTrustHelp =
    R"(The key goes into the facility's record, and dispatch takes no other from then on. Examples:
  atoll facility trust leonardo                                          shows the fingerprint and asks
  atoll facility trust leonardo --fingerprint SHA256:EI/2PZBvmhu…        for scripts)";

constexpr const char* kFacilities = "/v1/facilities";

Error facility_error(http::Client& client, const std::string& name, const Error& error) {
    return with_near_name(client, kFacilities, "facility", name, error);
}

// A slip of the pen allows nobody. Tokens are an admin's to read, and may be issued later.
void warn_of_unknown_names(http::Client& client, const json& names) {
    const auto tokens = get_all(client, "/v1/tokens");
    if (!tokens.ok()) return;
    for (const json& name : names) {
        const auto subject = name.get<std::string>();
        const bool is_known = subject == "*" || std::any_of(tokens->begin(), tokens->end(), [&](const json& token) {
                                  return token.value("subject", "") == subject;
                              });
        if (!is_known)
            std::cerr << "no token was issued to " << subject
                      << " here (`atoll token list`): is that the name of a person or a program?\n";
    }
}

Status run_add(const Context& context, const FacilityFlags& options) {
    ATOLL_TRY(const json facility, new_facility(options));
    ATOLL_TRY(http::Client client, context.client("dispatch"));
    ATOLL_TRY(const json answer, client.post_json(kFacilities, facility, new_id()));
    warn_of_unknown_names(client, answer.value("allow", json::array()));
    if (context.json) return print_json(answer);
    std::cout << "added " << options.name << "; `atoll facility check " << options.name << "` tries it\n";
    return {};
}

std::string transport_text(const json& facility) {
    const json transport = facility.value("transport", json::object());
    if (transport.value("kind", "") != "ssh") return transport.value("kind", "");
    return "ssh " + transport.value("host", "") + (transport.value("data", "") == "ssh" ? ", data too" : "");
}

// "local, 2 at once" or "slurm: cpu, gpu (default)".
std::string batch_text(const json& facility) {
    const json batch = facility.value("batch", json::object());
    const std::string kind = text(batch, "kind");
    if (kind != "slurm") return kind + ", " + text(batch, "slots") + " at once";
    std::vector<std::string> queues;
    const json known = batch.value("queues", json::object());  // named: items() refers to it
    for (const auto& [name, queue] : known.items())
        queues.push_back(name + (name == text(batch, "default_queue") ? " (default)" : ""));
    return kind + ": " + join(queues);
}

// What is in the way of everything there, or else of one of its tasks.
std::string waits_text(const json& facility) {
    const std::string all = waiting_text(facility.value("waiting", json()));
    const json one = facility.value("task_waits", json());
    return !all.empty() || !one.is_object() ? all : "a task waits: " + wait_text(one);
}

Status list_facilities(const Context& context) {
    ATOLL_TRY(http::Client client, context.client("dispatch"));
    ATOLL_TRY(const json items, get_all(client, kFacilities));
    return print_items(
        context, items,
        {"facility", cut("owner"), cut("reached by"), cut("batch system"), cut("work directory"), note("waits")},
        [](const json& item) -> std::vector<std::string> {
            return {text(item, "name"), text(item, "owner"),    transport_text(item),
                    batch_text(item),   text(item, "work_dir"), waits_text(item)};
        });
}

// What dispatch has found out, as comments of YAML.
std::string found_text(const json& facility) {
    std::vector<std::string> lines;
    const std::size_t width = terminal_columns();
    const auto add = [&](const std::string& what, const std::string& value) {
        if (value.empty()) return;
        const std::string line = "# " + what + (what.empty() ? "" : ": ") + value;
        // Slurm's errors have several lines; each must be a comment.
        const std::string text = width == 0 ? with_indented_lines(line) + "\n" : fold(line, 0, kIndent, width);
        lines.push_back(replace_all(text, "\n    ", "\n#   "));
    };
    std::vector<std::string> words;
    for (const auto& key : facility.value("host_key_fingerprints", json::array()))
        words.push_back(key.get<std::string>());
    add("host key", join(words));
    add("", waits_text(facility));
    add("limits that a check has found", text(facility, "limits"));
    for (const json& line : facility.value("template_replaces", json::array()))
        add("replaced in the template by what a job says", line.get<std::string>());
    add("computes on", text(facility, "devices"));
    add("added", text(facility, "created_at"));
    add("changed", text(facility, "updated_at"));
    return join(lines, "");
}

Status print_facility(const Context& context, const json& facility) {
    if (context.json) return print_json(facility);
    json rest = facility;
    for (const char* found : kFoundMembers) rest.erase(found);
    std::cout << yaml_text(std::move(rest), {"name", "owner", "allow", "transport", "batch", "work_dir", "programs",
                                             "image", "launcher", "environment", "evaluation", "preparation", "logs"})
              << found_text(facility);
    return {};
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
    if (options.file.empty()) {
        ATOLL_TRY(const json facility, before.json());
        ATOLL_RETURN_IF_ERROR(check_paths(facility, options));
    }
    http::CallOptions call;
    call.headers = {{"If-Match", before.headers.at("etag")}};
    const std::string query = options.give_up_tasks ? "?give_up_tasks=true" : "";
    ATOLL_TRY(const auto answer, client.call(http::Method::kPatch, path + query, patch.dump(), call));
    ATOLL_TRY(const json after, answer.json());
    if (patch.contains("allow")) warn_of_unknown_names(client, after.value("allow", json::array()));
    return print_facility(context, after);
}

Status remove_facility(const Context& context, http::Client& client, const std::string& name) {
    ATOLL_TRY(const auto answer, client.call(http::Method::kDelete, "/v1/facilities/" + segment(name)));
    if (const Status removed = answer.check(); !removed.ok()) return facility_error(client, name, removed.error());
    const auto found = versions_at(context, name);
    json copies = json::array();
    for (const json& version : found.ok() ? *found : json::array())
        copies.push_back({{"dataset", version.at("dataset")}, {"version", version.at("version")}});
    if (context.json) return print_json({{"removed", name}, {"copies", copies}});
    std::cout << name << " is removed; what lies in its work directory stays there\n";
    if (!copies.empty()) std::cout << "The registry still lists copies of datasets there; to forget them:\n";
    for (const json& copy : copies)
        std::cout << "  atoll dataset rm " << text(copy, "dataset") << " --version " << text(copy, "version")
                  << " --copy " << name << "\n";
    return {};
}

struct TrustFlags {
    std::string name;
    std::string fingerprint;
};

// Whether the key that the host shows is the right one: --fingerprint says so, or a person.
Status confirm_host_key(const TrustFlags& flags, const std::string& host, const std::string& shown) {
    if (!flags.fingerprint.empty() && flags.fingerprint != shown)
        return conflict(host + " shows another key, " + shown + ": nothing was changed", "--fingerprint");
    if (!flags.fingerprint.empty()) return {};
    if (::isatty(STDIN_FILENO) == 0)
        return invalid_argument("--fingerprint",
                                host + " shows " + shown + ": if the site says so too, give --fingerprint " + shown);
    std::cerr << "Compare it with what the site publishes. Is it the same? yes or no: " << std::flush;
    std::string answer;
    std::getline(std::cin, answer);
    return answer == "yes" || answer == "y" ? Status() : invalid_argument("", "nothing was changed");
}

// The host's key as dispatch sees it goes into the facility's record: that is the one it takes from then on.
Status run_trust(const Context& context, const TrustFlags& flags) {
    if (!flags.fingerprint.empty() && !flags.fingerprint.starts_with("SHA256:"))
        return invalid_argument("--fingerprint", in_quotes(flags.fingerprint) +
                                                     " is no SHA256 fingerprint: give it as `ssh-keygen -l` shows it, "
                                                     "SHA256:…");
    ATOLL_TRY(http::Client client, context.client("dispatch"));
    const std::string path = std::string(kFacilities) + "/" + segment(flags.name);
    ATOLL_TRY(const auto before, client.call(http::Method::kGet, path));
    if (const Status found = before.check(); !found.ok()) return facility_error(client, flags.name, found.error());
    ATOLL_TRY(const json facility, before.json());
    const std::string host = text(facility, "transport", "host");
    if (host.empty())
        return conflict(flags.name + " is the coordinator's machine: there is no host key to trust", "transport");
    ATOLL_TRY(const json shown, client.post_json(path + "/host-key", json::object()));
    const std::string fingerprint = text(shown, "fingerprint");
    const bool is_pinned = text(facility, "transport", "host_key") == text(shown, "host_key");
    if (!context.json) std::cerr << host << " shows the host key " << fingerprint << "\n";
    if (!context.json && !is_pinned)
        for (const auto& key : facility.value("host_key_fingerprints", json::array()))
            std::cerr << "until now it was " << key.get<std::string>() << "\n";
    if (!is_pinned || !flags.fingerprint.empty()) ATOLL_RETURN_IF_ERROR(confirm_host_key(flags, host, fingerprint));
    if (!is_pinned) {
        http::CallOptions call;
        call.headers = {{"If-Match", before.headers.at("etag")}};
        const json patch = {{"transport", {{"host_key", text(shown, "host_key")}}}};
        ATOLL_TRY(const auto answer, client.call(http::Method::kPatch, path, patch.dump(), call));
        ATOLL_RETURN_IF_ERROR(answer.check());
    }
    if (context.json) return print_json(shown);
    std::cout << flags.name << (is_pinned ? " has this key pinned already" : " has this key pinned") << "\n";
    return {};
}

// On dispatch's machine and as its user ssh asks here; elsewhere the command is for whoever can be there.
Status run_login(const Context& context, http::Client& client, const std::string& name) {
    const auto answered = client.post_json(std::string(kFacilities) + "/" + segment(name) + "/login", json::object());
    if (!answered.ok()) return facility_error(client, name, answered.error());
    if (context.json) return print_json(*answered);
    const auto command = answered->at("command").get<std::vector<std::string>>();
    char machine[256] = {};
    const bool is_here = ::gethostname(machine, sizeof machine - 1) == 0 && text(*answered, "machine") == machine;
    const auto user = answered->value("user_id", ::geteuid());
    if (is_here && user == ::geteuid()) return replace_process(command);
    std::cerr << "run this on " << text(*answered, "machine") << ", where dispatch runs, as its user:\n";
    const passwd* owner = is_here && ::geteuid() == 0 ? ::getpwuid(user) : nullptr;
    std::string line = owner == nullptr ? "" : std::string("runuser -u ") + owner->pw_name + " --";
    for (const std::string& word : command) line += (line.empty() ? "" : " ") + stack::quoted(word);
    std::cout << line << "\n";
    return {};
}

CLI::App* add_named(CLI::App& group, Context& context, const char* verb, const char* about,
                    Status (*body)(const Context&, http::Client& dispatch, const std::string& facility)) {
    auto* command = group.add_subcommand(verb, about);
    const auto name = std::make_shared<std::string>();
    command->add_option("name", *name, "the facility")->required();
    set_example(*command, std::string("atoll facility ") + verb + " leonardo");
    on_run(*command, context, [&context, name, body]() -> Status {
        ATOLL_TRY(http::Client client, context.client("dispatch"));
        return body(context, client, *name);
    });
    return command;
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
    add_named(*group, context, "show", "one facility, all fields", show_facility)->footer(kShowHelp);
    auto* check = group->add_subcommand("check", "look at all that a job there needs; says what mends what is wrong")
                      ->footer(kCheckHelp);
    const auto checked = std::make_shared<CheckFlags>();
    check->add_option("name", checked->name, "the facility")->required();
    auto* job = check->add_flag("--job", checked->job,
                                "in a short batch job, too: ranks, image, launcher, template as trainings have them");
    check->add_option("--queue", checked->queue, "the job's, of the facility's record; default: its default_queue")
        ->needs(job);
    check->add_option("--gpus", checked->gpus, "that the job asks for, a node")->needs(job)->check(CLI::Range(1, 64));
    check->add_option("--wait", checked->wait_minutes, "minutes for the job to start and end; default: 10")
        ->needs(job)
        ->check(CLI::Range(1, 10000));
    on_run(*check, context, [&context, checked] { return run_check(context, *checked); });
    add_put_image_command(*group, context);
    add_named(*group, context, "rm", "remove a facility that nothing under way needs", remove_facility);
    add_named(*group, context, "login", "log in where a site asks a second factor; dispatch uses the connection",
              run_login);
    auto* trust = group->add_subcommand("trust", "look at an ssh host's key, as dispatch sees it, and pin it")
                      ->footer(kTrustHelp);
    const auto trusted = std::make_shared<TrustFlags>();
    trust->add_option("name", trusted->name, "the facility")->required();
    trust->add_option("--fingerprint", trusted->fingerprint,
                      "as the site publishes it, SHA256:…: pinned without asking, refused when the host shows another");
    on_run(*trust, context, [&context, trusted] { return run_trust(context, *trusted); });
}

}  // namespace atl::cli
