#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "services/cli/context.h"

// What `facility add` and `facility set` say of a facility: flags, a file, fields by their paths.
namespace atl::cli {

// What is shown of a facility beside its record.
inline constexpr const char* kFoundMembers[] = {
    "devices", "host_key_fingerprints", "limits",     "task_waits", "template_replaces",
    "waiting", "silent_since",          "created_at", "updated_at"};

// Empty or 0: not said, but for the texts that may be said as "".
struct FacilityFlags {
    const CLI::App* command = nullptr;
    std::string name;
    std::string file;
    bool local = false;
    std::string ssh;
    std::string ssh_config;
    std::string data;
    std::string batch;
    std::int64_t slots = 0;
    std::string work_dir;
    std::string programs;
    std::string image;
    std::string launcher;
    std::vector<std::string> environment;
    std::string logs;
    std::string owner;
    std::vector<std::string> allow;
    std::vector<std::string> fields;  // FIELD=VALUE
    bool give_up_tasks = false;
};

void add_members(CLI::App& command, FacilityFlags& flags);

// A whole record. kInvalidArgument: something that every facility has is not said.
Result<nlohmann::json> new_facility(const FacilityFlags& flags);
// What is to change, as a merge patch: the members of --file with those of the flags over them.
Result<nlohmann::json> said_members(const FacilityFlags& flags);
// kInvalidArgument: a path of --set leads to a queue that is not there, or takes away what is not.
Status check_paths(const nlohmann::json& facility, const FacilityFlags& flags);

}  // namespace atl::cli
