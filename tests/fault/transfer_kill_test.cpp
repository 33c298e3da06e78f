// A model pushed and pulled while the client, the store and the gateway are killed in turn.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>
#include <random>
#include <thread>

#include "shared/base/subprocess.h"
#include "shared/digest/digest.h"
#include "shared/model_config/testing/tiny_model.h"
#include "shared/store_client/transfer.h"
#include "tests/e2e/federation_fixture.h"
#include "tests/fault/processes.h"
#include "tests/integration/tcp_gate.h"

namespace atl::fault {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kModelBytes = 160U << 20;
constexpr int kKills = 10;
// The last one comes before: the rest travels in the time that a busy machine takes from the moment to the kill.
constexpr std::uint64_t kKillBytes = kModelBytes * 3 / 4;

class TransferKillTest : public e2e::FederationTest {
  protected:
    static void SetUpTestSuite() {
        e2e::FederationTest::SetUpTestSuite();
        if (HasFatalFailure()) return;
        gate_ = std::make_unique<TcpGate>(federation_->address().gateway);
        gate_->open();
    }
    static void TearDownTestSuite() {
        gate_.reset();
        e2e::FederationTest::TearDownTestSuite();
    }
    static fs::path model() { return federation_->path("large"); }
    static void make_model(std::mt19937_64& random) {
        constexpr std::uint64_t kFinite = 0xbfffffffbfffffff;  // of two fp32 numbers
        constexpr std::int64_t kRowBytes = 32;
        std::string weights(kModelBytes, '\0');
        for (std::size_t at = 0; at < weights.size(); at += sizeof(std::uint64_t)) {
            const std::uint64_t word = random() & kFinite;
            std::memcpy(weights.data() + at, &word, sizeof word);
        }
        model_config::write_tiny_model(model(), kModelBytes / kRowBytes, weights);
    }
    static std::string digest_of(const fs::path& directory) {
        return store_client::manifest_digest(store_client::scan_directory(directory, 2).value());
    }
    static pid_t start_client(const std::vector<std::string>& arguments) {
        std::vector<std::string> argv = {e2e::SmallFederation::program("atoll"), "--gateway",
                                         "http://" + gate_->address()};
        argv.insert(argv.end(), arguments.begin(), arguments.end());
        return start_daemon(argv, {.log = federation_->path("client.log"),
                                   .environment = {{"ATOLL_TOKEN", federation_->address().token}},
                                   .directory = {}})
            .value();
    }
    static void kill_and_reap(pid_t pid) {
        ::kill(pid, SIGKILL);
        ::waitpid(pid, nullptr, 0);
    }
    // With what it has started: an nginx that has lost its first process serves on.
    static void kill_component(const std::string& component) {
        const int first = std::atoi(read_file(federation_->path("stack/run") / (component + ".pid")).value().c_str());
        std::vector<Process> others = list_processes();
        std::erase_if(others, [&](const Process& process) { return process.parent != first; });
        ASSERT_TRUE(federation_->kill_component(component).ok());
        for (const Process& process : others) kill_and_reap(process.pid);
        const Status up = federation_->up();
        ASSERT_TRUE(up.ok()) << up.error().message;
    }

    // Runs the command until it succeeds, and kills at moments that the seed chooses, by the bytes that have travelled.
    // `is_there`: whether its outcome can be seen.
    static void transfer(const char* what, const std::vector<std::string>& arguments, std::mt19937_64& random,
                         const std::function<bool()>& is_there) {
        std::vector<std::uint64_t> moments;
        for (std::uint64_t i = 0; i < kKills; ++i)
            moments.push_back((i * 1000 + random() % 1000) * kKillBytes / (kKills * 1000));
        std::vector<std::string> victims = {"client", "store", "gateway"};
        std::shuffle(victims.begin(), victims.end(), random);
        std::map<std::string, int> kills;
        const std::uint64_t before = gate_->bytes();
        pid_t client = start_client(arguments);
        int status = 0;
        const auto deadline = Clock::now() + std::chrono::minutes(5);
        for (std::size_t killed = 0; Clock::now() < deadline;) {
            if (::waitpid(client, &status, WNOHANG) == client) {
                if (WIFEXITED(status) && WEXITSTATUS(status) == 0) break;
                client = start_client(arguments);  // it gave up, as a person would not
            }
            if (killed == kKills || gate_->bytes() - before < moments[killed]) {
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
                continue;
            }
            const std::string& victim = victims[killed++ % victims.size()];
            ++kills[victim];
            if (victim == "client") {
                kill_and_reap(client);
                EXPECT_FALSE(is_there()) << "after " << killed << " kills";
                client = start_client(arguments);
            } else {
                kill_component(victim);
                EXPECT_FALSE(is_there() && gate_->bytes() - before < kModelBytes) << "after " << killed << " kills";
            }
        }
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) kill_and_reap(client);
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
            << read_file(federation_->path("client.log")).value();
        EXPECT_TRUE(is_there());
        const auto bytes = static_cast<double>(gate_->bytes() - before);
        std::printf("%s: killed the client %d, the store %d, the gateway %d times; %.0f of %.0f MB travelled: %.2f\n",
                    what, kills["client"], kills["store"], kills["gateway"], bytes / 1e6, kModelBytes / 1e6,
                    bytes / kModelBytes);
        EXPECT_EQ(kills["client"] + kills["store"] + kills["gateway"], kKills);
        // What travels in vain when one of them dies is a chunk of each connection at most.
        const double in_flight = store_client::TransferOptions().connections * double{store_client::kChunkBytes};
        EXPECT_LT(bytes, 1.02 * kModelBytes + kKills * in_flight);
    }

    inline static std::unique_ptr<TcpGate> gate_;
};

TEST_F(TransferKillTest, AModelArrivesWholeThoughClientStoreAndGatewayDieTenTimes) {
    const std::uint64_t seed = std::random_device{}();
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
    std::mt19937_64 random(seed);
    make_model(random);
    const std::string digest = digest_of(model());
    transfer("push", {"model", "push", "large", model(), "--tag", "whole"}, random, [] {
        const auto versions = federation_->count_versions("large", "base");
        return versions.ok() && *versions > 0;
    });
    const fs::path copy = federation_->path("copy");
    transfer("pull", {"model", "pull", "large@whole", "--out", copy}, random, [&] { return fs::exists(copy); });
    EXPECT_EQ(digest_of(copy), digest);
    for (const auto& entry : fs::directory_iterator(copy.parent_path()))
        EXPECT_FALSE(entry.path().filename().string().ends_with(".partial")) << entry.path();
}

}  // namespace
}  // namespace atl::fault
