#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <ctime>
#include <iostream>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "services/cli/commands/commands.h"
#include "services/cli/commands/running_jobs.h"
#include "services/cli/output.h"
#include "services/cli/rest.h"
#include "services/cli/usage.h"
#include "services/stack/gateway.h"
#include "services/stack/gateway_watch.h"
#include "services/stack/prepare_user.h"
#include "services/stack/stack.h"
#include "services/stack/stack_user.h"
#include "services/stack/supervisor.h"
#include "services/stack/systemd.h"

namespace atl::cli {
namespace {

constexpr const char* kUpHelp =
    R"(Starts a coordinator on this machine: PostgreSQL, Kafka, the four services and the gateway, all private to the
state directory. Starts only what does not run, and leaves a supervisor behind that starts again what ends by itself or
is killed (`atoll status` says what, and how often). After a reboot, `atoll up` again; or let systemd do both (--systemd).
Root's stack belongs to the user atoll and runs as that user (--user); a certificate that only root can read is copied
into the state directory: give its flags again when it was renewed, after `atoll down`.
What runs stays as it is: flags that ask for something else are refused (`atoll down` first, its data stays). Settings
of the services stand in settings.yaml in the state directory, such as `store: {keep_updates_rounds: 5}`. Examples:
  atoll up                                   in the default state directory, ports 7400 to 7402
  atoll up --state /srv/atoll --port-base 9000
  atoll up --public-url https://coordinator.example.org:7443 --public-listen 0.0.0.0:7443 \
           --tls-certificate /etc/atoll/cert.pem --tls-key /etc/atoll/key.pem
  atoll up --systemd /etc/systemd/system     then: systemctl daemon-reload && systemctl enable --now atoll.target
  atoll up --only postgres,kafka --port-base 0 --state /tmp/test-stack)";

// Also what is empty: "a,,b" is a slip.
std::vector<std::string> split_at_commas(const std::string& text) {
    std::vector<std::string> parts(1);
    for (const char c : text) {
        if (c == ',')
            parts.emplace_back();
        else
            parts.back() += c;
    }
    return parts;
}

constexpr int kPortBaseMax = 65533;  // three ports from there on

// A line at a time on standard error, with the seconds since the command began.
stack::Report reporter() {
    const auto lock = std::make_shared<std::mutex>();
    return [lock](const std::string& line) {
        const std::scoped_lock held(*lock);
        std::cerr << "  " << line << "\n";
    };
}

void warn_of_plain_http(const std::string& url) {
    if (url.starts_with("http://"))
        std::cerr << "WARNING: " << url
                  << " is not encrypted: whoever listens on the way can read tokens and models. Use https.\n";
}

// Writes the units of a stack of which nothing runs.
Status run_up_by_systemd(const Context& context, stack::UpOptions options, const std::string& user,
                         const std::filesystem::path& directory) {
    options.state = context.state_directory;
    options.supervision = stack::Supervision::kSystemd;
    nlohmann::json description;
    std::string unit_user;
    {
        std::optional<stack::ActingAs> acting;  // the units are root's
        if (::geteuid() == 0) {
            ATOLL_TRY(const stack::StackUser owner, stack::prepare_user(options, user, reporter()));
            acting.emplace(owner);
            unit_user = owner.name;
        }
        ATOLL_TRY(description, stack::up(options, reporter()));
    }
    warn_of_plain_http(description.at("public").at("url"));
    ATOLL_TRY(const auto files, stack::write_units(options.state, options.atoll, directory, unit_user));
    if (context.json) {
        std::cout << description.dump(2) << "\n";
        return {};
    }
    const std::string whose = ::geteuid() == 0 ? "" : "--user ";
    std::cout << files.size() << " units are in " << directory.string() << "; nothing was started. Now:\n"
              << "  systemctl " << whose << "daemon-reload\n  systemctl " << whose << "enable --now atoll.target\n";
    return {};
}

Status run_up(const Context& context, stack::UpOptions options, const std::string& user) {
    options.state = context.state_directory;
    std::cerr << "starting Atoll in " << options.state.string() << "\n";
    if (::geteuid() == 0) {
        ATOLL_TRY(const stack::StackUser owner, stack::prepare_user(options, user, reporter()));
        ATOLL_RETURN_IF_ERROR(stack::become(owner));
    }
    ATOLL_TRY(const nlohmann::json description, stack::up(options, reporter()));
    const std::string url = description.at("public").at("url");
    warn_of_plain_http(url);
    if (context.json)
        std::cout << description.dump(2) << "\n";
    else if (options.only.empty())
        std::cout << "Atoll is up at " << description.at("gateway").get<std::string>()
                  << "\n  console: " << description.at("gateway").get<std::string>() << "/console/"
                  << "\n  facilities elsewhere: " << (url.empty() ? "cannot reach it (--public-url)" : url)
                  << "\n  tokens: " << (options.state / "tokens").string() << "\n  end it with: atoll down --state "
                  << stack::quoted(options.state) << "\n";
    return {};
}

struct DownFlags {
    bool delete_data = false;
    bool is_sure = false;
    bool cancel_jobs = false;
};

// Asks on a terminal; elsewhere --yes must have answered already.
Status confirm_deletion(const std::filesystem::path& state) {
    if (!std::filesystem::exists(state / "stack.json")) return {};
    const std::string what = "every job, model, key and token in " + state.string();
    if (::isatty(STDIN_FILENO) == 0)
        return invalid_argument("--delete", "--delete deletes " + what + ": give --yes as well to mean it");
    std::cerr << "delete " << what << "? This cannot be undone. Type yes: " << std::flush;
    std::string answer;
    std::getline(std::cin, answer);
    return answer == "yes" ? Status() : invalid_argument("--delete", "nothing was stopped or deleted");
}

// What must be done and said of jobs before the stack ends: what a deleted stack's jobs do at the facilities nobody can
// end any more.
Status settle_jobs(const Context& context, const DownFlags& flags, std::optional<std::vector<nlohmann::json>>& jobs) {
    if (flags.delete_data && jobs && !jobs->empty() && !flags.cancel_jobs)
        return invalid_argument(
            "--delete", "jobs are under way, and their batch jobs would run on with nobody to end them:" +
                            describe_jobs(*jobs) + "\n  --cancel-jobs ends them first. Nothing was stopped or deleted");
    if (flags.delete_data && !flags.is_sure) ATOLL_RETURN_IF_ERROR(confirm_deletion(context.state_directory));
    if (!jobs && (flags.delete_data || flags.cancel_jobs))
        std::cerr << "dispatch does not answer: batch jobs of this stack that still run at a facility run on\n";
    if (!jobs || jobs->empty() || !flags.cancel_jobs) return {};  // or it came no further than its database
    ATOLL_RETURN_IF_ERROR(cancel_jobs(context.state_directory, *jobs));
    jobs->clear();
    return {};
}

void say_down(const Context& context, const std::vector<nlohmann::json>& jobs) {
    const std::string start = stack::start_command(context.state_directory);
    std::cerr << "Atoll is down, its data stays; start it again with: " << start << "\n";
    if (!jobs.empty())
        std::cerr << "Batch jobs of these jobs run on at the facilities meanwhile, and the next `up` goes on with "
                     "them:"
                  << describe_jobs(jobs) << "\n";
}

Status run_down(const Context& context, const DownFlags& flags) {
    ATOLL_RETURN_IF_ERROR(stack::check_owner(context.state_directory));
    auto jobs = unfinished_jobs(context.state_directory);
    ATOLL_RETURN_IF_ERROR(settle_jobs(context, flags, jobs));
    auto down = stack::down(context.state_directory, flags.delete_data, reporter());
    if (!down.ok() && down.error().code != ErrorCode::kNotFound) return down.error();
    const stack::DownResult result = down.ok() ? std::move(*down) : stack::DownResult();
    const bool is_deleted = flags.delete_data && down.ok();
    if (context.json)
        std::cout << nlohmann::json{{"stopped", result.stopped},
                                    {"killed", result.killed},
                                    {"unfinished_jobs", jobs ? nlohmann::json(*jobs) : nlohmann::json()}}
                         .dump(2)
                  << "\n";
    else if (result.stopped.empty() && result.killed.empty())
        std::cerr << "nothing ran in " << context.state_directory.string()
                  << (down.ok() ? "\n" : ": no stack was started there\n");
    else if (!flags.delete_data)
        say_down(context, jobs.value_or(std::vector<nlohmann::json>()));
    if (is_deleted && !context.json)
        std::cerr << "deleted everything in " << context.state_directory.string()
                  << " but the logs; what lies in the facilities' work directories stays there\n";
    return {};
}

std::string disk_text(const stack::DiskSpace& disk) {
    const std::string free = "the store's disk has " + human_bytes(disk.free_bytes) + " free; ";
    const std::string reserve = human_bytes(disk.free_bytes_min);
    if (disk.free_bytes < disk.free_bytes_min)
        return free + "uploads are REFUSED as they leave " + reserve + ": remove what nobody needs (atoll model prune)";
    return free + "uploads leave " + reserve;
}

// "2026-03-01 12:00:00"
std::string local_time(std::time_t when) {
    std::tm parts{};
    ::localtime_r(&when, &parts);
    std::array<char, 32> text;
    return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &parts)};
}

