#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "services/cli/context.h"
#include "services/cli/output.h"
#include "shared/base/result.h"
#include "shared/http/client/client.h"

// What the commands that talk to the services have in common.
namespace atl::cli {

// Every page of a list as one array; `path` may have a query.
Result<nlohmann::json> get_all(http::Client& client, const std::string& path);

// What to tell of a call that failed for something asked for by name: where it is not there, with the nearest name of
// the list; any other error as it is. `what` is "facility", "dataset", …
Error with_near_name(http::Client& client, const std::string& list, const std::string& what, const std::string& name,
                     const Error& error);

// The item of that name in a list: GET <list>/<name>.
Result<nlohmann::json> get_named(http::Client& client, const std::string& list, const std::string& what,
                                 const std::string& name);

// As JSON that does nothing to a terminal; `indent` below 0: on one line.
std::string json_text(const nlohmann::json& value, int indent = -1);
// Prints it indented on standard output.
Status print_json(const nlohmann::json& value);

// Prints the items of a list: with --json as they are, else as a table with a row for each.
Status print_items(const Context& context, const nlohmann::json& items, const std::vector<Column>& header,
                   const std::function<std::vector<std::string>(const nlohmann::json& item)>& row);

// Prints an object's members a line each, "key: value", those of `first` before the others; empty ones are left out.
Status print_members(const nlohmann::json& object, const std::vector<std::string>& first);
// The object as YAML: these of its members in this order, then the others.
std::string yaml_text(nlohmann::json object, const std::vector<std::string>& first);

// A member (or a member's member) as people read it: strings bare, numbers and booleans as they are, "" if absent.
std::string text(const nlohmann::json& object, const std::string& key);
std::string text(const nlohmann::json& object, const std::string& key, const std::string& inner);

// A number among the members, `times` so much, with its unit: "12.5 %"; "" if absent.
std::string figure_text(const nlohmann::json& object, const std::string& key, double times, const char* unit);

// Which round of how many a job's or an event's "round", "index" and "rounds" say: "3 of 12"; once the job has gone
// back to an earlier model "14 (as 5 of 12)".
std::string round_text(const nlohmann::json& job);

// What somebody waits for, {reason, since, next_try} or null: "waits since …: REASON; next try at …", or "".
std::string waiting_text(const nlohmann::json& waiting);

// One of a job's `waits`, or a facility's `task_waits`: the reason, since when, and how many others there are.
std::string wait_text(const nlohmann::json& wait);

// Becomes argv; returns only when that fails.
Status replace_process(const std::vector<std::string>& argv);

}  // namespace atl::cli
