// Another user of the coordinator's machine takes the gateway's port while nginx is dead.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <fstream>
#include <mutex>
#include <thread>

#include "shared/base/file.h"
#include "shared/events/events.h"
#include "shared/pg/pg.h"
#include "tests/contract/running_stack.h"

namespace atl::contract {
namespace {

using http::Method;
using json::Json;

constexpr std::chrono::seconds kPatience{120};

// Answers every request with an empty object and keeps what it hears.
class Thief {
  public:
    // Waits until the port is free.
    explicit Thief(std::uint16_t port) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        const int on = 1;
        ::setsockopt(listening_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        const auto deadline = std::chrono::steady_clock::now() + kPatience;
        while (::bind(listening_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
            check(std::chrono::steady_clock::now() < deadline, "the port stays taken");
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
        check(::listen(listening_.get(), 64) == 0, "cannot listen");
        thread_ = std::jthread([this](const std::stop_token& stop) { serve(stop); });
    }

    std::string heard() const {
        const std::lock_guard lock(mutex_);
        return heard_;
    }

  private:
    void serve(const std::stop_token& stop) {
        while (!stop.stop_requested()) {
            pollfd waiting{listening_.get(), POLLIN, 0};
            if (::poll(&waiting, 1, 50) <= 0) continue;
            const UniqueFd caller(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
            char block[65536];
            const ssize_t count = ::recv(caller.get(), block, sizeof block, 0);
            const std::lock_guard lock(mutex_);
            if (count > 0) heard_.append(block, static_cast<std::size_t>(count));
            constexpr std::string_view kAnswer =
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
            (void)::send(caller.get(), kAnswer.data(), kAnswer.size(), MSG_NOSIGNAL);
        }
    }

    UniqueFd listening_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    mutable std::mutex mutex_;
    std::string heard_;
    std::jthread thread_;
};

// With its workers, as by the kernel when memory is short: its socket's file stays.
void kill_gateway(const RunningStack& stack) {
    std::ifstream file(stack.state() / "run/gateway.pid");
    pid_t pid = 0;
    file >> pid;
    ASSERT_GT(pid, 1);
    ASSERT_EQ(::kill(-pid, SIGKILL), 0);
}

// Empty where it went well.
template <class Outcome>
std::string message_of(const Outcome& outcome) {
    return outcome.ok() ? "" : outcome.error().message;
}

// A preparation, for which dispatch asks the registry.
Result<Json> prepare(const RunningStack& stack) {
    http::ClientOptions options;
    options.base_url = stack.address("dispatch");
    options.token = stack.token(auth::Role::kAdmin);
    options.attempts_max = 1;
    http::Client dispatch(options);
    ATOLL_RETURN_IF_ERROR(dispatch.post_json("/v1/facilities", {{"name", "here"},
                                                                {"transport", {{"kind", "local"}}},
                                                                {"batch", {{"kind", "local"}, {"slots", 1}}},
                                                                {"work_dir", stack.state() / "work"}}));
    return dispatch.post_json("/v1/preparations", {{"facility", "here"},
                                                   {"dataset", "diaries"},
                                                   {"tokenizer", {{"model", "llama"}, {"version", "v1"}}},
                                                   {"input", "texts"},
                                                   {"seq_len", 16}});
}

// A round, about which aggregation asks dispatch.
Status close_round(const std::string& conninfo) {
    ATOLL_TRY(auto connection, pg::connect(conninfo, "dispatch"));
    ATOLL_TRY(auto transaction, pg::Transaction::begin(connection));
    events::Event event;
    event.type = "atoll.round.closed.v1";
    event.source = "/dispatch";
    event.data = {{"job", "none"}, {"round", 1}};
    ATOLL_RETURN_IF_ERROR(events::add_to_outbox(transaction, "atoll.rounds", "none", std::move(event)));
    return transaction.commit();
}

// Until aggregation has been refused an answer, or the thief has heard of it.
void await_aggregations_question(const RunningStack& stack, const Thief& thief) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    const auto is_asked = [&] {
        const auto log = read_file(stack.state() / "logs/aggregation.log");
        return thief.heard().find("/dispatch/v1/jobs/none/rounds/1/updates") != std::string::npos ||
               (log.ok() && log->find("gateway.sock:/dispatch/v1/jobs/none/rounds/1/updates") != std::string::npos);
    };
    while (!is_asked()) {
        ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "aggregation has not asked dispatch";
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
}

TEST(StolenPortTest, WhoTakesTheGatewaysPortHearsNoToken) {
    RunningStack stack;
    ASSERT_EQ(message_of(stack.start()), "");
    kill_gateway(stack);
    {
        const Thief thief(stack.port());
        const std::string listed = message_of(stack.run({"job", "list"}));
        EXPECT_NE(listed.find("does not run"), std::string::npos) << listed;
        const std::string prepared = message_of(prepare(stack));
        EXPECT_NE(prepared.find("no answer from unix:"), std::string::npos) << prepared;
        EXPECT_EQ(message_of(close_round(stack.postgres())), "");
        await_aggregations_question(stack, thief);
        const std::string looked = message_of(stack.run({"status"}));
        EXPECT_NE(looked.find("not every component is ready"), std::string::npos) << looked;
        const std::string started_again = message_of(stack.run({"up"}));
        const std::string taken = "port " + std::to_string(stack.port()) + " (gateway), which this stack had, is taken";
        EXPECT_NE(started_again.find(taken), std::string::npos) << started_again;
        for (const char* secret : {"authorization", "Authorization", "Bearer"})
            EXPECT_EQ(thief.heard().find(secret), std::string::npos) << thief.heard();
    }
    EXPECT_EQ(message_of(stack.run({"up"})), "");
    EXPECT_EQ(message_of(stack.run({"job", "list"})), "");
}

}  // namespace
}  // namespace atl::contract