// "2, last at 2026-03-01T12:00:00Z", or why it cannot be done.
std::string restarts_text(const stack::Restarts& restarts) {
    if (!restarts.error.empty()) return "FAILS: " + restarts.error;
    if (restarts.count == 0) return "-";
    return std::to_string(restarts.count) + ", last at " + utc_time(static_cast<std::int64_t>(restarts.last_unix_s));
}

Result<std::size_t> damaged_count(const Context& context) {
    ATOLL_TRY(http::Client store, context.client("store"));
    ATOLL_TRY(const nlohmann::json damaged, store.get_json("/v1/damaged-blobs"));
    return damaged.at("items").size();
}

// Fails when a component is not ready, so that scripts can ask.
Status run_status(const Context& context) {
    ATOLL_TRY(const auto components, stack::status(context.state_directory));
    Table table({"component", "state", "pid", "up", "memory", note("started again"), cut("address")});
    nlohmann::json list = nlohmann::json::array();
    bool all_ready = true;
    std::string disk;
    for (const auto& one : components) {
        all_ready = all_ready && one.state == "ready";
        list.push_back({{"name", one.name},
                        {"state", one.state},
                        {"waits_for", one.waits_for},
                        {"address", one.address},
                        {"pid", one.pid},
                        {"uptime_s", one.uptime_s},
                        {"memory_bytes", one.memory_bytes},
                        {"restarts", one.restarts.count},
                        {"restarted_unix_s", one.restarts.last_unix_s},
                        {"restart_error", one.restarts.error}});
        if (one.disk) {
            list.back()["disk_free_bytes"] = one.disk->free_bytes;
            list.back()["disk_free_bytes_min"] = one.disk->free_bytes_min;
            disk = disk_text(*one.disk);
        }
        const bool runs = one.pid != 0;
        const std::string state = one.waits_for.empty() ? one.state : one.state + ": needs " + one.waits_for;
        table.add({one.name, state, runs ? std::to_string(one.pid) : "-", runs ? human_seconds(one.uptime_s) : "-",
                   runs ? human_bytes(one.memory_bytes) : "-", restarts_text(one.restarts), one.address});
    }
    if (context.json)
        std::cout << list.dump(2) << "\n";
    else
        print(table);
    if (!context.json && !disk.empty()) print_line(disk);
    if (all_ready && !context.json) {
        const auto events = dead_letters(context);
        if (events.ok() && !events->empty())
            std::cout << counted(events->size(), "event")
                      << (events->size() == 1 ? " is a dead letter" : " are dead letters") << ": atoll events list\n";
        const auto damaged = damaged_count(context);
        if (damaged.ok() && *damaged > 0)
            std::cout << counted(*damaged, "blob") << " of the store " << (*damaged == 1 ? "is" : "are")
                      << " damaged: atoll model damaged\n";
    }
    if (all_ready) return {};
    const std::string way_out =
        stack::is_starting_again(components)
            ? "the supervisor is starting it again, so wait a moment"
            : "`" + stack::start_command(context.state_directory) + "` starts what does not run";
    return unavailable("not every component is ready: " + way_out + "; logs are in " +
                       (context.state_directory / "logs").string());
}

