#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <ctime>
#include <future>
#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include "services/cli/commands/commands.h"
#include "services/cli/doctor/diagnosis.h"
#include "services/cli/output.h"
#include "services/cli/rest.h"
#include "services/stack/stack.h"

namespace atl::cli {
namespace {

using nlohmann::json;

constexpr const char* kDoctorHelp =
    R"(Asks the four services once: disk, Kafka and events, tokens and certificates, clocks, versions, facilities, and what
ended jobs have left there; of a stack on this machine, what does not run. A viewer's token is enough. The alerts of
Prometheus tell the same, and for how long it has been so: docs/operate/alerts. The exit status is 1 where something is
critical. Example:
  atoll doctor)";

std::int64_t now_unix_s() {
    return std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
}

// "Sun, 01 Mar 2026 12:00:00 GMT", of which a second may have passed.
std::optional<double> clock_off_s(const http::ClientResponse& answer) {
    const auto date = answer.headers.find("date");
    std::tm parts{};
    if (date == answer.headers.end() || ::strptime(date->second.c_str(), "%a, %d %b %Y %H:%M:%S", &parts) == nullptr)
        return std::nullopt;
    return static_cast<double>(::timegm(&parts) - now_unix_s());
}

// What a service says of itself. Why one is away is told by its /readyz, for which the gateway waits for nothing; one
// that is not ready may answer all the same.
Result<http::ClientResponse> ask(Result<http::Client> client) {
    if (!client.ok()) return client.error();
    ATOLL_TRY(const auto ready, client->call(http::Method::kGet, "/readyz"));
    auto answer = client->call(http::Method::kGet, "/v1/metrics");
    if (!ready.ok() && !(answer.ok() && answer->ok())) return ready.check().error();
    if (answer.ok()) ATOLL_RETURN_IF_ERROR(answer->check());
    return answer;
}

ServiceSeen look_at(const std::string& name, Result<http::Client> client) {
    ServiceSeen seen{name, {}, {}, {}};
    const auto asked = ask(std::move(client));
    if (!asked.ok()) {
        seen.error = asked.error().message;
        return seen;
    }
    seen.samples = read_samples(asked->body);
    seen.clock_off_s = clock_off_s(*asked);
    return seen;
}

// Nothing where the stack is of another machine, or of another user, also for root: to look at a component may start a
// program that its owner has named.
std::vector<std::pair<std::string, std::string>> own_components(const Context& context) {
    std::vector<std::pair<std::string, std::string>> components;
    const auto url = context.gateway_url();
    struct stat owner{};
    if (!url.ok() || !url->starts_with(http::kUnixPrefix)) return components;
    if (::stat(context.state_directory.c_str(), &owner) != 0 || owner.st_uid != ::geteuid()) return components;
    const auto own = stack::status(context.state_directory);
    if (!own.ok()) return components;
    for (const auto& one : *own) components.emplace_back(one.name, one.state);
    return components;
}

StackSeen look(const Context& context) {
    StackSeen seen;
    seen.version = ATOLL_VERSION;
    seen.components = own_components(context);
    std::vector<std::future<ServiceSeen>> looks;  // all at once: one that is away takes its time
    for (const char* name : {"registry", "store", "dispatch", "aggregation"})
        looks.push_back(std::async(std::launch::async, look_at, name, context.impatient_client(name)));
    for (auto& one : looks) seen.services.push_back(one.get());
    seen.now_unix_s = now_unix_s();
    auto dispatch = context.client("dispatch");
    if (!dispatch.ok() || !seen.services.at(2).error.empty()) return seen;
    if (const auto token = dispatch->get_json("/v1/token"); token.ok())
        seen.token_end_unix_s = token->value("expires_unix_s", std::int64_t{0});
    const auto facilities = get_all(*dispatch, "/v1/facilities");
    if (!facilities.ok()) return seen;
    for (const json& one : *facilities) {
        if (one.contains("waiting") && one.at("waiting").is_object())
            seen.facilities.emplace_back(text(one, "name"), text(one, "waiting", "reason"));
        else if (const json waits = one.value("task_waits", json()); waits.is_object())
            seen.task_waits.emplace_back(text(one, "name"), wait_text(waits));
    }
    return seen;
}

json to_json(const Problem& problem) {
    return {{"severity", to_string(problem.severity)},
            {"alert", problem.alert.empty() ? json() : json(problem.alert)},
            {"about", problem.about},
            {"what", problem.what},
            {"remedy", problem.remedy}};
}

Status run_doctor(const Context& context) {
    ATOLL_RETURN_IF_ERROR(context.token());
    const StackSeen seen = look(context);
    const std::vector<Problem> problems = diagnose(seen);
    json list = json::array();
    Table table({"severity", "about", note("what is wrong"), note("what to do")});
    std::size_t critical = 0;
    for (const Problem& one : problems) {
        critical += one.severity == Severity::kCritical ? 1 : 0;
        list.push_back(to_json(one));
        table.add({to_string(one.severity), one.about, one.what, one.remedy});
    }
    if (context.json)
        ATOLL_RETURN_IF_ERROR(print_json({{"problems", std::move(list)}}));
    else if (problems.empty())
        std::cout << (seen.components.empty() ? "the services report nothing wrong\n"
                                              : "nothing is wrong with this stack\n");
    else
        print(table);
    if (critical == 0) return {};
    return unavailable(std::to_string(critical) + (critical == 1 ? " problem is" : " problems are") +
                       " critical: docs/operate/alerts has a page for each alert");
}

}  // namespace

void add_doctor_command(CLI::App& program, Context& context) {
    auto* doctor =
        program.add_subcommand("doctor", "what is wrong with the stack, and what to do")->footer(kDoctorHelp);
    on_run(*doctor, context, [&context] { return run_doctor(context); });
}

}  // namespace atl::cli
