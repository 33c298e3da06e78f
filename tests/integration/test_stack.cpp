#include "tests/integration/test_stack.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "shared/base/file.h"
#include "shared/base/id.h"
#include "shared/json/json.h"
#include "shared/pg/pg.h"

namespace atl {
namespace {

void run_sql(const std::string& conninfo, const std::string& sql) {
    auto connection = pg::connect(conninfo);
    check(connection.ok(), connection.ok() ? "" : connection.error().message);
    const Status status = connection->script(sql);
    check(status.ok(), status.ok() ? "" : status.error().message);
}

}  // namespace

std::optional<TestStack> TestStack::from_environment() {
    const char* path = std::getenv("ATOLL_TEST_STACK");
    if (path == nullptr) return std::nullopt;
    const auto text = read_file(path);
    check(text.ok(), text.ok() ? "" : text.error().message);
    const auto description = json::parse(*text);
    check(description.ok(), std::string(path) + " is not valid JSON");
    return TestStack(description->value("postgres", ""),
                     description->value("kafka_credentials", "") + "@" + description->value("kafka", ""));
}

TestStack::TestStack(std::string postgres, std::string kafka)
    : postgres_(std::move(postgres)), kafka_(std::move(kafka)) {}

TestStack::~TestStack() {
    for (const auto& database : databases_) run_sql(postgres_, "DROP DATABASE " + database + " WITH (FORCE)");
}

std::string TestStack::create_database() {
    databases_.push_back(unique("atoll_test"));
    run_sql(postgres_, "CREATE DATABASE " + databases_.back());
    return postgres_ + " dbname=" + databases_.back();  // the last one counts
}

std::string TestStack::unique(const std::string& prefix) const {
    return prefix + "_" + new_id();
}

bool eventually(const std::function<bool()>& condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(3);
    while (!condition()) {
        if (std::chrono::steady_clock::now() > deadline) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return true;
}

std::uint16_t free_port() {
    // Below those that the kernel gives to clients: one of them could take it before the test does, or while the test
    // has its server start again.
    std::random_device random;
    std::uniform_int_distribution<int> below_ephemeral(10'000, 32'000);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int attempt = 0; attempt < 1000; ++attempt) {
        const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        address.sin_port = htons(static_cast<std::uint16_t>(below_ephemeral(random)));
        if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
            return ntohs(address.sin_port);
    }
    check(false, "no free TCP port on 127.0.0.1");
    return 0;
}

}  // namespace atl
