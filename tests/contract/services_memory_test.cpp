// What the services' processes take of memory while they are sent what is small as text and large as values.
#include <gtest/gtest.h>

#include <sstream>
#include <thread>

#include "shared/base/testing/sanitizers.h"
#include "tests/contract/running_stack.h"

namespace atl::contract {
namespace {

using auth::Role;
using http::Method;

constexpr int kBodies = 40;
constexpr std::int64_t kDuringMiBMax = 512;
constexpr std::int64_t kAfterMiBMax = 256;

std::int64_t status_MiB(const std::string& pid, const std::string& key) {
    std::istringstream lines(read_file("/proc/" + pid + "/status").value());
    for (std::string line; std::getline(lines, line);)
        if (line.starts_with(key + ":")) return std::stoll(line.substr(key.size() + 1)) / 1024;
    return -1;
}

TEST(ServicesMemoryTest, BodiesOfManySmallValuesCostNoServiceMuchMemory) {
    ATOLL_SKIP_IF_SANITIZED();
    const RunningStack& stack = shared_stack();
    const std::string token = stack.token("eve", Role::kOperator);
    std::string body = "[{}";
    while (body.size() < 1'000'000) body += ",{}";
    body += "]";
    struct Row {
        const char* service;
        Method method;
        const char* path;
    };
    for (const auto& [service, method, path] :
         {Row{"registry", Method::kPost, "/v1/datasets"}, Row{"dispatch", Method::kPost, "/v1/jobs"},
          Row{"store", Method::kPost, "/v1/blobs/missing"}, Row{"aggregation", Method::kPut, "/v1/aggregations/a/1"}}) {
        std::vector<std::jthread> threads;
        for (int i = 0; i < kBodies; ++i)
            threads.emplace_back([&, service = service, method = method, path = path] {
                const int status = stack.call(service, method, path, token, body).status;
                // Aggregation takes nothing of an operator's.
                EXPECT_TRUE(status == 400 || status == 403 || status == 503 || status == 429)
                    << service << ": " << status;
            });
        threads.clear();
        std::string pid = read_file(stack.state() / "run" / (std::string(service) + ".pid")).value();
        pid = pid.substr(0, pid.find_first_not_of("0123456789"));
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        while (status_MiB(pid, "VmRSS") > kAfterMiBMax && std::chrono::steady_clock::now() < deadline)
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        std::cout << service << ": " << status_MiB(pid, "VmHWM") << " MiB at most, " << status_MiB(pid, "VmRSS")
                  << " MiB after\n";
        EXPECT_LE(status_MiB(pid, "VmHWM"), kDuringMiBMax) << service;
        EXPECT_LE(status_MiB(pid, "VmRSS"), kAfterMiBMax) << service;
    }
}

}  // namespace
}  // namespace atl::contract
