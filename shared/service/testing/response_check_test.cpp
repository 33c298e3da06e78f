#include "shared/service/testing/response_check.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace atl::service {
namespace {

using http::ClientResponse;
using http::Method;
using json::Json;

const std::string kApi = R"({"paths": {
  "/v1/things": {"get": {"responses": {"200": {"content": {"application/json": {"schema":
      {"type": "object", "required": ["items"], "properties": {"items": {"type": "array"}}}}}}}}},
  "/v1/things/all": {"get": {"responses": {"200": {"content": {"text/plain": {"schema": {"type": "string"}}}}}}},
  "/v1/things/{name}": {"get": {"responses": {"200": {"description": "It"}, "default": {"$ref": "#/problem"}}},
                        "delete": {"responses": {"204": {"description": "Gone"}}}},
  "/healthz": {"get": {"responses": {"200": {"description": "It is"}}}}},
  "problem": {"content": {"application/problem+json": {"schema": {"type": "object", "required": ["title"]}}}}})";

ClientResponse answer(int status, const std::string& type, const std::string& body) {
    return {status, {{"content-type", type}}, body};
}

TEST(ResponseCheckTest, AnswersAsDescribedHaveNoFaults) {
    ResponseCheck check(kApi);
    const std::vector<std::string> none;
    EXPECT_EQ(check.faults(Method::kGet, "/v1/things?limit=1", answer(200, "application/json", R"({"items":[]})")),
              none);
    EXPECT_EQ(check.faults(Method::kGet, "/v1/things/all", answer(200, "text/plain; charset=utf-8", "x")), none);
    EXPECT_EQ(check.faults(Method::kGet, "/v1/things/a", answer(200, "", "")), none);
    EXPECT_EQ(check.faults(Method::kGet, "/v1/things/a", answer(404, "application/problem+json", R"({"title":"x"})")),
              none);
    EXPECT_EQ(check.faults(Method::kDelete, "/v1/things/a", answer(204, "", "")), none);
}

TEST(ResponseCheckTest, EveryKindOfFaultIsFound) {
    ResponseCheck check(kApi);
    for (const auto& [method, path, given] : std::vector<std::tuple<Method, std::string, ClientResponse>>{
             {Method::kGet, "/v1/others", answer(200, "application/json", "{}")},
             {Method::kPost, "/v1/things", answer(200, "application/json", "{}")},
             {Method::kGet, "/v1/things", answer(500, "application/json", "{}")},
             {Method::kGet, "/v1/things", answer(200, "text/plain", R"({"items":[]})")},
             {Method::kGet, "/v1/things", answer(200, "application/json", "{")},
             {Method::kGet, "/v1/things", answer(200, "application/json", R"({"items":1})")},
             {Method::kGet, "/v1/things/a", answer(404, "application/problem+json", "{}")}})
        EXPECT_EQ(check.faults(method, path, given).size(), 1U) << path << " " << given.body;
}

TEST(ResponseCheckTest, WhatWasNotReadIsListed) {
    ResponseCheck check(kApi);
    (void)check.faults(Method::kGet, "/v1/things/all", answer(200, "text/plain", "x"));
    (void)check.faults(Method::kGet, "/v1/things/a", answer(404, "application/problem+json", R"({"title":"x"})"));
    EXPECT_EQ(check.unread(), (std::vector<std::string>{"GET /v1/things", "GET /v1/things/{name}"}));
}

}  // namespace
}  // namespace atl::service
