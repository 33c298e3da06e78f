#include "tests/contract/running_stack.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <thread>
#include <utility>

#include "shared/base/subprocess.h"
#include "shared/http/testing/test_server.h"
#include "shared/pg/pg.h"
#include "shared/service/revocations.h"

namespace atl::contract {
namespace {

using http::Method;
using json::Json;

const std::string kNoDigest(64, '0');

constexpr std::pair<const char*, Method> kMethods[] = {{"get", Method::kGet},     {"head", Method::kHead},
                                                       {"post", Method::kPost},   {"put", Method::kPut},
                                                       {"patch", Method::kPatch}, {"delete", Method::kDelete}};

Status run_atoll(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), ATOLL_PROGRAM);
    CommandOptions options;
    options.timeout = std::chrono::minutes(5);
    ATOLL_TRY(const CommandResult done, run_command(arguments, options));
    if (done.exit_code != 0) return internal_error("atoll " + arguments[1] + ": " + done.err);
    return {};
}

http::ClientResponse call_at(const std::string& url, Method method, const std::string& path, const std::string& token,
                             const std::string& body) {
    http::ClientOptions options;
    options.base_url = url;
    options.token = token;
    options.attempts_max = 1;
    http::CallOptions call;
    call.headers.emplace_back("Content-Type", "application/json");
    auto answer = http::Client(options).call(method, path, body, call);
    check(answer.ok(), answer.ok() ? "" : url + path + ": " + answer.error().message);
    return std::move(answer).value();
}

std::vector<std::string> strict_parameters_of(const Json& document, const Json& operation) {
    std::vector<std::string> names;
    for (const Json& entry : operation.value("parameters", Json::array())) {
        const Json& parameter = entry.contains("$ref")
                                    ? document.at(Json::json_pointer(entry.at("$ref").get<std::string>().substr(1)))
                                    : entry;
        const Json& schema = parameter.at("schema");
        const bool is_strict = schema.contains("enum") || schema.at("type") == "integer";
        if (parameter.at("in") == "query" && is_strict) names.push_back(parameter.at("name"));
    }
    return names;
}

// Ends the stack before the program does.
class SharedStack : public testing::Environment {
  public:
    RunningStack& get() {
        if (!stack_) {
            stack_ = std::make_unique<RunningStack>();
            const Status started = stack_->start();
            check(started.ok(), started.ok() ? "" : describe(started.error()));
        }
        return *stack_;
    }
    void TearDown() override { stack_.reset(); }

  private:
    std::unique_ptr<RunningStack> stack_;
};

SharedStack* const shared = [] {
    auto stack = std::make_unique<SharedStack>();
    testing::AddGlobalTestEnvironment(stack.get());  // owns it
    return stack.release();
}();

}  // namespace

bool eventually(const std::function<bool()>& condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    while (!condition()) {
        if (std::chrono::steady_clock::now() > deadline) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return true;
}

std::string Operation::name() const {
    return std::string(to_string(method)) + " " + path;
}

std::string Operation::path_of_none() const {
    return path_with({});
}

std::string Operation::path_with(const std::map<std::string, std::string>& parameters) const {
    std::string made;
    for (std::size_t at = 0; at < path.size();) {
        if (path[at] != '{') {
            made += path[at++];
            continue;
        }
        const auto end = path.find('}', at);
        const std::string parameter = path.substr(at + 1, end - at - 1);
        const auto given = parameters.find(parameter);
        const bool is_digest = parameter == "sha256" || parameter == "digest" || parameter == "reference";
        if (given != parameters.end())
            made += given->second;
        else
            made += is_digest ? kNoDigest : parameter == "version" || parameter == "round" ? "7" : "none";
        at = end + 1;
    }
    return made;
}

Status RunningStack::start(bool is_supervised) {
    is_up_ = true;
    if (::geteuid() == 0) std::filesystem::permissions(directory_.path(), std::filesystem::perms(0711));
    ATOLL_RETURN_IF_ERROR(
        run_atoll({"up", "--state", state(), "--port-base", "0", is_supervised ? "--supervise" : "--no-supervise"}));
    ATOLL_TRY(const std::string text, read_file(state() / "stack.json"));
    ATOLL_TRY(description_, json::parse(text));
    return {};
}

Status RunningStack::run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--state", state()});
    return run_atoll(std::move(arguments));
}

RunningStack::~RunningStack() {
    if (!is_up_) return;
    const Status ended = run_atoll({"down", "--state", state()});
    if (!ended.ok()) std::fprintf(stderr, "%s\n", ended.error().message.c_str());
}

http::ClientResponse RunningStack::call(const std::string& service, Method method, const std::string& path,
                                        const std::string& token, const std::string& body) const {
    const std::string prefix = service.empty() ? "" : "/" + service;
    return call_at(description_.at("gateway").get<std::string>() + prefix, method, path, token, body);
}

http::ClientResponse RunningStack::call_directly(const std::string& service, Method method,
                                                 const std::string& path) const {
    return call_at(address(service), method, path, "", "");
}

std::string RunningStack::address(const std::string& service) const {
    return service == "gateway" ? description_.at("gateway_socket") : description_.at("services").at(service);
}

std::string RunningStack::send_raw(const std::string& bytes) const {
    return http::exchange_raw(port(), bytes);
}

std::vector<Operation> RunningStack::operations(const std::string& service) const {
    const Json document = call(service, Method::kGet, "/openapi.json", "").json().value();
    std::vector<Operation> operations;
    for (const auto& [path, item] : document.at("paths").items())
        for (const auto& [key, method] : kMethods)
            if (item.contains(key))
                operations.push_back({method, path, item.at(key).value("security", Json()) == Json::array(),
                                      strict_parameters_of(document, item.at(key))});
    return operations;
}

std::string RunningStack::sign(auth::Principal principal, std::chrono::seconds life) const {
    const auto pem = read_file(description_.at("private_key").get<std::string>());
    check(pem.ok(), pem.ok() ? "" : pem.error().message);
    return auth::Issuer::from_pem(*pem).value().issue(std::move(principal), life).value();
}

std::string RunningStack::token(auth::Role role, std::chrono::seconds life) const {
    auth::Principal principal;
    principal.subject = "contract";
    principal.role = role;
    if (role == auth::Role::kFacility)
        principal.scope = auth::TaskScope{"none", "none", "none", "1", {kNoDigest}, "none"};
    return sign(std::move(principal), life);
}

std::string RunningStack::token(const std::string& subject, auth::Role role) const {
    auth::Principal principal;
    principal.subject = subject;
    principal.role = role;
    return sign(std::move(principal), std::chrono::hours(1));
}

std::string RunningStack::token(const auth::TaskScope& scope) const {
    auth::Principal principal;
    principal.subject = scope.facility;
    principal.role = auth::Role::kFacility;
    principal.scope = scope;
    return sign(std::move(principal), std::chrono::hours(1));
}

Status RunningStack::revoke(const auth::TaskScope& scope) const {
    ATOLL_TRY(auto connection, pg::connect(postgres()));
    ATOLL_TRY(auto transaction, pg::Transaction::begin(connection));
    ATOLL_RETURN_IF_ERROR(
        service::revoke_token(transaction, auth::attempt_token_id(scope.task, scope.attempt), std::chrono::hours(2)));
    return transaction.commit();
}

RunningStack& shared_stack() {
    return shared->get();
}

}  // namespace atl::contract