Status run_credentials(const Context& context, const std::filesystem::path& out) {
    for (const char* name : {"keys", "tokens"}) {
        std::error_code error;
        std::filesystem::create_directories(out / name, error);
        if (!error) std::filesystem::permissions(out / name, std::filesystem::perms::owner_all, error);
        if (error) return invalid_argument("--out", "cannot make " + (out / name).string() + ": " + error.message());
    }
    ATOLL_RETURN_IF_ERROR(stack::make_credentials(stack::Layout{out}));
    ATOLL_RETURN_IF_ERROR(stack::make_kafka_certificates(stack::Layout{out}));
    if (context.json) return print_json({{"keys", (out / "keys").string()}, {"tokens", (out / "tokens").string()}});
    std::cout << "keys and tokens are in " << out.string() << "\n";
    return {};
}

void add_credentials(CLI::App& program, Context& context) {
    auto* command = program.add_subcommand("credentials", "make signing keys and tokens (images and charts use this)");
    const auto out = std::make_shared<std::filesystem::path>();
    command->add_option("--out", *out, "directory for keys/ and tokens/; what is there and lasts is kept")->required();
    set_example(*command, "atoll credentials --out /srv/atoll");
    on_run(*command, context, [&context, out] { return run_credentials(context, *out); });
}

