// What the services' OpenAPI documents promise, asked of running processes through the gateway.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include "shared/auth/subjects.h"
#include "shared/base/file.h"
#include "shared/base/subprocess.h"
#include "shared/base/text.h"
#include "shared/config/config.h"
#include "shared/digest/digest.h"
#include "shared/service/testing/response_check.h"
#include "tests/contract/running_stack.h"

namespace atl::contract {
namespace {

using auth::Role;
using http::ClientResponse;
using http::Method;
using json::Json;

constexpr Method kAllMethods[] = {Method::kGet, Method::kPost, Method::kPut, Method::kPatch, Method::kDelete};

// A HEAD's answer has no body; every other problem says what it is.
void expect_problem(const ClientResponse& answer, int status, const std::string& what, bool has_body = true) {
    EXPECT_EQ(answer.status, status) << what << ": " << answer.body;
    if (!has_body) return;
    const auto type = answer.headers.find("content-type");
    EXPECT_TRUE(type != answer.headers.end() && type->second == "application/problem+json") << what;
    const Json body = Json::parse(answer.body, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(body.is_object()) << what << ": " << answer.body;
    EXPECT_EQ(body.value("status", 0), answer.status) << what;
    EXPECT_EQ(body.value("type", "").rfind("urn:atoll:problem:", 0), 0U) << what << ": " << answer.body;
    for (const char* member : {"title", "detail", "request_id"})
        EXPECT_FALSE(body.value(member, "").empty()) << what << " has no " << member << ": " << answer.body;
}

// What a problem says; empty where the answer is none.
std::string detail_of(const ClientResponse& answer) {
    const Json body = Json::parse(answer.body, nullptr, /*allow_exceptions=*/false);
    return body.is_object() ? body.value("detail", "") : "";
}

class ContractTest : public testing::TestWithParam<const char*> {
  protected:
    static void SetUpTestSuite() { stack_ = &shared_stack(); }

    std::string service() const { return GetParam(); }
    std::string what(const Operation& operation, const char* with) const {
        return service() + ": " + operation.name() + " " + with;
    }
    // The answer, which must be as the service's document says.
    ClientResponse ask(const Operation& operation, const std::string& token) {
        const std::string path = operation.path_of_none();
        auto answer = stack_->call(service(), operation.method, path, token, body_of(operation.method));
        for (const std::string& fault : answers_.faults(operation.method, path, answer))
            ADD_FAILURE() << service() << ": " << fault;
        return answer;
    }
    static std::string body_of(Method method) {
        return method == Method::kPost || method == Method::kPut || method == Method::kPatch ? "{}" : "";
    }

    static RunningStack* stack_;
    service::ResponseCheck answers_{stack_->call(service(), Method::kGet, "/openapi.json", "").body};
};

RunningStack* ContractTest::stack_ = nullptr;

TEST_P(ContractTest, NobodyGetsAnythingWithoutAValidToken) {
    const std::string expired = stack_->token(Role::kAdmin, std::chrono::seconds(-60));
    for (const Operation& operation : stack_->operations(service())) {
        if (operation.is_public) continue;
        const bool has_body = operation.method != Method::kHead;
        expect_problem(ask(operation, ""), 401, what(operation, "without a token"), has_body);
        expect_problem(ask(operation, "garbage"), 401, what(operation, "with garbage"), has_body);
        expect_problem(ask(operation, expired), 401, what(operation, "with an expired token"), has_body);
    }
}

TEST_P(ContractTest, WhatIsDescribedIsServedThroughTheGateway) {
    const std::string admin = stack_->token(Role::kAdmin);
    const std::string of_gateway = detail_of(stack_->call("", Method::kGet, "/nothing", admin));
    ASSERT_FALSE(of_gateway.empty());
    std::set<std::string> paths;
    for (const Operation& operation : stack_->operations(service())) {
        paths.insert(operation.path);
        const ClientResponse answer = ask(operation, admin);
        EXPECT_NE(answer.status, 405) << what(operation, "");
        EXPECT_NE(detail_of(answer), of_gateway) << what(operation, "does not pass the gateway");
        EXPECT_LT(answer.status, 500) << what(operation, answer.body.c_str());
        EXPECT_EQ(answer.body.find("there is nothing at this path"), std::string::npos) << what(operation, "");
        EXPECT_TRUE(answer.status == 200 || !operation.is_public) << what(operation, "");
        if (answer.status >= 400)
            expect_problem(answer, answer.status, what(operation, "as admin"), operation.method != Method::kHead);
    }
    EXPECT_GE(paths.size(), 7U);
}

TEST_P(ContractTest, MetricsWithoutATokenAreServedInsideTheCoordinatorAlone) {
    for (const auto& inside : {stack_->call_directly(service(), Method::kGet, "/metrics"),
                               stack_->call(service(), Method::kGet, "/v1/metrics", stack_->token(Role::kViewer))}) {
        EXPECT_EQ(inside.status, 200);
        EXPECT_NE(inside.body.find("atoll_build_info{revision=\"\",version=\""), std::string::npos) << inside.body;
    }
    expect_problem(stack_->call(service(), Method::kGet, "/metrics", stack_->token(Role::kAdmin)), 404, service());
}

// The rows of docs/reference/metrics.md that this service serves, as HELP and TYPE: tests/reference compares the page
// with the tables.
std::map<std::string, std::string> described_metrics(const std::string& service) {
    const auto page = read_file(std::filesystem::path(ATOLL_DOCS) / "reference/metrics.md");
    EXPECT_TRUE(page.ok());
    std::map<std::string, std::string> rows;
    std::istringstream lines(page.ok() ? *page : "");
    const std::regex row(R"(\| `(\w+)` \| (\w+) \| .* \| (.*)\. \|)");
    bool is_ours = false;
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("## "))
            is_ours = line == "## Every service" || line == "## " + service ||
                      (line.starts_with("## Services that") && line.find(service) != std::string::npos);
        std::smatch match;
        if (!is_ours || !std::regex_match(line, match, row)) continue;
        rows[match[1]] = "# HELP " + match[1].str() + " " + match[3].str() + "\n# TYPE " + match[1].str() + " " +
                         match[2].str() + "\n";
    }
    return rows;
}

TEST_P(ContractTest, EachDescribedMetricAndNoOtherIsServedWithItsHelpAndType) {
    const std::string text = stack_->call(service(), Method::kGet, "/v1/metrics", stack_->token(Role::kViewer)).body;
    const auto rows = described_metrics(service());
    EXPECT_GE(rows.size(), 20U);
    for (const auto& [name, head] : rows) EXPECT_NE(text.find(head), std::string::npos) << head;
    const std::regex help("# HELP (\\w+) ");
    for (std::sregex_iterator at(text.begin(), text.end(), help), end; at != end; ++at)
        EXPECT_TRUE(rows.contains((*at)[1])) << (*at)[1] << " is in no table";
    // No label holds an id of ours, 26 characters of Crockford's base 32.
    EXPECT_FALSE(std::regex_search(text, std::regex("=\"[^\"]*[0-9A-HJKMNP-TV-Z]{26}", std::regex::icase))) << text;
    CommandOptions lint;
    lint.input = text;
    const auto linted = run_command({"promtool", "check", "metrics"}, lint);
    if (!linted.ok() || linted->exit_code == 127) return;  // it is not installed
    EXPECT_EQ(linted->exit_code, 0) << linted->out << linted->err;
}

TEST_P(ContractTest, AWrongParameterIsRefusedByItsName) {
    const std::string admin = stack_->token(Role::kAdmin);
    for (const Operation& operation : stack_->operations(service()))
        for (const std::string& parameter : operation.strict_parameters) {
            const std::string path = operation.path_of_none() + "?" + parameter + "=wrong";
            const auto answer = stack_->call(service(), operation.method, path, admin);
            expect_problem(answer, 422, service() + ": " + path);
            EXPECT_NE(answer.body.find("\"field\":\"" + parameter + "\""), std::string::npos) << answer.body;
        }
}

TEST_P(ContractTest, AParameterThatIsNotDescribedIsRefusedByItsName) {
    const std::string admin = stack_->token(Role::kAdmin);
    for (const Operation& operation : stack_->operations(service())) {
        const std::string path = operation.path_of_none() + "?limits=5";
        const auto answer = stack_->call(service(), operation.method, path, admin);
        const bool has_body = operation.method != Method::kHead;
        expect_problem(answer, 422, service() + ": " + operation.name(), has_body);
        EXPECT_TRUE(!has_body || answer.body.find("\"field\":\"limits\"") != std::string::npos) << answer.body;
    }
}

TEST_P(ContractTest, AnAddressThatCannotBeReadGetsAProblem) {
    const std::string admin = stack_->token(Role::kAdmin);
    for (const char* path : {"/v1/token?a%00b=1", "/v1/token?%zz", "/v1/token?a=%ff", "/v1/tok%00en", "/v1/%zz",
                             "/v1/models/%ff", "/v1/jobs/%ff/events", "/v1/datasets/%c0%af"}) {
        const auto answer = stack_->call(service(), Method::kGet, path, admin);
        const bool is_no_path = std::string(path).find('?') == std::string::npos && answer.status == 404;
        expect_problem(answer, is_no_path ? 404 : 400, service() + " GET " + path);
    }
}

TEST_P(ContractTest, OtherUsersOfThisMachineReachNoSocket) {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
    for (const std::string& socket : {stack_->address(service()), stack_->address("gateway")}) {
        ASSERT_TRUE(socket.starts_with("unix:")) << socket;
        http::ClientOptions options;
        options.base_url = socket;
        options.attempts_max = 1;
        EXPECT_TRUE(http::Client(options).call(Method::kGet, "/metrics").ok());
        ASSERT_EQ(::seteuid(65534), 0);
        const auto refused = http::Client(options).call(Method::kGet, "/metrics");
        ASSERT_EQ(::seteuid(0), 0);
        EXPECT_FALSE(refused.ok());
    }
}

std::string sorted_list(const std::string& list) {
    std::set<std::string> items;
    for (const std::string& item : split_list(list)) items.emplace(trim(item));
    return join(items);
}

// "GET, HEAD" of a path that is described with GET.
std::string allow_of(const std::vector<Operation>& operations, const std::string& path) {
    std::set<std::string> methods;
    for (const Operation& operation : operations)
        if (operation.path == path) methods.insert(to_string(operation.method));
    if (methods.contains("GET")) methods.insert("HEAD");
    return join(methods);
}

TEST_P(ContractTest, WhatIsNotDescribedIsNotServed) {
    const auto operations = stack_->operations(service());
    const std::string admin = stack_->token(Role::kAdmin);
    for (const Operation& operation : operations) {
        for (const Method method : kAllMethods) {
            const bool described = std::any_of(operations.begin(), operations.end(), [&](const Operation& other) {
                return other.path == operation.path && other.method == method;
            });
            if (described) continue;
            auto answer = stack_->call(service(), method, operation.path_of_none(), admin, body_of(method));
            expect_problem(answer, 405, service() + ": " + to_string(method) + " " + operation.path);
            EXPECT_EQ(sorted_list(answer.headers["allow"]), allow_of(operations, operation.path));
        }
    }
    for (const char* path : {"/", "/v1", "/v1/", "/v2/jobs", "/v1/nothing", "/v1/jobs/none/nothing", "/docs", "/admin",
                             "/swagger", "/v1/users", "/.git/config", "/v1/datasets/"})
        expect_problem(stack_->call(service(), Method::kGet, path, admin), 404, service() + " GET " + path);
}

TEST_P(ContractTest, MethodsThatNoPathTakesAreRefusedWithThoseThatItTakes) {
    const auto operations = stack_->operations(service());
    for (const Operation& operation : operations)
        for (const std::string method : {"OPTIONS", "TRACE", "PROPFIND", "SHUTDOWN"}) {
            const std::string what = service() + ": " + method + " " + operation.path;
            const std::string answer = stack_->send_raw(method + " /" + service() + operation.path_of_none() +
                                                        " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            EXPECT_TRUE(answer.starts_with("HTTP/1.1 405 ")) << what << "\n" << answer;
            EXPECT_NE(answer.find("\r\nAllow: "), std::string::npos) << what << "\n" << answer;
            EXPECT_NE(answer.find("urn:atoll:problem:method-not-allowed"), std::string::npos) << what << "\n" << answer;
        }
}

TEST_P(ContractTest, TheGatewayServesNothingElse) {
    for (const std::string& path :
         {std::string("/v1/jobs"), std::string("/internal/blobs/aa"), "/" + service() + "x/v1"})
        expect_problem(stack_->call("", Method::kGet, path, ""), 404, "gateway GET " + path);
}

// One tensor of four bytes.
std::string model_file(const std::string& data) {
    const std::string header = R"({"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
    return std::string(1, static_cast<char>(header.size())) + std::string(7, '\0') + header + data;
}

Json manifest_of(const std::string& file) {
    const Json chunk = {{"sha256", digest::sha256(file)}, {"size", file.size()}};
    return {{"schema", 1},
            {"files", {{{"path", "model.safetensors"}, {"size", file.size()}, {"chunks", Json::array({chunk})}}}}};
}

// The five routes of the store that take a facility's token.
struct StoreCalls {
    const RunningStack& stack;

    http::ClientResponse get(const std::string& token, const std::string& path) const {
        return stack.call("store", Method::kGet, path, token);
    }
    http::ClientResponse get_version(const std::string& token, const std::string& digest) const {
        return get(token, "/v1/versions/" + digest);
    }
    http::ClientResponse get_blob(const std::string& token, const std::string& file) const {
        return get(token, "/v1/blobs/" + digest::sha256(file));
    }
    http::ClientResponse put_blob(const std::string& token, const std::string& file) const {
        return stack.call("store", Method::kPut, "/v1/blobs/" + digest::sha256(file), token, file);
    }
    http::ClientResponse post_missing(const std::string& token, const std::string& file) const {
        const Json asked = {{"digests", {digest::sha256(file)}}};
        return stack.call("store", Method::kPost, "/v1/blobs/missing", token, asked.dump());
    }
    http::ClientResponse post_version(const std::string& token, const std::string& model, const Json& version) const {
        return stack.call("store", Method::kPost, "/v1/models/" + model + "/versions", token, version.dump());
    }
    // The digest of a version of one file that an operator makes.
    std::string make(const std::string& model, const std::string& file, Json version) const {
        // Versions of kind global are aggregation's.
        const std::string writer = version.value("kind", "") == "global"
                                       ? stack.token(std::string(auth::kAggregation), Role::kOperator)
                                       : stack.token(Role::kOperator);
        EXPECT_EQ(put_blob(writer, file).status, 201);
        version["manifest"] = manifest_of(file);
        return post_version(writer, model, version).json().value().at("digest");
    }
};

// Each kind of token at each of these routes, with what belongs to the task "own".
TEST_P(ContractTest, AFacilitysTokenOpensWhatIsItsTasksAndNothingElse) {
    if (service() != "store") return;
    const StoreCalls store{*stack_};
    for (const char* model : {"bases", "results"}) {
        const auto made = stack_->call("store", Method::kPost, "/v1/models", stack_->token(Role::kOperator),
                                       Json{{"name", model}}.dump());
        ASSERT_EQ(made.status, 201) << made.body;
    }
    const std::string base_file = model_file("base"), update_file = model_file("mine");
    const std::string base = store.make("bases", base_file, {{"kind", "base"}});
    const std::string other_base = store.make("bases", model_file("else"), {{"kind", "base"}});
    const std::string global = store.make("results", model_file("mean"), {{"kind", "global"}, {"parents", {base}}});

    const auth::TaskScope own{"site", "job", "own", "1", {base}, "results", 1};
    const auth::TaskScope ended{"site", "job", "own", "2", {base}, "results", 1};
    const auth::TaskScope evaluates{"site", "job", "evaluates", "1", {global}, "", 1, true};
    const auth::TaskScope evaluates_global{"site", "job", "evaluates-one", "1", {global}, "", 1};
    const auth::TaskScope evaluates_next{"site", "job", "evaluates-next", "1", {global}, "", 2, true};
    const auth::TaskScope evaluates_elsewhere{"site", "job2", "evaluates-else", "1", {global}, "", 1, true};
    const auth::TaskScope other_task{"site", "job2", "other", "1", {other_base}, "others", 1};
    const auth::TaskScope other_facility{"neighbour", "job", "neighbours", "1", {base}, "results", 1};
    const Json update = {{"manifest", manifest_of(update_file)}, {"kind", "update"}};
    ASSERT_EQ(store.put_blob(stack_->token(own), update_file).status, 201);
    const std::string made = store.post_version(stack_->token(own), "results", update).json().value().at("digest");
    ASSERT_TRUE(stack_->revoke(ended).ok());
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (store.get_version(stack_->token(ended), base).status != 401 && std::chrono::steady_clock::now() < deadline)
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    struct Row {
        const char* who;
        std::string token;
        std::vector<int> expected;
    };
    // GET version: the base, the update, the global model; GET blob: of the base, of the update, one that is not there;
    // PUT blob; POST missing; POST version: the update again.
    const std::vector<Row> rows = {
        {"own", stack_->token(own), {200, 403, 403, 200, 403, 403, 201, 200, 200}},
        {"ended", stack_->token(ended), {401, 401, 401, 401, 401, 401, 401, 401, 401}},
        {"evaluates all", stack_->token(evaluates), {403, 200, 200, 403, 200, 403, 403, 403, 403}},
        {"evaluates the global model", stack_->token(evaluates_global), {403, 403, 200, 403, 403, 403, 403, 403, 403}},
        {"evaluates another round", stack_->token(evaluates_next), {403, 403, 200, 403, 403, 403, 403, 403, 403}},
        {"evaluates another job", stack_->token(evaluates_elsewhere), {403, 403, 200, 403, 403, 403, 403, 403, 403}},
        {"other task", stack_->token(other_task), {403, 403, 403, 403, 403, 403, 201, 200, 403}},
        {"other facility", stack_->token(other_facility), {200, 403, 403, 200, 403, 403, 201, 200, 403}},
        {"viewer", stack_->token("somebody", Role::kViewer), {200, 403, 200, 200, 403, 404, 403, 403, 403}},
        {"nobody", "", {401, 401, 401, 401, 401, 401, 401, 401, 401}}};
    for (const Row& row : rows) {
        std::vector<int> seen;
        for (const std::string& version : {base, made, global})
            seen.push_back(store.get_version(row.token, version).status);
        for (const std::string& file : {base_file, update_file, std::string("nothing")})
            seen.push_back(store.get_blob(row.token, file).status);
        seen.push_back(store.put_blob(row.token, std::string("bytes of ") + row.who).status);
        const auto missing = store.post_missing(row.token, update_file);
        seen.push_back(missing.status);
        if (missing.status == 200) {  // to another than its own it is not told that it is there
            EXPECT_EQ(missing.json()->at("missing").size(), row.who == std::string("own") ? 0U : 1U) << row.who;
        }
        seen.push_back(store.post_version(row.token, "results", update).status);
        EXPECT_EQ(seen, row.expected) << row.who;
    }
}

// The file that `atoll job init` writes, as it is and with all that its comments offer.
TEST_P(ContractTest, EachMemberOfTheJobFileToStartFromIsTaken) {
    if (service() != "dispatch") return;
    const auto written = run_command({ATOLL_PROGRAM, "job", "init"});
    ASSERT_TRUE(written.ok());
    const std::string offered = std::regex_replace(written->out, std::regex("\n( *)# (\\w+: )"), "\n$1$2");
    ASSERT_NE(offered, written->out);
    for (const std::string& text : {written->out, offered}) {
        const auto job = config::parse(text, "job.yaml");
        ASSERT_TRUE(job.ok()) << job.error().message;
        const auto answer =
            stack_->call("dispatch", Method::kPost, "/v1/jobs", stack_->token(Role::kOperator), job->dump());
        expect_problem(answer, 422, "the job");
        EXPECT_NE(answer.body.find("participants[0].facility"), std::string::npos)
            << "only who takes part is wrong: " << answer.body;
    }
}

TEST_P(ContractTest, TheSigningKeyIsReplacedWhileTheServicesRun) {
    if (service() != "dispatch") return;  // one of the four, for all
    const std::string old = stack_->token(Role::kAdmin);
    const auto status_of = [](const std::string& asked, const std::string& token) {
        return stack_->call(asked, Method::kGet, "/v1/token", token).status;
    };
    const std::vector<std::string> all = {"registry", "store", "dispatch", "aggregation"};
    const Status rotated = stack_->run({"token", "rotate-key"});
    ASSERT_TRUE(rotated.ok()) << rotated.error().message;
    const std::string now = stack_->token(Role::kAdmin);
    for (const std::string& asked : all) {
        EXPECT_EQ(status_of(asked, old), 200) << asked;
        EXPECT_EQ(status_of(asked, now), 200) << asked;
    }
    const Status dropped = stack_->run({"token", "rotate-key", "--drop-old"});
    ASSERT_TRUE(dropped.ok()) << dropped.error().message;
    for (const std::string& asked : all) {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        while (status_of(asked, old) != 401 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
        EXPECT_EQ(status_of(asked, old), 401) << asked;
        EXPECT_EQ(status_of(asked, now), 200) << asked;
    }
    const auto issued =
        stack_->call("dispatch", Method::kPost, "/v1/tokens", now, R"({"subject":"ada","role":"viewer"})");
    ASSERT_EQ(issued.status, 201) << issued.body;
    EXPECT_EQ(status_of("store", issued.json()->at("token")), 200) << "dispatch signs with the new key";
}

INSTANTIATE_TEST_SUITE_P(Each, ContractTest, testing::Values("registry", "store", "dispatch", "aggregation"),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace atl::contract
