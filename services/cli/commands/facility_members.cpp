#include "services/cli/commands/facility_members.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <tuple>

#include "services/cli/rest.h"
#include "shared/base/spelling.h"
#include "shared/base/text.h"

namespace atl::cli {

using nlohmann::json;

namespace {

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

std::vector<std::string> keys_of(const json& object) {
    std::vector<std::string> keys;
    for (const auto& [key, value] : object.items()) keys.push_back(key);
    return keys;
}

// FIELD=VALUE, as "batch.queues.gpu.nodes_max=4": a value that is no JSON is a text.
Status set_field(json& members, const std::string& assignment) {
    const auto equals = assignment.find('=');
    if (equals == std::string::npos || equals == 0)
        return invalid_argument("--set", in_quotes(assignment) + " is not FIELD=VALUE");
    const std::string path = assignment.substr(0, equals);
    json* at = &members;
    for (const std::string_view key : split(path, '.')) {
        if (!at->is_object()) *at = json::object();
        at = &(*at)[std::string(key)];
    }
    const std::string value = assignment.substr(equals + 1);
    const json parsed = json::parse(value, nullptr, /*allow_exceptions=*/false);
    *at = parsed.is_discarded() ? json(value) : parsed;
    return {};
}

// The members that the flags name, as a merge patch: null takes one away. The rest is left out.
Result<json> members_from_flags(const FacilityFlags& flags) {
    if (flags.local && !flags.ssh.empty()) return invalid_argument("--ssh", "either --local or --ssh HOST");
    json members = json::object();
    if (flags.local)
        members["transport"] = {
            {"kind", "local"}, {"host", nullptr}, {"config_file", nullptr}, {"host_key", nullptr}, {"data", nullptr}};
    if (!flags.ssh.empty()) members["transport"] = {{"kind", "ssh"}, {"host", flags.ssh}};
    if (!flags.ssh_config.empty()) members["transport"]["config_file"] = flags.ssh_config;
    if (!flags.data.empty()) members["transport"]["data"] = flags.data;
    if (!flags.batch.empty()) members["batch"]["kind"] = flags.batch;
    if (flags.slots > 0) members["batch"]["slots"] = flags.slots;
    ATOLL_TRY(const json environment, environment_object(flags.environment));
    if (!environment.empty()) members["environment"] = environment;
    if (!flags.logs.empty()) members["logs"]["return"] = flags.logs;
    if (!flags.owner.empty()) members["owner"] = flags.owner;
    if (flags.command->count("--allow") > 0) {
        members["allow"] = json::array();
        for (const std::string& name : flags.allow)
            if (!name.empty()) members["allow"].push_back(name);
    }
    for (const auto& [flag, key, value] : {std::tuple{"--work-dir", "work_dir", flags.work_dir},
                                           {"--programs", "programs", flags.programs},
                                           {"--launcher", "launcher", flags.launcher}})
        if (flags.command->count(flag) > 0) members[key] = value.empty() ? json() : json(value);
    if (flags.command->count("--image") > 0)
        members["image"] = flags.image.empty() ? json() : json::object({{"path", flags.image}});
    for (const std::string& field : flags.fields) ATOLL_RETURN_IF_ERROR(set_field(members, field));
    return members;
}

}  // namespace

// A queue or a variable of another name is a new one, and null takes away what is there: that no slip of the pen is
// either, a path leads to what is there, and a new queue is given whole.
Status check_paths(const json& facility, const FacilityFlags& flags) {
    const json none = json::object();
    const json& batch = facility.contains("batch") ? facility.at("batch") : none;
    const json queues = batch.value("queues", none);
    const json environment = facility.value("environment", none);
    for (const std::string& assignment : flags.fields) {
        const auto equals = assignment.find('=');
        const auto path = split(std::string_view(assignment).substr(0, equals), '.');
        const bool takes_away = assignment.substr(equals + 1) == "null";
        const bool is_queue = path.size() >= 3 && path[0] == "batch" && path[1] == "queues";
        const bool is_variable = path.size() == 2 && path[0] == "environment";
        if (is_variable && takes_away && !environment.contains(std::string(path[1])))
            return invalid_argument("--set", "the facility has no variable " + std::string(path[1]) + " to take away" +
                                                 did_you_mean(std::string(path[1]), keys_of(environment)));
        if (!is_queue || queues.contains(std::string(path[2])) || (path.size() == 3 && !takes_away)) continue;
        if (text(batch, "kind") == "local")
            return invalid_argument("--set", "the local batch system of " + flags.name + " has no queues");
        const std::string name(path[2]);
        const std::string whole =
            "\n  a new one is given whole: --set 'batch.queues." + name + "={\"partition\": \"NAME\"}'";
        return invalid_argument("--set", "the facility has no queue " + name + did_you_mean(name, keys_of(queues)) +
                                             (takes_away ? "" : whole));
    }
    return {};
}

// The members of --file, if one is given, with those of the flags over them.
Result<json> said_members(const FacilityFlags& flags) {
    ATOLL_TRY(const json said, members_from_flags(flags));
    if (flags.file.empty()) return said;
    ATOLL_TRY(json members, read_document(flags.file));
    if (!members.is_object()) return invalid_argument("--file", flags.file + " must hold an object");
    for (const char* found : kFoundMembers) members.erase(found);
    for (const auto& [key, value] : said.items()) {
        if (!value.is_object()) {
            members[key] = value;
            continue;
        }
        json& inner = members[key];
        if (!inner.is_object()) inner = json::object();
        inner.update(value, /*merge_objects=*/true);
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

void add_members(CLI::App& command, FacilityFlags& flags) {
    flags.command = &command;
    command.add_option("name", flags.name, "its name: lower-case letters, digits, '.', '_', '-'")->required();
    command.add_option("--file", flags.file, "fields, JSON or YAML; the flags below win over it");
    command.add_flag("--local", flags.local, "this machine");
    command.add_option("--ssh", flags.ssh, "login host, or an alias of ~/.ssh/config");
    command.add_option("--ssh-config", flags.ssh_config, "another ssh configuration file");
    command.add_option("--data", flags.data, "how models and updates travel: by the store's address, or through ssh")
        ->check(CLI::IsMember({"store", "ssh"}));
    command.add_option("--batch", flags.batch,
                       "batch system: local (default), or slurm, whose queues are given in --file");
    command.add_option("--slots", flags.slots, "how many jobs the local batch system runs at once; default: 1")
        ->check(CLI::Range(1, 1024));
    command.add_option("--work-dir", flags.work_dir, "absolute directory at the site for data, models and tasks");
    command.add_option("--programs", flags.programs, "directory of atoll and atoll-trainer at the site");
    command.add_option("--image", flags.image,
                       "image with both at the site, in place of --programs; \"\" takes it away");
    command.add_option("--launcher", flags.launcher,
                       "how ranks are started, as 'srun --mpi=pmix_v4'; default: srun --mpi=pmix of Slurm, else mpirun "
                       "of one machine");
    command.add_option("--env", flags.environment, "NAME=VALUE for every batch job and transfer there; repeatable")
        ->allow_extra_args(false);
    command.add_option("--logs", flags.logs, "what of the attempts' logs leaves the site; default: all")
        ->check(CLI::IsMember({"all", "errors", "none"}));
    command.add_option(
        "--owner", flags.owner,
        "who may change and use it; default: you. An admin names another. All facilities of this machine (--local) run "
        "under one account, so an operator prepares no file outside the work directory of one");
    command
        .add_option(
            "--allow", flags.allow,
            "whose jobs may use the account there beside the owner's: NAME or '*', repeatable, all of them; '': "
            "nobody else's")
        ->allow_extra_args(false);
    command.add_option("--set", flags.fields, "FIELD=VALUE, any field by its path; null takes it away; repeatable")
        ->allow_extra_args(false);
}

}  // namespace atl::cli