// As the user to whom the stack belongs, where this is root.
Status as_owner(Context& context, const std::function<Status()>& body) {
    ATOLL_RETURN_IF_ERROR(stack::become_owner(context.state_directory));
    return body();
}

// For `up` and for the units that it writes, not for people.
void add_internal_commands(CLI::App& program, Context& context) {
    auto* supervise = program.add_subcommand("supervise", "start again what ends of a stack")->group("");
    set_example(*supervise, "atoll supervise");
    const auto report = [](const std::string& line) {
        std::cout << local_time(std::time(nullptr)) << "  " << line << std::endl;
    };
    on_run(*supervise, context, [&context, report] {
        return as_owner(context, [&] { return stack::supervise(context.state_directory, report, {}); });
    });
    auto* component = program.add_subcommand("component", "run one component of a stack")->group("");
    component->require_subcommand(1);
    const auto name = std::make_shared<std::string>();
    auto* run = component->add_subcommand("run", "become the component");
    run->add_option("name", *name, "as `atoll status` shows it")->required();
    set_example(*run, "atoll component run kafka");
    on_run(*run, context, [&context, name] {
        return as_owner(context, [&]() -> Status {
            ATOLL_TRY(const auto argv, stack::become_component(context.state_directory, *name));
            return replace_process(argv);
        });
    });
    auto* wait = component->add_subcommand("wait", "wait until it is ready");
    wait->add_option("name", *name, "as `atoll status` shows it")->required();
    set_example(*wait, "atoll component wait kafka");
    on_run(*wait, context, [&context, name] {
        return as_owner(context, [&] { return stack::await_component(context.state_directory, *name); });
    });
    auto* renew = component->add_subcommand("renew", "keep tokens and the gateway's certificate from expiring");
    set_example(*renew, "atoll component renew");
    on_run(*renew, context, [&context, report] {
        return as_owner(context, [&] { return stack::keep_renewing(context.state_directory, report, {}); });
    });
}

}  // namespace

