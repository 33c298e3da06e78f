// What a client without a token, or with too many requests, costs the gateway and the others.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "services/stack/testing/gateway_fixture.h"
#include "shared/base/file.h"
#include "shared/base/text.h"

namespace atl::stack {
namespace {

// A connection on which the test says each byte itself.
class RawConnection {
  public:
    explicit RawConnection(std::uint16_t port, const char* from = "127.0.0.1")
        : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        const sockaddr_in own = address(from, 0), gateway = address("127.0.0.1", port);
        check(fd_.valid() && ::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&own), sizeof own) == 0, "bind");
        check(::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&gateway), sizeof gateway) == 0, "connect");
    }

    // False when the gateway takes no more.
    bool send(const std::string& bytes) const {
        for (std::size_t sent = 0; sent < bytes.size();) {
            const ssize_t count = ::send(fd_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
            if (count <= 0) return false;
            sent += static_cast<std::size_t>(count);
        }
        return true;
    }
    // What has come when the text holds `end`, or the gateway hangs up, or nothing comes for a minute.
    std::string read_until(const std::string& end) const {
        std::string text;
        char block[4096];
        while (text.find(end) == std::string::npos && is_readable(std::chrono::seconds(60))) {
            const ssize_t count = ::recv(fd_.get(), block, sizeof block, 0);
            if (count <= 0) break;
            text.append(block, static_cast<std::size_t>(count));
        }
        return text;
    }
    bool is_readable(std::chrono::milliseconds patience) const {
        pollfd one{.fd = fd_.get(), .events = POLLIN, .revents = 0};
        return ::poll(&one, 1, static_cast<int>(patience.count())) > 0;
    }

  private:
    static sockaddr_in address(const char* host, std::uint16_t port) {
        sockaddr_in made{};
        made.sin_family = AF_INET;
        made.sin_port = htons(port);
        ::inet_pton(AF_INET, host, &made.sin_addr);
        return made;
    }

    UniqueFd fd_;
};

std::string head_of_upload(const std::string& token, int bytes = 16'000'000) {
    return "PUT /store/v1/blobs/abcd HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(bytes) + "\r\n" +
           (token.empty() ? "" : "Authorization: Bearer " + token + "\r\n") + "\r\n";
}

// None where it cannot be read: processes and what they have open come and go.
std::vector<std::filesystem::path> entries_of(const std::filesystem::path& directory) {
    std::vector<std::filesystem::path> entries;
    std::error_code error;
    for (std::filesystem::directory_iterator at(directory, error), end; !error && at != end; at.increment(error))
        entries.push_back(at->path());
    return entries;
}

// Uploads of which 64 are taken; while they are, the one that asks whether it is so may take the place of another.
constexpr int kMoreThan64 = 72;

// Whether it holds within a minute. In between, the uploads go on: nginx hangs up on one that sends nothing for 30 s.
bool holds_soon(const std::vector<RawConnection>& uploads, const std::function<bool()>& condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!condition()) {
        if (std::chrono::steady_clock::now() > deadline) return false;
        for (const RawConnection& upload : uploads) upload.send("x");
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
}

int count_of(const std::string& text, const std::string& part) {
    int count = 0;
    for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
    return count;
}

