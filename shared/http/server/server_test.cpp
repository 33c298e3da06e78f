#include "shared/http/server/server.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <future>
#include <latch>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "shared/base/file.h"
#include "shared/http/testing/test_server.h"

namespace {

std::atomic<bool> slow_event_reads = false;

}  // namespace

// In place of the C library's, also for Pistache.
extern "C" ssize_t read(int fd, void* bytes, std::size_t size) {
    if (slow_event_reads && size == sizeof(std::uint64_t)) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return ::syscall(SYS_read, fd, bytes, size);
}

namespace atl::http {
namespace {

using auth::Role;

// While it lives, every read of an eventfd begins late.
struct SlowEventReads {
    SlowEventReads() { slow_event_reads = true; }
    ~SlowEventReads() { slow_event_reads = false; }
};

const Access kEverybody = Access::roles({Role::kAdmin, Role::kOperator, Role::kViewer, Role::kFacility});

// Lets handlers wait until the test opens it.
class Gate {
  public:
    void pass() {
        std::unique_lock lock(mutex_);
        ++waiting_;
        changed_.notify_all();
        changed_.wait(lock, [this] { return open_; });
    }
    void wait_for(int count) {
        std::unique_lock lock(mutex_);
        check(changed_.wait_for(lock, std::chrono::minutes(3), [&] { return waiting_ >= count; }), "nobody came");
    }
    void open() {
        const std::lock_guard lock(mutex_);
        open_ = true;
        changed_.notify_all();
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    int waiting_ = 0;
    bool open_ = false;
};

Response echo(const Request& request) {
    return Response::json(200, {{"method", to_string(request.method)},
                                {"params", request.params},
                                {"query", request.query},
                                {"body", request.body},
                                {"subject", request.principal ? request.principal->subject : ""}});
}

std::future<ClientResponse> get_async(const TestServer& server, const std::string& path) {
    return std::async(std::launch::async,
                      [client = server.client(), path]() mutable { return client.call(Method::kGet, path).value(); });
}

json::Json problem_of(const ClientResponse& response) {
    EXPECT_EQ(response.headers.at("content-type"), "application/problem+json") << response.body;
    return json::Json::parse(response.body);
}

TEST(ServerTest, ARequestReachesItsHandlerWithEverythingDecoded) {
    TestServer server([](Server& s) { s.route(Method::kPut, "/v1/things/:name", kEverybody, echo); });
    auto client = server.client();
    const auto answer = client.call(Method::kPut, "/v1/things/a%20b?x=1%2C2&y=c+d&z", "{\"k\":1}").value();
    EXPECT_EQ(answer.status, 200);
    const auto body = answer.json().value();
    EXPECT_EQ(body["params"]["name"], "a b");
    EXPECT_EQ(body["query"], (json::Json{{"x", "1,2"}, {"y", "c d"}, {"z", ""}}));
    EXPECT_EQ(body["body"], "{\"k\":1}");
    EXPECT_EQ(body["subject"], "tester");
    EXPECT_EQ(answer.headers.count("x-request-id"), 1U);
}

TEST(ServerTest, EveryRoleSeesOnlyItsRoutes) {
    TestServer server([](Server& s) {
        s.route(Method::kGet, "/open", Access::open(), echo);
        s.route(Method::kGet, "/all", kEverybody, echo);
        s.route(Method::kGet, "/admin", Access::roles({Role::kAdmin}), echo);
        s.route(Method::kGet, "/facility", Access::roles({Role::kFacility}), echo);
        s.route(Method::kGet, "/nobody", Access{}, echo);
    });
    const std::map<std::string, std::vector<Role>> allowed = {
        {"/all", {Role::kAdmin, Role::kOperator, Role::kViewer, Role::kFacility}},
        {"/admin", {Role::kAdmin}},
        {"/facility", {Role::kFacility}},
        {"/nobody", {}}};
    for (const Role role : {Role::kAdmin, Role::kOperator, Role::kViewer, Role::kFacility}) {
        auto client = server.client(role);
        EXPECT_EQ(client.call(Method::kGet, "/open").value().status, 200);
        for (const auto& [path, roles] : allowed) {
            const bool may = std::find(roles.begin(), roles.end(), role) != roles.end();
            EXPECT_EQ(client.call(Method::kGet, path).value().status, may ? 200 : 403)
                << auth::to_string(role) << " " << path;
        }
    }
    auto stranger = server.client_without_token();
    EXPECT_EQ(stranger.call(Method::kGet, "/open").value().status, 200);
    for (const auto& [path, roles] : allowed) {
        const auto answer = stranger.call(Method::kGet, path).value();
        EXPECT_EQ(answer.status, 401) << path;
        EXPECT_EQ(answer.headers.at("www-authenticate"), "Bearer");
        EXPECT_EQ(problem_of(answer)["type"], "urn:atoll:problem:unauthenticated");
    }
}

TEST(ServerTest, ATokenOfOtherKeysIsRefused) {
    TestServer server([](Server& s) { s.route(Method::kGet, "/a", kEverybody, echo); });
    const TestServer other([](Server&) {});
    ClientOptions options;
    options.base_url = server.url();
    options.token = other.token(Role::kAdmin);
    EXPECT_EQ(Client(options).call(Method::kGet, "/a").value().status, 401);
}

TEST(ServerTest, AnUnknownPathAndAWrongMethodAreProblems) {
    TestServer server([](Server& s) { s.route(Method::kGet, "/a", kEverybody, echo); });
    auto client = server.client();
    EXPECT_EQ(problem_of(client.call(Method::kGet, "/b").value())["status"], 404);
    const auto answer = client.call(Method::kPost, "/a", "{}").value();
    EXPECT_EQ(problem_of(answer)["status"], 405);
    EXPECT_EQ(answer.headers.at("allow"), "GET, HEAD");
    EXPECT_EQ(client.call(Method::kGet, "/a?x=%2").value().status, 400);
}

TEST(ServerTest, AHandlersExceptionSaysOnlyTheRequestId) {
    TestServer server([](Server& s) {
        s.route(Method::kGet, "/a", kEverybody,
                [](const Request&) -> Response { throw std::runtime_error("password=secret"); });
        s.route_async(Method::kGet, "/b", kEverybody, [](Request, Responder) { throw 7; });
    });
    for (const char* path : {"/a", "/b"}) {
        const auto answer = server.client().call(Method::kGet, path).value();
        const auto problem = problem_of(answer);
        EXPECT_EQ(problem["status"], 500);
        EXPECT_EQ(problem["request_id"], answer.headers.at("x-request-id"));
        EXPECT_EQ(answer.body.find("secret"), std::string::npos);
    }
}

TEST(ServerTest, ABodyThatIsTooLargeIsA413AndTheRestIsNotReadAsARequest) {
    ServerOptions options;
    options.request_bytes_max = 10000;
    std::atomic<int> smuggled = 0;
    TestServer server(
        [&](Server& s) {
            s.route(Method::kPut, "/a", kEverybody, echo);
            s.route(Method::kGet, "/smuggled", Access::open(), [&](const Request&) {
                ++smuggled;
                return Response::empty();
            });
        },
        options);
    EXPECT_EQ(problem_of(server.client().call(Method::kPut, "/a", std::string(20000, 'x')).value())["status"], 413);
    std::string bytes = "PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n";
    for (int i = 0; i < 2000; ++i) bytes += "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";
    const std::string answer = exchange_raw(server.server().port(), bytes);
    EXPECT_EQ(answer.substr(0, 12), "HTTP/1.1 413") << answer;
    EXPECT_EQ(answer.find("HTTP/1.1", 1), std::string::npos) << "a second answer on one connection";
    EXPECT_EQ(smuggled, 0);
    EXPECT_TRUE(exchange_raw(server.server().port(), bytes.substr(0, bytes.find("GET")), "\r\n\r\n")
                    .starts_with("HTTP/1.1 413"))
        << "its length says so before it has come";
    EXPECT_EQ(server.client().call(Method::kPut, "/a", "x").value().status, 200);
}

TEST(ServerTest, ABodyArrivesWholeHoweverItIsCut) {
    TestServer server([](Server& s) { s.route(Method::kPut, "/a", kEverybody, echo); });
    auto client = server.client();
    for (const std::size_t size : {1U, 4'000U, 4'096U, 5'000U, 131'072U, 300'001U, 900'000U}) {
        std::string body;
        for (std::size_t i = 0; i < size; ++i) body += static_cast<char>('a' + (i ^ i / 4096) % 26);
        const std::string wanted = "\"body\":\"" + body + "\"";
        for (const std::size_t piece_bytes : {size / 4 + 19, size / 2 + 300, size + 1000}) {
            const std::string request = "PUT /a HTTP/1.1\r\nAuthorization: Bearer " + server.token(Role::kViewer) +
                                        "\r\nConnection: close\r\nContent-Length: " + std::to_string(size) +
                                        "\r\n\r\n" + body;
            const std::string answer = exchange_raw(server.server().port(), request, {}, piece_bytes);
            EXPECT_NE(answer.find(wanted), std::string::npos) << size << " bytes, by " << piece_bytes;
        }
        const auto answer = client.call(Method::kPut, "/a", body);  // on the connection of the one before
        ASSERT_TRUE(answer.ok());
        EXPECT_NE(answer->body.find(wanted), std::string::npos) << size;
    }
}

TEST(ServerTest, WhatIsNotHttpIsABadRequestAndClosesTheConnection) {
    TestServer server([](Server& s) { s.route(Method::kGet, "/a", Access::open(), echo); });
    for (const char* bytes : {"NONSENSE / HTTP/1.1\r\n\r\n", "GET /a HTTP/9.9\r\n\r\n",
                              "POST /a HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc"}) {
        const std::string answer = exchange_raw(server.server().port(), bytes);
        EXPECT_EQ(answer.substr(0, 12), "HTTP/1.1 400") << answer;
        EXPECT_NE(answer.find("application/problem+json"), std::string::npos);
    }
}

TEST(ServerTest, HeadHasTheLengthOfTheBodyButNoBody) {
    TestServer server([](Server& s) {
        s.route(Method::kGet, "/a", Access::open(), [](const Request&) { return Response::text(200, "12345"); });
    });
    const std::string answer = exchange_raw(server.server().port(), "HEAD /a HTTP/1.1\r\nConnection: close\r\n\r\n");
    EXPECT_NE(answer.find("Content-Length: 5\r\n"), std::string::npos) << answer;
    EXPECT_EQ(answer.substr(answer.size() - 4), "\r\n\r\n");
}

TEST(ServerTest, AHeaderCannotCarryALineBreak) {
    TestServer server([](Server& s) {
        s.route(Method::kGet, "/a", Access::open(), [](const Request&) {
            return Response::empty(200).with("Location", "/x\r\nSet-Cookie: evil=1").with("ETag", "\"1\"");
        });
    });
    const auto answer = server.client().call(Method::kGet, "/a").value();
    EXPECT_EQ(answer.headers.count("set-cookie"), 0U);
    EXPECT_EQ(answer.headers.at("etag"), "\"1\"");
}

TEST(ServerTest, ARequestIdOfTheCallerIsKeptUnlessItIsNone) {
    TestServer server([](Server& s) { s.route(Method::kGet, "/a", Access::open(), echo); });
    auto client = server.client();
    CallOptions options;
    options.headers = {{"X-Request-Id", "abc-1"}};
    EXPECT_EQ(client.call(Method::kGet, "/a", {}, options).value().headers.at("x-request-id"), "abc-1");
    options.headers = {{"X-Request-Id", "<script>"}};
    EXPECT_NE(client.call(Method::kGet, "/a", {}, options).value().headers.at("x-request-id"), "<script>");
}

TEST(ServerTest, ADeferredAnswerComesWhileEveryHandlerIsBusy) {
    Gate busy;
    std::promise<Responder> deferred;
    ServerOptions options;
    options.handler_threads = 16;
    TestServer server(
        [&](Server& s) {
            s.route(Method::kGet, "/busy", kEverybody, [&](const Request&) {
                busy.pass();
                return Response::empty();
            });
            s.route_async(Method::kGet, "/wait", kEverybody,
                          [&](Request, Responder responder) { deferred.set_value(responder); });
        },
        options);
    std::vector<std::future<ClientResponse>> blocked;
    for (int i = 0; i < 16; ++i) blocked.push_back(get_async(server, "/busy"));
    busy.wait_for(16);
    auto waiting = get_async(server, "/wait");
    const Responder responder = deferred.get_future().get();
    responder.respond(Response::text(200, "now"));
    responder.respond(Response::text(500, "twice"));
    EXPECT_EQ(waiting.get().body, "now");
    EXPECT_EQ(server.metrics().expose().find("status=\"500\""), std::string::npos) << "the second answer counted";
    busy.open();
    for (auto& answer : blocked) EXPECT_EQ(answer.get().status, 204);
}

TEST(ServerTest, AnAnswerToAClientThatLeftIsDroppedQuietly) {
    std::promise<Responder> deferred;
    TestServer server([&](Server& s) {
        s.route_async(Method::kGet, "/wait", Access::open(),
                      [&](Request, Responder responder) { deferred.set_value(responder); });
        s.route(Method::kGet, "/a", Access::open(), echo);
    });
    {
        ClientOptions options;
        options.base_url = server.url();
        options.timeout = std::chrono::milliseconds(200);
        options.attempts_max = 1;
        EXPECT_EQ(Client(options).call(Method::kGet, "/wait").error().code, ErrorCode::kUnavailable);
    }
    deferred.get_future().get().respond(Response::text(200, std::string(1 << 20, 'x')));
    EXPECT_EQ(server.client().call(Method::kGet, "/a").value().status, 200);
}

// The descriptor of a client that left is soon another client's.
TEST(ServerTest, AnAnswerNeverReachesAnotherClient) {
    std::mutex mutex;
    std::vector<Responder> deferred;
    ServerOptions options;
    options.drain_time_max = std::chrono::seconds(0);  // the last ones are never answered
    TestServer server(
        [&](Server& s) {
            s.route_async(Method::kGet, "/wait", Access::open(), [&](Request, Responder responder) {
                const std::lock_guard lock(mutex);
                deferred.push_back(responder);
            });
            s.route(Method::kPost, "/echo", Access::open(), echo);
        },
        options);
    std::atomic<bool> done = false;
    const std::jthread answerer([&] {
        while (!done) {
            std::vector<Responder> taken;
            {
                const std::lock_guard lock(mutex);
                taken.swap(deferred);
            }
            for (const Responder& responder : taken) responder.respond(Response::text(200, "for the one who left"));
            std::this_thread::yield();
        }
    });
    std::vector<std::jthread> threads;
    std::atomic<int> wrong = 0;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&, t] {
            for (int i = 0; i < 60; ++i) {
                leave_early(server.server().port(), "GET /wait HTTP/1.1\r\n\r\n");
                leave_early(server.server().port(), "GET /wait HTTP/1.1\r\n\r\n");
                const std::string body = std::to_string(t * 1000 + i);
                const auto answer = server.client_without_token().call(Method::kPost, "/echo", body);
                if (!answer.ok() || answer->body.find("\"body\":\"" + body + "\"") == std::string::npos) ++wrong;
            }
        });
    threads.clear();
    done = true;
    EXPECT_EQ(wrong, 0);
}

TEST(ServerTest, AResponderThatIsForgottenAnswers500) {
    TestServer server([](Server& s) { s.route_async(Method::kGet, "/a", Access::open(), [](Request, Responder) {}); });
    EXPECT_EQ(server.client().call(Method::kGet, "/a").value().status, 500);
}

TEST(ServerTest, AFullQueueSaysComeBackLater) {
    Gate busy;
    ServerOptions options;
    options.handler_threads = 1;
    options.waiting_requests_max = 1;
    TestServer server(
        [&](Server& s) {
            s.route(Method::kGet, "/slow", kEverybody, [&](const Request&) {
                busy.pass();
                return Response::empty();
            });
        },
        options);
    auto running = get_async(server, "/slow");
    busy.wait_for(1);
    auto first = get_async(server, "/slow");  // one of these two waits, the other finds the queue full
    auto second = get_async(server, "/slow");
    while (first.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready &&
           second.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
    }
    busy.open();
    const ClientResponse answers[] = {first.get(), second.get()};
    const auto& refused = answers[0].status == 503 ? answers[0] : answers[1];
    EXPECT_EQ(refused.status, 503);
    EXPECT_EQ(refused.headers.at("retry-after"), "1");
    EXPECT_EQ((answers[0].status == 503 ? answers[1] : answers[0]).status, 204);
    EXPECT_EQ(running.get().status, 204);
}

TEST(ServerTest, TooManyBytesAtOnceSayComeBackLater) {
    Gate busy;
    ServerOptions options;
    options.body_bytes_max = 1500;
    TestServer server(
        [&](Server& s) {
            s.route(Method::kPut, "/slow", kEverybody, [&](const Request&) {
                busy.pass();
                return Response::empty();
            });
            s.route(Method::kPut, "/a", kEverybody, echo);
        },
        options);
    auto first = std::async(std::launch::async, [client = server.client()]() mutable {
        return client.call(Method::kPut, "/slow", std::string(1000, 'x')).value().status;
    });
    busy.wait_for(1);
    EXPECT_EQ(server.client().call(Method::kPut, "/a", std::string(1000, 'x')).value().status, 503);
    busy.open();
    EXPECT_EQ(first.get(), 204);
}

TEST(ServerTest, StoppingAnswersWhatIsInFlightAndWhatComesOnOpenConnections) {
    Gate busy;
    TestServer server([&](Server& s) {
        s.route(Method::kGet, "/slow", kEverybody, [&](const Request&) {
            busy.pass();
            return Response::text(200, "done");
        });
        s.route(Method::kGet, "/a", Access::open(), echo);
    });
    auto slow = get_async(server, "/slow");
    busy.wait_for(1);
    Client open = server.client();
    EXPECT_EQ(open.call(Method::kGet, "/a").value().headers.at("connection"), "keep-alive");
    auto stopping = std::async(std::launch::async, [&] { server.server().stop(); });
    while (server.client().call(Method::kGet, "/a").ok()) std::this_thread::yield();  // it still listens
    const ClientResponse answer = open.call(Method::kGet, "/a").value();
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.headers.at("connection"), "close");
    EXPECT_FALSE(open.call(Method::kGet, "/a").ok()) << "it was the last answer there";
    busy.open();
    EXPECT_EQ(slow.get().body, "done");
    stopping.get();
}