void add_stack_commands(CLI::App& program, Context& context) {
    auto* up = program.add_subcommand("up", "start the coordinator on this machine")->footer(kUpHelp);
    auto options = std::make_shared<stack::UpOptions>();
    up->add_option("--port-base", options->port_base,
                   "first of three TCP ports on 127.0.0.1; 0: any free ones; default: those it had, else 7400")
        ->check(CLI::Range(0, kPortBaseMax));
    const auto address = std::make_shared<stack::PublicAddress>();
    auto* url = up->add_option("--public-url", address->url,
                               "the gateway's address as facilities elsewhere reach it; remembered");
    up->add_option("--public-listen", address->listen,
                   "address:port where nginx listens for them, with TLS; without it a proxy of yours forwards to it")
        ->needs(url);
    up->add_option("--tls-certificate", address->certificate, "PEM file, with --public-listen")->needs(url);
    up->add_option("--tls-key", address->certificate_key, "PEM file, with --public-listen")->needs(url);
    up->add_option("--trusted-proxies", address->trusted_proxies,
                   "your own proxies' addresses or networks, comma-separated; their X-Forwarded-For then gives the "
                   "client address "
                   "that limits apply to")
        ->needs(url);
    const auto only = std::make_shared<std::string>();
    up->add_option("--only", *only,
                   "components to start, comma-separated, of those that `atoll status` lists; default: all");
    up->add_option("--programs", options->programs, "directory of the services' programs; remembered");
    up->add_option("--kafka-jars", options->kafka_jars, "Kafka's libs directory; remembered");
    const auto systemd = std::make_shared<std::filesystem::path>();
    const auto supervise = std::make_shared<bool>(true);
    auto* unattended = up->add_flag("--supervise,!--no-supervise", *supervise,
                                    "run a supervisor that restarts components that exit; default: yes; remembered");
    auto* units = up->add_option("--systemd", *systemd,
                                 "directory for systemd's units, written in place of starting anything; remembered")
                      ->excludes(unattended);
    const auto user = std::make_shared<std::string>();
    up->add_option(
        "--user", *user,
        "user that runs the stack when root starts it; default: the owner of the state directory, else atoll, "
        "which is created if it does not exist");
    on_run(*up, context, [&context, options, address, url, up, only, systemd, supervise, unattended, units, user] {
        if (!user->empty() && ::geteuid() != 0)
            return Status(invalid_argument("--user", "only root can run a stack as another user"));
        options->atoll = std::filesystem::read_symlink("/proc/self/exe");
        if (unattended->count() > 0)
            options->supervision = *supervise ? stack::Supervision::kAtoll : stack::Supervision::kNone;
        if (up->count("--only") > 0) options->only = split_at_commas(*only);
        for (std::filesystem::path* file :
             {&address->certificate, &address->certificate_key, &options->programs, &options->kafka_jars}) {
            if (!file->empty()) *file = std::filesystem::absolute(*file);  // what is started works elsewhere
        }
        if (url->count() > 0) options->address = *address;
        if (units->count() > 0) return run_up_by_systemd(context, *options, *user, std::filesystem::absolute(*systemd));
        return run_up(context, *options, *user);
    });
    auto* down = program.add_subcommand("down", "end the coordinator on this machine; its data stays");
    const auto flags = std::make_shared<DownFlags>();
    down->add_flag("--delete", flags->delete_data,
                   "afterwards delete everything in the state directory but the logs; asks; refused while jobs run");
    down->add_flag("--yes", flags->is_sure, "do not ask");
    down->add_flag("--cancel-jobs", flags->cancel_jobs,
                   "first cancel the jobs that run; without it their batch jobs run on at the facilities, and the next "
                   "`up` goes on with them");
    set_example(*down, "atoll down");
    on_run(*down, context, [&context, flags] { return as_owner(context, [&] { return run_down(context, *flags); }); });
    add_credentials(program, context);
    add_internal_commands(program, context);
    auto* status = program.add_subcommand("status", "what runs on this machine");
    set_example(*status, "atoll status");
    on_run(*status, context, [&context] { return as_owner(context, [&] { return run_status(context); }); });
}

void add_gateway_command(CLI::App& program, Context& context) {
    auto* gateway = program.add_subcommand("gateway", "run nginx as Atoll's gateway (images and charts use this)");
    auto options = std::make_shared<stack::GatewayOptions>();
    gateway->add_option("--listen", options->listen, "address:port")->capture_default_str();
    gateway->add_option("--registry", options->registry, "host:port of the registry")->required();
    gateway->add_option("--store", options->store, "host:port of the store")->required();
    gateway->add_option("--dispatch", options->dispatch, "host:port of dispatch")->required();
    gateway->add_option("--aggregation", options->aggregation, "host:port of aggregation")->required();
    gateway->add_option("--blobs", options->blobs, "the store's blob directory")->required();
    gateway->add_option("--directory", options->directory, "for nginx' own files")->required();
    gateway->add_option("--access-log", options->access_log, "a file, or off")->capture_default_str();
    gateway->add_option("--tls-certificate", options->certificate, "PEM file; with --tls-key: HTTPS");
    gateway->add_option("--tls-key", options->certificate_key, "PEM file");
    gateway->add_option("--tls-client-ca", options->client_ca, "accept only clients with a certificate of this CA");
    gateway->add_option(
        "--trusted-proxies", options->trusted_proxies,
        "your own proxies' addresses or networks, comma-separated; only their X-Forwarded-For is believed");
    gateway->add_option("--wait", options->wait_s, "seconds that a request waits for a service that cannot be reached")
        ->check(CLI::Range(0, 60))
        ->capture_default_str();
    set_example(
        *gateway,
        "atoll gateway --listen 0.0.0.0:7400 --registry registry:7401 --store store:7402 --dispatch dispatch:7403 "
        "\\\n      --aggregation aggregation:7404 --blobs /srv/atoll/blobs --directory /tmp/nginx");
    on_run(*gateway, context, [&context, options]() -> Status {
        if (context.json)
            return invalid_argument("--json", "`atoll gateway` becomes nginx: it has no answer of its own");
        for (auto* place : {&options->directory, &options->blobs}) *place = std::filesystem::absolute(*place);
        ATOLL_TRY(const std::vector<std::string> argv, stack::prepare_gateway(*options));
        ATOLL_RETURN_IF_ERROR(stack::start_gateway_watch(*options));
        return replace_process(argv);
    });
}

}  // namespace atl::cli