class GatewayLimitsTest : public GatewayTest {
  protected:
    // What the bodies on their way take, also in files that have no name any more.
    std::uint64_t body_bytes() const {
        std::uint64_t bytes = 0;
        const std::string bodies = (options_.directory / "body").string();
        std::error_code ignored;
        for (const auto& process : entries_of("/proc"))
            for (const auto& fd : entries_of(process / "fd")) {
                struct stat info{};
                if (std::filesystem::read_symlink(fd, ignored).string().starts_with(bodies) &&
                    ::stat(fd.c_str(), &info) == 0)
                    bytes += static_cast<std::uint64_t>(info.st_size);
            }
        return bytes;
    }
    struct Flood {
        int refused = 0;      // after a look at the token
        int passed_over = 0;  // unseen
    };
    // Four connections of `peer` at once, each with 900 requests whose tokens are forged; `header` is the i-th's more.
    Flood flood_with_forged_tokens(const char* peer, const std::function<std::string(int)>& header) const {
        std::string token = backend_.token(auth::Role::kOperator);
        std::string requests;
        for (int i = 0; i < 900; ++i) {
            token[token.size() - 40] = token[token.size() - 40] == 'A' ? 'B' : 'A';
            requests += "GET /registry/v1/owned/x HTTP/1.1\r\nHost: x\r\n" + header(i) + "Authorization: Bearer " +
                        token + "\r\n\r\n";
        }
        requests += "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        std::vector<std::jthread> forgers;
        std::atomic<int> refused = 0, passed_over = 0;
        for (int i = 0; i < 4; ++i)
            forgers.emplace_back([&] {
                const RawConnection connection(port(), peer);
                EXPECT_TRUE(connection.send(requests));
                const std::string answers = connection.read_until("no such text: until it hangs up");
                refused += count_of(answers, "HTTP/1.1 401 ");
                passed_over += count_of(answers, "HTTP/1.1 503 ");
            });
        forgers.clear();
        return {refused, passed_over};
    }
    std::uint64_t memory() const { return memory_bytes(running_process(pid_file()).value()); }
};

