#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "services/cli/commands/commands.h"
#include "services/cli/output.h"
#include "services/cli/rest.h"
#include "services/cli/usage.h"

namespace atl::cli {
namespace {

constexpr const char* kEventsHelp =
    R"(An event that a service refuses becomes a dead letter, with the reason, and the service goes on.
Replay it when the reason is mended. Examples:
  atoll events list
  atoll events replay 0198f3c2-…
  atoll events replay --all)";

Status run_list_events(const Context& context) {
    ATOLL_TRY(const nlohmann::json events, dead_letters(context));
    if (context.json) return print_json(events);
    Table table({"service", "id", "since", note("why")});
    for (const auto& event : events)
        table.add({text(event, "service"), text(event, "id"), text(event, "failed_at"), text(event, "error")});
    if (events.empty())
        std::cout << "there are no dead letters\n";
    else
        print(table);
    return {};
}

Status replay_event(const Context& context, const nlohmann::json& event) {
    ATOLL_TRY(http::Client client, context.client(text(event, "service")));
    const std::string id = text(event, "id");
    ATOLL_RETURN_IF_ERROR(client.post_json("/v1/dead-letters/" + segment(id) + "/replay", nlohmann::json::object()));
    if (!context.json) std::cerr << "  replayed " << id << "\n";
    return {};
}

// Tries all that were asked for; the first error is the command's.
Status run_replay(const Context& context, const std::vector<std::string>& ids, bool all) {
    if (ids.empty() == !all) return invalid_argument("ID", "give the ids of dead letters, or --all");
    ATOLL_TRY(const nlohmann::json events, dead_letters(context));
    Status result;
    std::size_t found = 0;
    nlohmann::json replayed = nlohmann::json::array();
    for (const auto& event : events) {
        if (!all && std::find(ids.begin(), ids.end(), text(event, "id")) == ids.end()) continue;
        ++found;
        const Status status = replay_event(context, event);
        if (status.ok()) replayed.push_back(text(event, "id"));
        if (result.ok()) result = status;
    }
    if (context.json) ATOLL_RETURN_IF_ERROR(print_json({{"replayed", replayed}}));
    if (all && !context.json) std::cout << "replayed " << replayed.size() << " of " << found << " dead letters\n";
    if (found < ids.size())
        return not_found(
            std::string(ids.size() == 1 ? "this event is no dead letter" : "not all of these events are dead letters") +
                ": see `atoll events list`",
            "ID");
    return result;
}

}  // namespace

Result<nlohmann::json> dead_letters(const Context& context) {
    nlohmann::json all = nlohmann::json::array();
    for (const char* service : {"dispatch", "aggregation"}) {  // those that consume events
        ATOLL_TRY(http::Client client, context.client(service));
        ATOLL_TRY(const nlohmann::json page, client.get_json("/v1/dead-letters"));
        for (nlohmann::json event : page.at("items")) {
            event["service"] = service;
            all.push_back(std::move(event));
        }
    }
    return all;
}

void add_event_commands(CLI::App& program, Context& context) {
    auto* events = program.add_subcommand("events", "events that a service refused")->footer(kEventsHelp);
    events->require_subcommand(1);
    auto* list = events->add_subcommand("list", "the dead letters, and why");
    set_example(*list, "atoll events list");
    on_run(*list, context, [&context] { return run_list_events(context); });
    auto* replay = events->add_subcommand("replay", "handle dead letters again");
    const auto ids = std::make_shared<std::vector<std::string>>();
    const auto all = std::make_shared<bool>(false);
    replay->add_option("ID", *ids, "of dead letters");
    replay->add_flag("--all", *all, "every dead letter");
    set_example(*replay, "atoll events replay --all");
    on_run(*replay, context, [&context, ids, all] { return run_replay(context, *ids, *all); });
}

}  // namespace atl::cli
