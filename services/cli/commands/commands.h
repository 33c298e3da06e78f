#pragma once

#include <nlohmann/json_fwd.hpp>

#include "services/cli/context.h"

// One function a group of commands: adds them to the program. Each lives in the file of its name.
namespace atl::cli {

void add_stack_commands(CLI::App& program, Context& context);     // up down status credentials
void add_gateway_command(CLI::App& program, Context& context);    // gateway
void add_facility_commands(CLI::App& program, Context& context);  // facility add|set|list|show|check|remove|trust
void add_put_image_command(CLI::App& group, Context& context);    // facility put-image
void add_dataset_commands(CLI::App& program, Context& context);   // dataset register|prepare|adopt|…
void add_job_commands(CLI::App& program, Context& context);       // job init|submit|list|show|watch|…
void add_round_commands(CLI::App& program, Context& context);     // round show
void add_model_commands(CLI::App& program, Context& context);     // model import|push|pull|list|show|tag|verify
void add_site_commands(CLI::App& program, Context& context);      // stage, push
void add_doctor_command(CLI::App& program, Context& context);     // doctor
void add_event_commands(CLI::App& program, Context& context);     // events list|replay
void add_strategy_commands(CLI::App& program, Context& context);  // strategy list
void add_token_commands(CLI::App& program, Context& context);     // token issue|list|show|revoke
void add_aggregate_command(CLI::App& program, Context& context);  // aggregate

// What the registry has at a facility: versions of datasets, each with its "dataset", in their order.
Result<nlohmann::json> versions_at(const Context& context, const std::string& facility);
// "12 of 100 documents have no end token", where that is so of a version.
std::string lack_of_ends(const nlohmann::json& version);
// What to do about it.
inline constexpr const char* kMendEnds =
    "name an \"eos_token\" in tokenizer_config.json of the model that tokenised it, import that, and prepare again";

// The events that services refused, each with its "service".
Result<nlohmann::json> dead_letters(const Context& context);

}  // namespace atl::cli