TEST_F(GatewayLimitsTest, ABodyWithoutAValidTokenIsRefusedBeforeItIsTaken) {
    const std::uint64_t memory_before = memory();
    std::vector<RawConnection> connections;
    for (int i = 0; i < 200; ++i) {
        connections.emplace_back(port(), i < 50    ? "127.0.0.2"
                                         : i < 100 ? "127.0.0.3"
                                         : i < 150 ? "127.0.0.4"
                                                   : "127.0.0.5");
        connections.back().send(head_of_upload(i % 2 == 0 ? "" : "not.a.token") + std::string(300'000, 'x'));
    }
    for (const RawConnection& connection : connections)
        EXPECT_TRUE(connection.read_until("\r\n\r\n").starts_with("HTTP/1.1 401 "));
    EXPECT_EQ(body_bytes(), 0U);
    EXPECT_LT(memory(), memory_before + (50U << 20));
    EXPECT_TRUE(client().call(Method::kPut, "/store/v1/blobs/abcd", "x")->ok());
}

TEST_F(GatewayLimitsTest, ARefusalSaysWhatIsWrongWithTheToken) {
    http::ClientOptions options;
    options.base_url = "http://" + options_.listen;
    const auto detail = [&] {
        const auto answer = http::Client(options).call(Method::kPost, "/registry/v1/things", "{}").value();
        EXPECT_EQ(answer.status, 401);
        EXPECT_TRUE(answer.headers.at("www-authenticate").starts_with("Bearer"));
        const auto body = nlohmann::json::parse(answer.body);
        EXPECT_EQ(body.at("type"), "urn:atoll:problem:unauthenticated");
        EXPECT_FALSE(body.at("request_id").get<std::string>().empty());
        return body.at("detail").get<std::string>();
    };
    EXPECT_EQ(detail(), "send a token: 'Authorization: Bearer ...'");
    options.token = "not.a.token";
    EXPECT_EQ(detail(), "the token is not valid");
}

TEST_F(GatewayLimitsTest, OneTokenHas64BodiesOnTheirWay) {
    const std::string token = backend_.token(auth::Role::kOperator);
    std::vector<RawConnection> connections;
    for (int i = 0; i < kMoreThan64; ++i) {
        connections.emplace_back(port());
        ASSERT_TRUE(connections.back().send(head_of_upload(token, 900'000) + "x"));
    }
    http::ClientOptions options;
    options.base_url = "http://" + options_.listen;
    options.token = token;
    options.attempts_max = 1;
    // The workers take connections as they come: the last of the 64 may be seen late.
    EXPECT_TRUE(holds_soon(connections, [&] {
        return http::Client(options).call(Method::kPost, "/registry/v1/things", "{}")->status == 429;
    }));
    EXPECT_TRUE(http::Client(options).call(Method::kGet, "/registry/v1/things/x")->ok()) << "it has no body";
    EXPECT_TRUE(client().call(Method::kPost, "/registry/v1/things", "{}")->ok()) << "another token";
}

// Other spellings of a token whose signature holds as well: of the last letter two bits count.
std::vector<std::string> spellings(const std::string& token) {
    static const std::string letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    std::vector<std::string> all;
    const std::size_t last = letters.find(token.back());
    for (std::size_t low = 0; low < 16; ++low) {
        all.push_back(token);
        all.back().back() = letters[(last & 0x30U) | low];
    }
    return all;
}

// A whole site may stand behind one address.
TEST_F(GatewayLimitsTest, SlowLargeBodiesOfOneTokenLeaveTheAddressesPlacesToOthers) {
    const auto eves = spellings(backend_.token(auth::Role::kOperator));
    std::vector<RawConnection> connections;
    for (std::size_t i = 0; i < kMoreThan64; ++i) {
        connections.emplace_back(port());
        ASSERT_TRUE(connections.back().send(head_of_upload(eves[i % eves.size()]) + "x"));
    }
    const auto upload = [&](const std::string& token) {
        http::ClientOptions options;
        options.base_url = "http://" + options_.listen;
        options.token = token;
        options.attempts_max = 1;
        return http::Client(options).call(Method::kPut, "/store/v1/blobs/abcd", std::string(1'500'000, 'x'))->status;
    };
    EXPECT_TRUE(holds_soon(connections, [&] { return upload(eves[0]) == 429; }));
    const std::string ada = backend_.token(auth::Role::kOperator);
    for (int i = 0; i < 10; ++i) EXPECT_EQ(upload(ada), 200) << i;
}

TEST_F(GatewayLimitsTest, AnAddressHas64LargeBodiesOnTheirWayHoweverManyTokensItHas) {
    std::vector<RawConnection> connections;
    for (int i = 0; i < kMoreThan64; ++i) {
        connections.emplace_back(port(), "127.0.0.2");
        ASSERT_TRUE(connections.back().send(head_of_upload(backend_.token(auth::Role::kOperator)) + "x"));
    }
    const std::string token = backend_.token(auth::Role::kOperator);
    const auto answer_to = [&](const char* from, const std::string& length, const std::string& body) {
        const RawConnection connection(port(), from);
        connection.send("PUT /store/v1/blobs/abcd HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + token +
                        "\r\nConnection: close\r\n" + length + "\r\n\r\n" + body);
        return connection.read_until("\r\n").substr(0, 12);
    };
    const std::string large = "Content-Length: 1000000";
    const std::string body(1'000'000, 'x');
    // The workers take connections as they come: the last of the 64 may be seen late.
    const auto is_refused_soon = [&](const std::string& length, const std::string& of) {
        return holds_soon(connections, [&] { return answer_to("127.0.0.2", length, of) == "HTTP/1.1 429"; });
    };
    EXPECT_TRUE(is_refused_soon(large, body));
    EXPECT_TRUE(is_refused_soon("Transfer-Encoding: chunked", "0\r\n\r\n"));
    EXPECT_EQ(answer_to("127.0.0.2", "Content-Length: 1", "x"), "HTTP/1.1 200") << "a small one";
    EXPECT_EQ(answer_to("127.0.0.1", large, body), "HTTP/1.1 200") << "another address";
}

TEST_F(GatewayLimitsTest, ForgedTokensOfAnAddressAreLookedAtSoManyTimesASecond) {
    auto honest = client();
    ASSERT_EQ(honest.call(Method::kGet, "/registry/v1/owned/x")->status, 200);
    const Flood flood = flood_with_forged_tokens("127.0.0.1", [](int) { return ""; });
    EXPECT_GT(flood.refused, 0);
    EXPECT_GT(flood.passed_over, 0) << flood.refused;
    EXPECT_EQ(honest.call(Method::kGet, "/registry/v1/owned/x")->status, 200) << "its token is remembered";
}

// Each of a proxy's clients has its own limits; who is no trusted proxy has those of its own address, whatever it says.
TEST_F(GatewayLimitsTest, BehindATrustedProxyAnAddressIsTheClients) {
    ASSERT_TRUE(stop_recorded(pid_file(), SIGQUIT, std::chrono::seconds(5)).ok());
    options_.trusted_proxies = "127.0.0.9,2001:db8::/32";
    start();
    const auto forwarded_for = [](int i) {
        return "X-Forwarded-For: 192.0.2.1, 198.51." + std::to_string(i / 250) + "." + std::to_string(i % 250) +
               ", 2001:db8::1\r\n";
    };
    const Flood by_proxy = flood_with_forged_tokens("127.0.0.9", forwarded_for);
    EXPECT_GT(by_proxy.refused, 0);
    EXPECT_EQ(by_proxy.passed_over, 0);
    const Flood by_one_network = flood_with_forged_tokens("127.0.0.9", [](int i) {
        char address[64];
        std::snprintf(address, sizeof address, "X-Forwarded-For: 2001:db9::%x:%x\r\n", 7 * i + 1, i);
        return std::string(address);
    });
    EXPECT_GT(by_one_network.refused, 0);
    EXPECT_GT(by_one_network.passed_over, 0) << "whoever has one address of IPv6 has its whole /64";
    const Flood by_another = flood_with_forged_tokens("127.0.0.3", forwarded_for);
    EXPECT_GT(by_another.refused, 0);
    EXPECT_GT(by_another.passed_over, 0);
    EXPECT_TRUE(holds_soon({}, [&] { return read_file(options_.access_log)->find(" 198.51.3.") != std::string::npos; }))
        << "the log has the client's address";
}

TEST_F(GatewayLimitsTest, WhatStrangersAskFillsNoLog) {
    std::string requests;
    for (int i = 0; i < 60; ++i)
        requests += "GET /registry/v1/" + std::string(15'000, '\xff') + " HTTP/1.1\r\nHost: x\r\n\r\n";
    requests += "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    // Of what only looks like a token, too.
    const std::string forged = " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer a.b." + std::string(86, 'x') + "\r\n";
    std::string as_somebody;
    for (const char* path : {"/healthz", "/registry/readyz", "/registry/v1/things/x", "/no/such/path", "/console/none"})
        for (int i = 0; i < 12; ++i) as_somebody += "GET " + std::string(path) + forged + "\r\n";
    as_somebody += "GET /healthz" + forged + "Connection: close\r\n\r\n";
    for (int i = 0; i < 5; ++i)
        for (const std::string& text : {requests, as_somebody}) {
            const RawConnection connection(port());
            ASSERT_TRUE(connection.send(text));
            EXPECT_TRUE(connection.read_until("no such text: until it hangs up").ends_with("\n"));
        }
    const std::string with_token = "/registry/v1/things/of-somebody-with-a-token";
    ASSERT_EQ(client().call(Method::kGet, with_token)->status, 200);
    // nginx writes the line when the answer is already gone.
    EXPECT_TRUE(holds_soon({}, [&] { return count_of(read_file(options_.access_log).value(), with_token) == 1; }));
    EXPECT_LT(std::filesystem::file_size(options_.access_log), 50'000U) << "600 lines were asked for";
    EXPECT_LT(std::filesystem::file_size(directory_.path() / "nginx.log"), 50'000U);
}

TEST_F(GatewayLimitsTest, HalfRequestsOfOneAddressKeepNobodyOut) {
    rlimit limit{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 8192);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
    std::vector<RawConnection> connections;
    for (int i = 0; i < 2100; ++i) {
        connections.emplace_back(port(), "127.0.0.2");
        ASSERT_TRUE(connections.back().send("GET /healthz HTTP/1.1\r\nHost: "));
    }
    for (int i = 0; i < 20; ++i) {
        const auto answer = client().call(Method::kGet, "/registry/v1/things/x");
        ASSERT_TRUE(answer.ok()) << answer.error().message;
        EXPECT_EQ(answer->status, 200);
    }
}

// 500 sites with 3 connections each and 1,000 people who watch, each with 2: 3,500, and as many to the services.
TEST_F(GatewayLimitsTest, AllSitesAndAllWhoWatchHaveRoom) {
    constexpr std::size_t kClients = 3500;
    std::map<std::string, std::size_t> numbers;
    std::istringstream configuration(gateway_configuration(options_, look_up_services(options_)).value());
    for (std::string name, value; configuration >> name;)
        if (name.starts_with("worker_") && configuration >> value) numbers[name] = std::stoul(value);
    EXPECT_GE(numbers["worker_connections"], 2 * kClients) << "one worker may have to hold all";
    EXPECT_GE(numbers["worker_processes"], 2U);
    rlimit limit{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
    EXPECT_GE(numbers["worker_rlimit_nofile"], std::min<std::size_t>(limit.rlim_max, 4 * kClients))
        << "a request may have two files open beside its two connections";
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 8192);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_cur < kClients + 500) GTEST_SKIP() << "this system lets a process open too few files";
    std::vector<RawConnection> clients;
    for (std::size_t i = 0; i < kClients; ++i) {
        clients.emplace_back(port(), ("127.0.0." + std::to_string(2 + i % 20)).c_str());
        ASSERT_TRUE(clients.back().send("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"));
        ASSERT_TRUE(clients.back().read_until("}\n").starts_with("HTTP/1.1 200 ")) << i;
    }
    ASSERT_TRUE(clients.front().send("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"));
    EXPECT_TRUE(clients.front().read_until("}\n").starts_with("HTTP/1.1 200 ")) << "the first is still there";
    EXPECT_EQ(client().call(Method::kGet, "/registry/v1/things/x")->status, 200);
}

TEST_F(GatewayLimitsTest, AHeaderThatComesLetterByLetterIsHungUpOn) {
    const RawConnection slow(port());
    ASSERT_TRUE(slow.send("GET /healthz HTTP/1.1\r\nX-Long: "));
    // After 10 s; nginx' own default is 60.
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    bool is_open = true;
    while (is_open && std::chrono::steady_clock::now() < deadline)
        is_open = slow.send("x") && !slow.is_readable(std::chrono::milliseconds(500));
    EXPECT_FALSE(is_open);
}

TEST_F(GatewayLimitsTest, StrangersGetSoManyAnswersASecond) {
    std::string requests;
    for (int i = 0; i < 900; ++i) requests += "GET /registry/v1/things/x HTTP/1.1\r\nHost: x\r\n\r\n";
    requests += "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    // Side by side: one after the other they could ask for less than they get each second.
    std::vector<RawConnection> connections;
    for (int i = 0; i < 8; ++i) {
        connections.emplace_back(port());
        ASSERT_TRUE(connections.back().send(requests));
    }
    std::string answers;
    for (const RawConnection& connection : connections)
        answers += connection.read_until("no such text: until it hangs up");
    EXPECT_NE(answers.find("HTTP/1.1 200 "), std::string::npos);
    EXPECT_NE(answers.find("HTTP/1.1 429 "), std::string::npos);
    EXPECT_NE(answers.find("urn:atoll:problem:resource-exhausted"), std::string::npos);
    EXPECT_EQ(client().call(Method::kGet, "/registry/v1/things/x")->status, 200) << "it shows a token";
}

TEST_F(GatewayLimitsTest, WhatIsNoRequestGetsAProblem) {
    for (const std::string line : {"GET /registry/v1/things/a%00b HTTP/1.1", "GET /registry/v1/things/%zz HTTP/1.1",
                                   "GET /registry/v1/things/% HTTP/1.1", "GET /registry/../../x HTTP/1.1",
                                   "get /registry/ HTTP/1.1", "GET /registry/ HTTP/9.1"}) {
        const RawConnection connection(port());
        ASSERT_TRUE(connection.send(line + "\r\nHost: x\r\nConnection: close\r\n\r\n"));
        const std::string answer = connection.read_until("}\n");
        EXPECT_TRUE(answer.starts_with("HTTP/1.1 400 ")) << line << "\n" << answer;
        EXPECT_NE(answer.find("Content-Type: application/problem+json"), std::string::npos) << line << "\n" << answer;
        EXPECT_NE(answer.find("urn:atoll:problem:invalid-argument"), std::string::npos) << line << "\n" << answer;
    }
}

TEST_F(GatewayLimitsTest, WhateverNginxRefusesByItselfIsAProblemOfThatStatus) {
    struct Case {
        int status;
        std::string request;  // without its last empty line
    };
    const std::string upload = "POST /registry/v1/things HTTP/1.1\r\n";
    const Case cases[] = {
        {501, upload + "Transfer-Encoding: gzip"},
        {501, upload + "Transfer-Encoding: xchunked"},
        {501,
         upload + "Transfer-Encoding: chunked, gzip\r\nAuthorization: Bearer " + backend_.token(auth::Role::kOperator)},
        {400, upload + "Transfer-Encoding: chunked\r\nContent-Length: 5"},
        {400, upload + "Content-Length: many"},
        {400, "GET /registry/v1/things/a?" + std::string(20000, 'x') + " HTTP/1.1"},        // 414
        {400, "GET /registry/v1/things/a HTTP/1.1\r\nX-Long: " + std::string(20000, 'x')},  // 494
        {400, "GET /registry/v1/things/a HTTP/3.0"},                                        // 505
        {400, "GET /store/v1/models/a%2Fb HTTP/1.1"},                                       // 418
        {400, "GET /store/v1/models/a%5cb HTTP/1.1"},
        {400, "GET /dispatch/./metrics HTTP/1.1"},
        {400, "GET /dispatch/v1/%2e%2E/metrics HTTP/1.1"},
        {400, "GET /console/.. HTTP/1.1"},
        {400, "GET /store//%2e%2e/dispatch/metrics HTTP/1.1"},
        {400, "GET /store/v1/models/a%00 HTTP/1.1"},
        {400, std::string("GET /store/v1/models/a\0b HTTP/1.1", 33)},
        {404, "GET /store//v1 HTTP/1.1"},
        {405, "GET /store//v1/models/a//versions HTTP/1.1"},
        {404, "GET //console//nothing HTTP/1.1"},
        {400, "POST /store/v1/models/a%2Fb HTTP/1.1\r\nContent-Length: 5"},
        {401, upload + "Content-Length: 5\r\nAuthorization: Bearer x"},
        {403, "GET /store/v1/directories/ab HTTP/1.1"},
        {404, "GET /nothing HTTP/1.1"},
        {404, "GET /console/nothing HTTP/1.1"},
        {405, "TRACE /registry/v1/things/a HTTP/1.1"},
        {405, "POST /console/index.html HTTP/1.1\r\nContent-Length: 0"},
        {412, "GET /console/index.html HTTP/1.1\r\nIf-Match: \"another\""},
        {412, "GET /console/index.html HTTP/1.1\r\nIf-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT"},
        {413, upload + "Content-Length: 20000000\r\nAuthorization: Bearer " + backend_.token(auth::Role::kOperator)},
        {416, "GET /store/v1/blobs/cd HTTP/1.1\r\nRange: bytes=100-200"},
    };
    for (const Case& one : cases) {
        const RawConnection connection(port());
        ASSERT_TRUE(connection.send(one.request + "\r\nHost: x\r\nConnection: close\r\n\r\n"));
        const std::string answer = connection.read_until("}\n");
        const std::string shown = one.request.substr(0, 200) + "\n" + answer;
        EXPECT_TRUE(answer.starts_with("HTTP/1.1 " + std::to_string(one.status) + " ")) << shown;
        EXPECT_NE(answer.find("Content-Type: application/problem+json"), std::string::npos) << shown;
        const auto body = answer.find("\r\n\r\n");
        const auto problem =
            nlohmann::json::parse(body == std::string::npos ? "" : answer.substr(body), nullptr, false);
        ASSERT_TRUE(problem.is_object()) << shown;
        EXPECT_EQ(problem.value("status", 0), one.status) << shown;
        EXPECT_TRUE(problem.value("type", "").starts_with("urn:atoll:problem:")) << shown;
        EXPECT_FALSE(problem.value("detail", "").empty()) << shown;
    }
    // A page that no request gets is not there. 414, 418, 494 and 505 are the rows of 400; the others are other tests'.
    std::set<std::string> known = {"414", "418", "494", "495", "496", "497", "505", "429", "500", "502", "503", "504"};
    for (const Case& one : cases) known.insert(std::to_string(one.status));
    std::istringstream configuration(gateway_configuration(options_, look_up_services(options_)).value());
    for (std::string line; std::getline(configuration, line);) {
        std::istringstream words(line);
        std::string word;
        if (!(words >> word) || word != "error_page") continue;
        while (words >> word && word.find_first_not_of("0123456789") == std::string::npos)
            EXPECT_TRUE(known.contains(word)) << "no request gets the page of " << word;
    }
}

}  // namespace
}  // namespace atl::stack
