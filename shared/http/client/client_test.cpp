#include "shared/http/client/client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "shared/base/error_words.h"
#include "shared/base/file.h"
#include "shared/http/testing/test_server.h"

namespace atl::http {
namespace {

ClientOptions patient(const TestServer& server) {
    ClientOptions options;
    options.base_url = server.url() + "/";
    options.backoff = std::chrono::milliseconds(1);
    return options;
}

// Answers 503, or another status, until the n-th request.
struct Flaky {
    explicit Flaky(int failures, int status = 503) : left(failures), failure(status) {}
    Response operator()(const Request&) {
        ++calls;
        return left-- > 0 ? Response::text(failure, "later") : Response::json(200, {{"ok", true}});
    }
    std::atomic<int> left;
    const int failure;
    std::atomic<int> calls = 0;
};

TEST(ClientTest, AnIdempotentCallIsRepeatedOn503AndWhereItCameTooOften) {
    for (const int status : {503, 429}) {
        Flaky flaky(2, status);
        TestServer server([&](Server& s) { s.route(Method::kGet, "/a", Access::open(), std::ref(flaky)); });
        EXPECT_TRUE(Client(patient(server)).get_json("/a").ok());
        EXPECT_EQ(flaky.calls, 3);
    }
}

TEST(ClientTest, APathThatAServerWouldReadAsAnotherIsNotAskedFor) {
    std::atomic<int> calls = 0;
    TestServer server([&](Server& s) {
        const auto count = [&](const Request&) { return ++calls, Response::json(200, {{"digest", "x"}}); };
        s.route(Method::kGet, "/v1/blobs/:name", Access::open(), count);
        s.route(Method::kGet, "/v1/models/:name/versions/:version", Access::open(), count);
    });
    Client client(patient(server));
    using namespace std::string_literals;
    for (const std::string& name : {"../../../blobs/a"s, ".."s, "."s, "a/b"s, "a\\b"s})
        EXPECT_EQ(client.get_json("/v1/models/m/versions/" + percent_encode(name)).error().code,
                  ErrorCode::kInvalidArgument)
            << name;
    EXPECT_EQ(client.get_json("/v1/models/../blobs/a").error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(calls, 0);
    EXPECT_TRUE(client.get_json("/v1/blobs/a..b?after=..%2F").ok());
}

TEST(ClientTest, AnAnswerOfMillionsOfValuesIsRefused) {
    std::string values = "{\"digest\":\"x\",\"x\":[{}";
    for (int i = 0; i < 3'000'000; ++i) values += ",1";
    values += "]}";
    TestServer server([&](Server& s) {
        s.route(Method::kGet, "/a", Access::open(),
                [&](const Request&) { return Response::text(200, values, "application/json"); });
    });
    EXPECT_FALSE(Client(patient(server)).get_json("/a").ok());
}

TEST(ClientTest, RepeatingStopsAtItsBound) {
    Flaky flaky(100);
    TestServer server([&](Server& s) { s.route(Method::kGet, "/a", Access::open(), std::ref(flaky)); });
    EXPECT_EQ(Client(patient(server)).get_json("/a").error().code, ErrorCode::kUnavailable);
    EXPECT_EQ(flaky.calls, 4);
}

TEST(ClientTest, APostIsRepeatedOnlyWithAnIdempotencyKey) {
    Flaky first(1);
    Flaky second(1);
    TestServer server([&](Server& s) {
        s.route(Method::kPost, "/first", Access::open(), std::ref(first));
        s.route(Method::kPost, "/second", Access::open(), std::ref(second));
    });
    Client client(patient(server));
    EXPECT_FALSE(client.post_json("/first", {{"a", 1}}).ok());
    EXPECT_EQ(first.calls, 1);
    EXPECT_TRUE(client.post_json("/second", {{"a", 1}}, "key").ok());
    EXPECT_EQ(second.calls, 2);
}

TEST(ClientTest, AProblemBecomesTheErrorThatItDescribes) {
    TestServer server([](Server& s) {
        s.route(Method::kPost, "/a", Access::open(), [](const Request& request) {
            return Response::problem(invalid_argument("rounds", "too few"), request.request_id);
        });
    });
    const auto result = Client(patient(server)).post_json("/a", {});
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(result.error().field, "rounds");
    EXPECT_EQ(result.error().message, "too few");
    EXPECT_EQ(result.error().cause, Cause::kService);
}

TEST(ClientTest, WhatNoHandlerHasAnsweredIsSaidSo) {
    TestServer server([](Server& s) {
        s.route(Method::kGet, "/proxy", Access::open(), [](const Request&) {
            return Response::text(404, R"({"type":"urn:atoll:problem:not-found","title":"Not found","status":404})");
        });
        s.route(Method::kGet, "/operators", Access::roles({auth::Role::kOperator}),
                [](const Request&) { return Response::empty(); });
    });
    for (const char* path : {"/proxy", "/nowhere", "/operators", "/operators?more=1"})
        EXPECT_EQ(Client(patient(server)).get_json(path).error().cause, Cause::kElsewhere) << path;
    EXPECT_EQ(Client(patient(server)).get_json("/proxy?a=%0").error().cause, Cause::kUnreadable);
}

TEST(ClientTest, EveryErrorComesBackAsItWentOut) {
    Error sent;
    TestServer server([&](Server& s) {
        s.route(Method::kGet, "/a", Access::open(), [&](const Request&) { return Response::problem(sent); });
    });
    ClientOptions once = patient(server);
    once.attempts_max = 1;
    for (const auto& code : error_codes())
        for (const auto& cause : causes()) {
            if (cause.value == Cause::kUnknown) continue;  // no service says that
            const char* field = static_cast<int>(cause.value) % 2 == 0 ? "" : "rounds";
            sent = {code.value, "what is wrong", field, cause.value};
            const Error got = Client(once).get_json("/a").error();
            EXPECT_EQ(to_string(got.code), std::string(to_string(sent.code)));
            EXPECT_EQ(got.message, sent.message);
            EXPECT_EQ(got.field, sent.field);
            EXPECT_EQ(got.cause, sent.cause);
        }
}

TEST(ClientTest, NobodyListeningIsUnavailableAndNamesTheAddress) {
    std::uint16_t port = 0;
    {
        TestServer server([](Server&) {});
        port = server.server().port();
    }
    ClientOptions options;
    options.base_url = "http://127.0.0.1:" + std::to_string(port);
    options.attempts_max = 2;
    options.backoff = std::chrono::milliseconds(1);
    const auto result = Client(options).get_json("/a");
    EXPECT_EQ(result.error().code, ErrorCode::kUnavailable);
    EXPECT_NE(result.error().message.find(std::to_string(port)), std::string::npos);
}

TEST(ClientTest, ASocketsAddressMayHaveAPathBehindIt) {
    const TemporaryDirectory directory;
    ServerOptions server_options;
    server_options.address = "unix:" + (directory.path() / "a:b.sock").string();
    const TestServer server(
        [](Server& s) {
            for (const char* path : {"/v1/a", "/store/v1/a"})
                s.route(Method::kGet, path, Access::open(),
                        [](const Request& request) { return Response::text(200, request.path); });
        },
        server_options);
    for (const auto& [behind, path] : {std::pair{"", "/v1/a"}, {":", "/v1/a"}, {":/store", "/store/v1/a"}}) {
        ClientOptions options;
        options.base_url = server_options.address + behind;
        options.attempts_max = 1;
        const auto answer = Client(options).call(Method::kGet, "/v1/a");
        ASSERT_TRUE(answer.ok()) << answer.error().message;
        EXPECT_EQ(answer->body, path);
    }
}

TEST(ClientTest, ASinkGetsTheBytesOfASuccessAndNotThoseOfAnError) {
    const std::string bytes(3 << 20, 'b');
    TestServer server([&](Server& s) {
        s.route(Method::kGet, "/good", Access::open(), [&](const Request&) { return Response::text(200, bytes); });
        s.route(Method::kGet, "/bad", Access::open(), [](const Request&) { return Response::text(404, "nothing"); });
    });
    Client client(patient(server));
    std::string got;
    CallOptions options;
    options.sink = [&](std::string_view piece) {
        got += piece;
        return true;
    };
    EXPECT_TRUE(client.call(Method::kGet, "/good", {}, options).value().body.empty());
    EXPECT_TRUE(got == bytes);
    got.clear();
    EXPECT_EQ(client.call(Method::kGet, "/bad", {}, options).value().body, "nothing");
    EXPECT_TRUE(got.empty());
}

TEST(ClientTest, ABodyLargerThanItsBoundIsRefused) {
    TestServer server([&](Server& s) {
        s.route(Method::kGet, "/a", Access::open(),
                [&](const Request&) { return Response::text(200, std::string(100000, 'x')); });
    });
    auto options = patient(server);
    options.response_bytes_max = 1000;
    EXPECT_EQ(Client(options).call(Method::kGet, "/a").error().code, ErrorCode::kTooLarge);
}

TEST(ClientTest, ExpectIsNeverSentAndTheTokenIs) {
    TestServer server(
        [&](Server& s) {
            s.route(Method::kPut, "/a", Access::open(), [](const Request& request) {
                return Response::json(200, {{"expect", request.header("expect")},
                                            {"authorization", request.header("authorization")},
                                            {"size", request.body.size()}});
            });
        },
        {.request_bytes_max = 4U << 20});
    auto options = patient(server);
    options.token = "abc";
    const auto body = Client(options).call(Method::kPut, "/a", std::string(2 << 20, 'x')).value().json().value();
    EXPECT_EQ(body["expect"], "");
    EXPECT_EQ(body["authorization"], "Bearer abc");
    EXPECT_EQ(body["size"], 2 << 20);
}

}  // namespace
}  // namespace atl::http