TEST(ServerTest, AnAnswerAfterTheServerHasGoneIsHarmless) {
    std::optional<Responder> kept;
    {
        std::promise<Responder> deferred;
        ServerOptions options;
        options.drain_time_max = std::chrono::seconds(0);
        TestServer server(
            [&](Server& s) {
                s.route_async(Method::kGet, "/wait", Access::open(),
                              [&](Request, Responder responder) { deferred.set_value(responder); });
            },
            options);
        auto waiting = std::async(std::launch::async, [client = server.client()]() mutable {
            return client.call(Method::kGet, "/wait").ok();
        });
        kept = deferred.get_future().get();
        server.server().stop();
        EXPECT_FALSE(waiting.get());
    }
    kept->respond(Response::empty());
}

TEST(ServerTest, ManyClientsAtOnceEachGetTheirOwnAnswer) {
    TestServer server([](Server& s) { s.route(Method::kPost, "/v1/echo/:n", kEverybody, echo); });
    std::atomic<int> wrong = 0;
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t)
        threads.emplace_back([&, t] {
            auto client = server.client();
            for (int i = 0; i < 100; ++i) {
                const std::string name = std::to_string(t * 1000 + i);
                const std::string body(static_cast<std::size_t>(i * 50), 'a' + static_cast<char>(t));
                const auto answer = client.call(Method::kPost, "/v1/echo/" + name, body);
                if (!answer.ok() || answer->status != 200 || answer->json().value()["params"]["n"] != name ||
                    answer->json().value()["body"] != body)
                    ++wrong;
            }
        });
    threads.clear();
    EXPECT_EQ(wrong, 0);
    EXPECT_NE(server.metrics().expose().find("atoll_http_requests_total{method=\"POST\",route=\"/v1/echo/:n\","
                                             "status=\"200\"} 800"),
              std::string::npos)
        << server.metrics().expose();
}

