#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "services/cli/commands.h"
#include "services/cli/output.h"
#include "services/cli/rest.h"
#include "shared/base/id.h"

namespace atl::cli {
namespace {

using nlohmann::json;

constexpr const char* kAddHelp = R"(Examples:
  atoll facility add here --local --work-dir /srv/atoll-work
  atoll facility add leonardo --ssh leonardo --work-dir /leonardo_scratch/me/atoll --programs /leonardo/home/me/atoll/bin
  atoll facility add karolina --file karolina.yaml        every field of POST /v1/facilities

--ssh takes a host or an alias of your ~/.ssh/config: ProxyJump, certificates and agents work as they do by hand.)";

struct AddOptions {
    std::string name;
    std::string file;
    bool local = false;
    std::string ssh;
    std::string ssh_config;
    std::string batch = "local";
    std::int64_t slots = 1;
    std::string work_dir;
    std::string programs;
    std::string image;
    std::string launcher;
    std::vector<std::string> environment;
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

Result<json> facility_from_flags(const AddOptions& options) {
    if (options.local == !options.ssh.empty())
        return invalid_argument("--ssh", "say how the facility is reached: either --local or --ssh HOST");
    if (options.work_dir.empty())
        return invalid_argument("--work-dir", "--work-dir DIR is needed (absolute, at the site)");
    json transport = {{"kind", options.local ? "local" : "ssh"}};
    if (!options.ssh.empty()) transport["host"] = options.ssh;
    if (!options.ssh_config.empty()) transport["config_file"] = options.ssh_config;
    json batch = {{"kind", options.batch}};
    if (options.batch == "local") batch["slots"] = options.slots;
    json facility = {
        {"name", options.name}, {"transport", transport}, {"batch", batch}, {"work_dir", options.work_dir}};
    ATOLL_TRY(const json environment, environment_object(options.environment));
    if (!environment.empty()) facility["environment"] = environment;
    for (const auto& [key, value] :
         {std::pair{"programs", options.programs}, {"image", options.image}, {"launcher", options.launcher}})
        if (!value.empty()) facility[key] = value;
    return facility;
}

Status run_add(const Context& context, const AddOptions& options) {
    json facility;
    if (options.file.empty()) {
        ATOLL_TRY(facility, facility_from_flags(options));
    } else {
        ATOLL_TRY(facility, read_document(options.file));
        facility["name"] = options.name;
    }
    ATOLL_TRY(http::Client client, context.client("dispatch"));
    ATOLL_TRY(const json answer, client.post_json("/v1/facilities", facility, new_id()));
    if (context.json) return print_json(answer);
    std::cout << "added " << options.name << "; `atoll facility check " << options.name << "` tries it\n";
    return {};
}

std::string way_in(const json& facility) {
    const json transport = facility.value("transport", json::object());
    return transport.value("kind", "") == "ssh" ? "ssh " + transport.value("host", "") : transport.value("kind", "");
}

Status list_facilities(const Context& context) {
    ATOLL_TRY(http::Client client, context.client("dispatch"));
    ATOLL_TRY(const json items, get_all(client, "/v1/facilities"));
    if (context.json) return print_json(items);
    Table table({"facility", "reached by", "batch system", "work directory"});
    for (const json& item : items)
        table.add({text(item, "name"), way_in(item), text(item, "batch", "kind"), text(item, "work_dir")});
    std::cout << table.text();
    return {};
}

Status show_facility(const Context& context, const std::string& name) {
    ATOLL_TRY(http::Client client, context.client("dispatch"));
    ATOLL_TRY(const json answer, client.get_json("/v1/facilities/" + segment(name)));
    return print_json(answer);
}

// Fails when a check does, so that scripts can ask.
Status run_check(const Context& context, const std::string& name) {
    ATOLL_TRY(http::Client client, context.client("dispatch"));
    ATOLL_TRY(const json answer, client.post_json("/v1/facilities/" + segment(name) + "/check", json::object()));
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

Status run_remove(const Context& context, const std::string& name) {
    ATOLL_TRY(http::Client client, context.client("dispatch"));
    ATOLL_TRY(const auto answer, client.call(http::Method::kDelete, "/v1/facilities/" + segment(name)));
    return answer.check();
}

// Lets OpenSSH itself show the host's key and ask, with the same configuration that dispatch uses.
Status run_trust(const Context& context, const std::string& name) {
    ATOLL_TRY(http::Client client, context.client("dispatch"));
    ATOLL_TRY(const json facility, client.get_json("/v1/facilities/" + segment(name)));
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
               Status (*body)(const Context&, const std::string&)) {
    auto* command = group.add_subcommand(verb, about);
    const auto name = std::make_shared<std::string>();
    command->add_option("name", *name, "the facility")->required();
    on_run(*command, context, [&context, name, body] { return body(context, *name); });
}

}  // namespace

void add_facility_commands(CLI::App& program, Context& context) {
    auto* group = program.add_subcommand("facility", "the HPC sites that take part")->require_subcommand(1);
    auto* add = group->add_subcommand("add", "register a facility")->footer(kAddHelp);
    const auto options = std::make_shared<AddOptions>();
    add->add_option("name", options->name, "its name: lower-case letters, digits, '.', '_', '-'")->required();
    add->add_option("--file", options->file, "all fields, JSON or YAML, instead of the flags below");
    add->add_flag("--local", options->local, "this machine");
    add->add_option("--ssh", options->ssh, "login host, or an alias of ~/.ssh/config");
    add->add_option("--ssh-config", options->ssh_config, "another ssh configuration file");
    add->add_option("--batch", options->batch, "batch system: local, slurm, pbs, flux, hq")->capture_default_str();
    add->add_option("--slots", options->slots, "jobs at once, of the local batch system")->capture_default_str();
    add->add_option("--work-dir", options->work_dir, "absolute directory at the site for data, models and tasks");
    add->add_option("--programs", options->programs, "directory of atoll and atoll-trainer at the site");
    add->add_option("--image", options->image, "Apptainer image at the site with both programs");
    add->add_option("--launcher", options->launcher, "how ranks are started; default: the batch system's way");
    add->add_option("--env", options->environment, "NAME=VALUE for every batch job; repeatable");
    on_run(*add, context, [&context, options] { return run_add(context, *options); });
    auto* list = group->add_subcommand("list", "all facilities");
    on_run(*list, context, [&context] { return list_facilities(context); });
    add_named(*group, context, "show", "one facility, all fields", show_facility);
    add_named(*group, context, "check", "try the way in, the work directory, the programs", run_check);
    add_named(*group, context, "remove", "forget a facility that no job has used", run_remove);
    add_named(*group, context, "trust", "look at an ssh host's key and accept it", run_trust);
}

}  // namespace atl::cli
