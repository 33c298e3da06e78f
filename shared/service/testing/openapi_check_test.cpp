#include "shared/service/testing/openapi_check.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace atl::service {
namespace {

using json::Json;

Json operation(const char* id) {
    return {{"operationId", id},
            {"summary", "Does it."},
            {"responses", {{"200", {{"description", "ok"}}}, {"default", {{"description", "problem"}}}}}};
}

Json causes() {
    return {"service",        "site",     "job-ended", "elsewhere",    "unreadable",   "no-connection",
            "authentication", "host-key", "busy",      "logins-spent", "batch-system", "work-directory"};
}

Json document() {
    Json common = Json::object();
    for (const char* path : {"/healthz", "/readyz", "/openapi.json"}) {
        common[path]["get"] = operation(path);
        common[path]["get"]["security"] = Json::array();
    }
    for (const char* path : {"/v1/metrics", "/v1/token"}) common[path]["get"] = operation(path);
    common["/v1/things/{name}"] = {{"parameters", {{{"name", "name"}, {"in", "path"}, {"required", true}}}},
                                   {"get", operation("getThing")}};
    return {{"openapi", "3.1.0"},
            {"info", {{"title", "Things"}, {"version", "1"}}},
            {"security", {{{"bearer", Json::array()}}}},
            {"paths", common},
            {"components", {{"schemas", {{"Problem", {{"properties", {{"cause", {{"enum", causes()}}}}}}}}}}}};
}

std::vector<std::string> faults_of(const Json& value) {
    metrics::Registry metrics;
    http::Server server({}, auth::Verifier::from_pem(auth::generate_keys().value().public_pem).value(), metrics);
    server.route(http::Method::kGet, "/v1/things/:name", http::Access{},
                 [](const http::Request&) { return http::Response::empty(); });
    return openapi_faults(value.dump(), server);
}

TEST(OpenapiCheckTest, ADocumentThatFitsHasNoFaults) {
    EXPECT_EQ(faults_of(document()), std::vector<std::string>());
}

TEST(OpenapiCheckTest, AProblemNamesEveryCause) {
    for (const bool is_more : {true, false}) {
        Json changed = document();
        Json& named = changed["components"]["schemas"]["Problem"]["properties"]["cause"]["enum"];
        if (is_more)
            named.push_back("gremlins");
        else
            named.erase(0);
        EXPECT_EQ(faults_of(changed).size(), 1U) << is_more;
    }
}

TEST(OpenapiCheckTest, NothingIsSaidInOneWay) {
    const auto with = [](const char* where, const Json& schema) {
        Json changed = document();
        Json& get = changed["paths"]["/v1/things/{name}"]["get"];
        get[Json::json_pointer(std::string(where) + "/content/application~1json/schema")] = schema;
        return faults_of(changed);
    };
    const auto schema = [](const Json& type, bool is_required) {
        Json one = {{"type", "object"}, {"properties", {{"a", {{"type", type}}}}}};
        if (is_required) one["required"] = {"a"};
        return one;
    };
    const Json maybe_null = {"string", "null"};
    const std::vector<std::string> none;
    EXPECT_EQ(with("/responses/200", schema("string", false)), none);
    EXPECT_EQ(with("/responses/200", schema(maybe_null, true)), none);
    EXPECT_EQ(with("/responses/200", schema(maybe_null, false)).size(), 1U);
    EXPECT_EQ(with("/responses/200", Json{{"type", "array"}, {"items", schema(maybe_null, false)}}).size(), 1U);
    EXPECT_EQ(with("/requestBody", schema(maybe_null, false)), none);
    EXPECT_EQ(with("/requestBody", schema("string", true)), none);
    EXPECT_EQ(with("/requestBody", schema("string", false)).size(), 1U);
    EXPECT_EQ(with("/requestBody", Json{{"oneOf", {schema("string", false), {{"type", "null"}}}}}).size(), 1U);
}

TEST(OpenapiCheckTest, EveryKindOfFaultIsFound) {
    const auto with = [](const char* pointer, const Json& value) {
        Json changed = document();
        changed[Json::json_pointer(pointer)] = value;
        return changed;
    };
    const std::string get = "/paths/~1v1~1things~1{name}/get";
    const Json wrong[] = {
        with("/openapi", "3.0.3"),
        with("/info/title", ""),
        with("/paths/~1metrics", {{"get", operation("metrics")}}),
        with("/paths/~1v1~1others", {{"get", operation("others")}}),
        with("/paths/~1v1~1things~1{name}", Json::object()),
        with("/paths/~1v1~1things~1{name}/parameters", Json::array()),
        with((get + "/operationId").c_str(), "/healthz"),
        with((get + "/summary").c_str(), ""),
        with((get + "/responses").c_str(), Json::object()),
        with((get + "/security").c_str(), Json::array()),
        with("/paths/~1healthz/get/security", {{{"bearer", Json::array()}}}),
        with((get + "/responses/200/content").c_str(), {{"$ref", "#/components/none"}}),
    };
    for (const Json& changed : wrong) EXPECT_EQ(faults_of(changed).size(), 1U) << changed.dump();
}

}  // namespace
}  // namespace atl::service