// Pistache copies what is left of a buffer whenever the socket is full: a minute of copying for so many bytes at once.
TEST(ServerTest, ALongAnswerIsSentInTheTimeThatItsBytesTake) {
    const std::string body(std::size_t{48} << 20, 'a');
    TestServer server([&](Server& s) {
        s.route(Method::kGet, "/a", Access::open(), [&](const Request&) { return Response::text(200, body); });
    });
    ClientOptions options;
    options.base_url = server.url();
    options.timeout = std::chrono::seconds(20);
    options.attempts_max = 1;
    const auto answer = Client(options).call(Method::kGet, "/a");
    ASSERT_TRUE(answer.ok()) << answer.error().message;
    EXPECT_TRUE(answer->body == body);
}

// Pistache's queues between threads empty their eventfd only after they have looked for work. Here that takes a
// while, so that what is handed over in between would be left lying until the next request.
TEST(ServerTest, NoAnswerIsLeftBehindBetweenTheThreads) {
    TestServer server([](Server& s) {
        s.route(Method::kGet, "/a", Access::open(), [](const Request&) { return Response::text(200, "a"); });
    });
    const SlowEventReads slow;
    ClientOptions options;
    options.base_url = server.url();
    options.timeout = std::chrono::seconds(10);
    options.attempts_max = 1;
    for (int connection = 0; connection < 10; ++connection) {
        Client client(options);
        for (int i = 0; i < 10; ++i) ASSERT_TRUE(client.call(Method::kGet, "/a").ok());
    }
}

