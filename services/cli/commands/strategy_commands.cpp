#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "services/cli/commands/commands.h"
#include "services/cli/output.h"
#include "services/cli/rest.h"
#include "services/cli/usage.h"
#include "shared/base/text.h"

namespace atl::cli {
namespace {

using nlohmann::json;

constexpr const char* kStrategyHelp =
    R"(A job names one under `strategy`, with its settings. Example:
  atoll strategy list)";

// The array's strings.
std::vector<std::string> words_of(const json& array) {
    std::vector<std::string> words;
    for (const json& one : array)
        if (one.is_string()) words.push_back(one);
    return words;
}

// "1 to 1000000000", "uniform or tokens"; empty for an object.
std::string range_of(const json& schema) {
    if (schema.contains("minimum"))
        return human_number(schema.at("minimum")) + " to " + human_number(schema.at("maximum"));
    return join(words_of(schema.value("enum", json::array())), " or ");
}

std::string default_of(const json& schema) {
    const json usual = schema.value("default", json());
    return usual.is_number() ? human_number(usual) : usual.is_string() ? usual.get<std::string>() : "-";
}

void add_settings(Table& table, const std::string& prefix, const json& settings) {
    for (const auto& [key, schema] : settings.items()) {
        table.add({prefix + key, default_of(schema), range_of(schema), text(schema, "description")});
        add_settings(table, prefix + key + ".", schema.value("properties", json::object()));
    }
}

Status run_list_strategies(const Context& context) {
    ATOLL_TRY(http::Client client, context.client("aggregation"));
    ATOLL_TRY(const json answer, client.get_json("/v1/strategies"));
    if (context.json) return print_json(answer.at("items"));
    const char* between = "";
    for (const json& strategy : answer.at("items")) {
        std::cout << between << text(strategy, "name")
                  << (strategy.at("is_default").get<bool>() ? " (the default)" : "") << ": for "
                  << join(words_of(strategy.at("takes")), " and ") << "\n";
        print_line(text(strategy, "summary") + " " + text(strategy, "source"));
        if (!text(strategy, "keeps").empty()) print_line("The coordinator keeps: " + text(strategy, "keeps"));
        Table table({"setting", "default", "range", note("what it does")});
        add_settings(table, "", strategy.at("settings"));
        print(table);
        between = "\n";
    }
    return {};
}

}  // namespace

void add_strategy_commands(CLI::App& program, Context& context) {
    auto* strategy = program.add_subcommand("strategy", "how updates become the next model")->footer(kStrategyHelp);
    strategy->require_subcommand(1);
    auto* list = strategy->add_subcommand("list", "the strategies a job can use, and their settings");
    set_example(*list, "atoll strategy list");
    on_run(*list, context, [&context] { return run_list_strategies(context); });
}

}  // namespace atl::cli