TEST(ServerTest, AtAPathItTakesThePlaceOfADeadServerOnly) {
    const TemporaryDirectory directory;
    ServerOptions options;
    options.address = "unix:" + (directory.path() / "a.sock").string();
    const std::string public_pem = auth::generate_keys().value().public_pem;
    const auto make_server = [&](metrics::Registry& metrics) {
        auto server = std::make_unique<Server>(options, auth::Verifier::from_pem(public_pem).value(), metrics);
        server->route(Method::kPut, "/a", Access::open(), echo);
        return server;
    };
    ClientOptions client_options;
    client_options.base_url = options.address;
    client_options.attempts_max = 1;
    for (int life = 0; life < 2; ++life) {  // the second finds the socket of the first
        metrics::Registry metrics, other_metrics;
        const auto server = make_server(metrics);
        ASSERT_TRUE(server->start().ok());
        const std::string body(900'000, 'x');
        const auto answer = Client(client_options).call(Method::kPut, "/a", body);
        ASSERT_TRUE(answer.ok()) << answer.error().message;
        EXPECT_EQ(answer->json().value()["body"], body);
        EXPECT_NE(make_server(other_metrics)->start().error().message.find("another process"), std::string::npos);
    }
    options.address = "unix:" + (directory.path() / std::string(120, 'x')).string();
    metrics::Registry metrics;
    EXPECT_FALSE(make_server(metrics)->start().ok());
}

// Whoever sends a body without its end holds memory: so many bytes of all such bodies, the next gets a 503.
TEST(ServerTest, BytesOfUnfinishedRequestsAreBounded) {
    ServerOptions options;
    options.body_bytes_max = 4'000'000;
    TestServer server([](Server& s) { s.route(Method::kPut, "/a", Access::open(), echo); }, options);
    const std::string half = "PUT /a HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n" + std::string(900'000, 'x');
    std::vector<std::future<std::string>> answers;
    for (int i = 0; i < 5; ++i)
        answers.push_back(
            std::async(std::launch::async, [&] { return exchange_raw(server.server().port(), half, "\r\n\r\n"); }));
    int refused = 0;
    // The others wait for the rest of theirs until the test's own client gives up.
    for (auto& answer : answers) {
        const std::string text = answer.get();
        if (text.starts_with("HTTP/1.1 503 ")) ++refused;
    }
    // One is enough; another may come while its bytes still count.
    EXPECT_GE(refused, 1);
    EXPECT_LT(refused, 5);
    EXPECT_EQ(server.client().call(Method::kPut, "/a", "x")->status, 200);
}

TEST(ServerTest, AQueryHoldsOnlyWhatTheRouteKnows) {
    TestServer server([](Server& s) {
        s.route(Method::kGet, "/some", kEverybody, echo);
        s.route(Method::kGet, "/none", kEverybody, echo);
        s.route(Method::kGet, "/any", kEverybody, echo);
        s.limit_query(Method::kGet, "/some", {"limit", "after"});
        s.limit_query(Method::kGet, "/none", {});
    });
    auto client = server.client();
    EXPECT_EQ(client.call(Method::kGet, "/some?limit=1&after=2")->status, 200);
    EXPECT_EQ(client.call(Method::kGet, "/any?limits=1")->status, 200);
    const auto refused = client.call(Method::kGet, "/some?limits=1").value();
    EXPECT_EQ(refused.status, 422);
    EXPECT_EQ(problem_of(refused)["field"], "limits");
    EXPECT_EQ(problem_of(refused)["detail"], "there is no such parameter; this path takes limit, after");
    EXPECT_EQ(problem_of(client.call(Method::kGet, "/none?x=1").value())["detail"],
              "there is no such parameter; this path takes none");
    EXPECT_EQ(server.client_without_token().call(Method::kGet, "/some?limits=1")->status, 401);
}

TEST(ServerTest, WhatCannotBeReadGetsAProblem) {
    TestServer server([](Server& s) { s.route(Method::kGet, "/v1/things/:name", Access::open(), echo); });
    for (const std::string line :
         {"GET /v1/things/a%00b HTTP/1.1", "GET /v1/things/%zz HTTP/1.1", "GET /v1/things/% HTTP/1.1",
          "GET /v1/things/%ff HTTP/1.1", "GET /v1/things/a?x=%00 HTTP/1.1", "GET /v1/things/a?%ed%a0%80 HTTP/1.1",
          "get /v1/things/a HTTP/1.1", "GET /v1/things/a HTTP/9.1"}) {
        const std::string answer = exchange_raw(server.server().port(), line + "\r\nConnection: close\r\n\r\n");
        EXPECT_TRUE(answer.starts_with("HTTP/1.1 400 ")) << line << "\n" << answer;
        EXPECT_NE(answer.find("application/problem+json"), std::string::npos) << line << "\n" << answer;
    }
    for (const std::string method : {"OPTIONS", "TRACE", "DELETE"}) {
        const std::string answer =
            exchange_raw(server.server().port(), method + " /v1/things/a HTTP/1.1\r\nConnection: close\r\n\r\n");
        EXPECT_TRUE(answer.starts_with("HTTP/1.1 405 ")) << method << "\n" << answer;
        EXPECT_NE(answer.find("Allow: GET, HEAD\r\n"), std::string::npos) << method << "\n" << answer;
    }
}

TEST(ServerTest, APortThatIsTakenIsAClearError) {
    TestServer first([](Server&) {});
    ServerOptions options;
    options.port = first.server().port();
    metrics::Registry metrics;
    Server second(options, auth::Verifier::from_pem(auth::generate_keys().value().public_pem).value(), metrics);
    const Status status = second.start();
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().message.find(std::to_string(options.port)), std::string::npos);
}

}  // namespace
}  // namespace atl::http
