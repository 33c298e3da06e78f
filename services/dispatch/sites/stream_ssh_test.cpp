#include <gtest/gtest.h>
#include <malloc.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <thread>

#include "services/dispatch/sites/transport/frame.h"
#include "services/dispatch/testing/ssh_fixture.h"
#include "services/dispatch/testing/stream_check.h"
#include "shared/base/testing/sanitizers.h"
#include "shared/store_client/seal.h"
#include "shared/store_client/transfer.h"
#include "tests/integration/tcp_gate.h"

// Models and updates through the sessions of a real sshd. ATOLL_STREAM_MIB says how large they are (24), with 1024 or
// more the pace is compared with ssh's own of the same file.
namespace atl::dispatch {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using store_client::Manifest;

// A line of /proc/self/status, in bytes.
std::uint64_t memory_of(const std::string& line) {
    const std::string status = read_file("/proc/self/status").value();
    unsigned long long kib = 0;
    const auto found = status.find("\n" + line + ":");
    EXPECT_EQ(std::sscanf(status.c_str() + found + line.size() + 2, "%llu kB", &kib), 1) << line;
    return kib << 10;
}

void forget_memory_peak() {
    std::FILE* file = std::fopen("/proc/self/clear_refs", "w");
    ASSERT_NE(file, nullptr);
    std::fputs("5", file);
    std::fclose(file);
}

// Of what this process has started: the sessions' ssh, not the connection's.
void kill_sessions() {
    for (const pid_t process : family_of(::getpid())) {
        const auto name = read_file("/proc/" + std::to_string(process) + "/comm");
        if (process != ::getpid() && name.ok() && *name == "ssh\n") ::kill(process, SIGKILL);
    }
}

class StreamOverSshTest : public SshTransportTest {
  protected:
    void SetUp() override {
        settings_.logins_max = 1000;
        SshTransportTest::SetUp();
        if (IsSkipped()) return;
        gate_ = std::make_unique<TcpGate>("127.0.0.1:" + port_);
        gate_->open();
        write_config("gated_config", "Port " + port_, "Port " + gate_->address().substr(10));
        const std::string key = read_file(file("host.pub")).value();
        gated_ = make_transport("gated", "gated_config", key.substr(0, key.find(' ', key.find(' ') + 1)));
        watched_ = std::make_shared<WatchedTransport>(gated_);
        ASSERT_TRUE(write_file_atomic(file("atoll"), "#!/bin/sh\nexit 1\n", 0755).ok());
        ASSERT_TRUE(write_file_atomic(file("atoll-trainer"), "#!/bin/sh\n", 0755).ok());
        const char* mib = std::getenv("ATOLL_STREAM_MIB");
        bytes_ = (mib == nullptr ? 24U : std::strtoull(mib, nullptr, 10)) << 20;
        std::printf("seed %llu\n", static_cast<unsigned long long>(seed_));
    }
    void TearDown() override {
        watched_.reset();
        gated_.reset();
        SshTransportTest::TearDown();
    }
    StreamSite site() {
        Facility facility;
        facility.name = "gated";
        facility.batch.kind = BatchKind::kLocal;
        facility.work_dir = file("work");
        facility.programs = directory_.path().string();
        return StreamSite(facility, watched_, "", *turns_);
    }
    void make_model() {
        make_shards(file("model"), bytes_, random_);
        version_ = store_.add_version(file("model"));
        manifest_ = store_client::scan_directory(file("model"), 2).value();
    }
    Site::Move stage() {
        ATOLL_TRY(auto staged, site().stage({{version_}, "job", "atoll-of-job-1", store_.url(), store_.token()}));
        return staged.moving;
    }
    void make_update() {
        fs::create_directories(file("work/tasks/t/1"));
        make_shards(file("work/tasks/t/1/out"), bytes_, random_);
        ASSERT_TRUE(store_client::write_seal(file("work/tasks/t/1/seal.json"), file("work/tasks/t/1/out"), 2).ok());
        manifest_ = store_client::scan_directory(file("work/tasks/t/1/out"), 2).value();
    }
    Result<PushAnswer> push() {
        return site().push({file("work/tasks/t/1"), "m", store_.url(), store_.token(), json::Json::object()});
    }
    // Ten kills at bytes that the seed chooses: of the session's ssh, of the whole connection, of dispatch, whose
    // memory is lost too.
    void plan_kills() {
        watched_->marks.clear();
        for (std::uint64_t i = 0; i < 10; ++i)
            watched_->marks.push_back(watched_->bytes() + (i * 1000 + random_() % 1000) * bytes_ / 10000);
        watched_->on_mark = [this, kills = 0]() mutable {
            switch (kills++ % 3) {
                case 0:
                    return kill_sessions();
                case 1:
                    return break_connections();
                default:
                    lose_turns_ = true;
                    return kill_sessions();
            }
        };
    }
    void recover() {
        if (std::exchange(lose_turns_, false)) turns_.emplace(2);
    }
    // What dispatch does, in a process of its own, whose memory is no store's and no test's.
    void move_as_dispatch(const char* what, const std::function<void()>& move) {
        std::fflush(stdout);
        const std::uint64_t bytes_before = gate_->bytes();
        const auto begin = Clock::now();
        if (ATOLL_SANITIZED) {  // which has no threads after a fork
            move();
            return expect_cheap(what, bytes_before, begin);
        }
        const pid_t dispatch = ::fork();
        if (dispatch == 0) {
            ::malloc_trim(0);  // what earlier tests have left
            forget_memory_peak();
            const std::uint64_t memory_before = memory_of("VmRSS");
            move();
            watched_.reset();
            gated_.reset();
            const std::uint64_t peak = memory_of("VmHWM");
            std::printf("memory %.0f MiB at most, %.0f before\n", static_cast<double>(peak) / (1 << 20),
                        static_cast<double>(memory_before) / (1 << 20));
            std::fflush(stdout);
            EXPECT_LT(peak, 256U << 20);
            ::_exit(HasFailure() ? 1 : 0);
        }
        int status = -1;
        ASSERT_EQ(::waitpid(dispatch, &status, 0), dispatch);
        EXPECT_EQ(status, 0);
        expect_cheap(what, bytes_before, begin);
    }
    // What one way has cost, and what it must not.
    void expect_cheap(const char* what, std::uint64_t bytes_before, Clock::time_point begin) {
        const auto size = static_cast<double>(manifest_.size_bytes());
        const auto travelled = static_cast<double>(gate_->bytes() - bytes_before);
        const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
        std::printf("%s with ten kills: %.1f of %.1f MB travelled, %.3f; %.0f MB/s\n", what, travelled / 1e6,
                    size / 1e6, travelled / size, size / 1e6 / seconds);
        // What was on its way at a kill is lost; and of an update, when dispatch was killed, the chunk in hand.
        constexpr double kLostByKill = 8e6;
        EXPECT_LE(travelled, bytes_ >= 1U << 30 ? 1.05 * size : 1.05 * size + 10 * kLostByKill);
    }

    const std::uint64_t seed_ = std::random_device()();
    std::mt19937_64 random_{seed_};
    FileStore store_;
    std::optional<StreamTurns> turns_{std::in_place, 2};
    bool lose_turns_ = false;
    std::unique_ptr<TcpGate> gate_;
    std::shared_ptr<Transport> gated_;
    std::shared_ptr<WatchedTransport> watched_;
    std::uint64_t bytes_ = 0;
    std::string version_;
    Manifest manifest_;
};

TEST_F(StreamOverSshTest, AModelArrivesThoughSshIsKilledTenTimes) {
    make_model();
    plan_kills();
    move_as_dispatch("a model", [&] {
        for (bool is_there = false; !is_there; recover()) {
            const auto moving = stage();
            ASSERT_TRUE(moving.ok() || is_silence(moving.error())) << moving.error().message;
            is_there = moving.ok() && !*moving;
        }
        EXPECT_TRUE(watched_->marks.empty());
    });
    const Status same = store_client::verify_directory(file("work/models/" + version_), manifest_, 2);
    EXPECT_TRUE(same.ok()) << same.error().message;
}

TEST_F(StreamOverSshTest, AnUpdateIsHandedInThoughSshIsKilledTenTimes) {
    make_update();
    plan_kills();
    move_as_dispatch("an update", [&] {
        for (bool is_handed_in = false; !is_handed_in; recover()) {
            const auto answer = push();
            ASSERT_TRUE(answer.ok() || is_silence(answer.error())) << answer.error().message;
            ASSERT_FALSE(answer.ok() && answer->error) << answer->error->message;
            is_handed_in = answer.ok() && !answer->moving;
        }
        EXPECT_TRUE(watched_->marks.empty());
    });
    ASSERT_FALSE(store_.created().is_null());
    const auto handed_in = store_client::parse_manifest(store_.created().at("manifest"));
    EXPECT_EQ(store_client::manifest_digest(*handed_in), store_client::manifest_digest(manifest_));
}

TEST_F(StreamOverSshTest, WhileAModelStreamsLooksAreAnswered) {
    make_model();
    fs::create_directories(file("work/tasks/t/1"));
    std::mutex mutex;
    std::condition_variable_any changed;
    bool is_streaming = false;
    bool is_answered = false;
    watched_->marks = {bytes_ / 2};
    watched_->on_mark = [&] {
        std::unique_lock lock(mutex);
        is_streaming = true;
        changed.notify_all();
        EXPECT_TRUE(changed.wait_for(lock, std::chrono::minutes(3), [&] { return is_answered; }));
    };
    std::jthread looks([&] {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return is_streaming; });
        lock.unlock();
        Facility facility = site().facility();
        EXPECT_TRUE(ScriptSite(facility, gated_, "").look({{file("work/tasks/t/1"), 0}}).ok());
        lock.lock();
        is_answered = true;
        changed.notify_all();
    });
    for (;;) {
        const auto moving = stage();
        ASSERT_TRUE(moving.ok()) << moving.error().message;
        if (!*moving) break;
    }
    EXPECT_TRUE(is_answered);
}

// Each way, and ssh alone with the same bytes, in turn.
TEST_F(StreamOverSshTest, DISABLED_ThePaceBesideSshAlone) {
    make_model();
    make_update();
    const std::string ssh = "ssh -F " + shell_quote(file("gated_config")) + " -o UserKnownHostsFile=/dev/null -o " +
                            "StrictHostKeyChecking=no -o LogLevel=ERROR site ";
    write_random(file("alone"), bytes_, random_);
    const auto measure = [&](const char* what, const std::function<void()>& move) {
        const auto begin = Clock::now();
        move();
        const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
        std::printf("%s: %.0f MB/s\n", what, static_cast<double>(bytes_) / 1e6 / seconds);
    };
    const auto shell = [&](const std::string& command) {
        CommandOptions options;
        options.timeout = std::chrono::minutes(10);
        const auto result = run_command({"sh", "-c", command}, options);
        ASSERT_TRUE(result.ok() && result->exit_code == 0) << result->err;
    };
    for (int turn = 0; turn < 3; ++turn) {
        measure("ssh alone, there", [&] { shell(ssh + shell_quote("cat >" + file("copy")) + " <" + file("alone")); });
        measure("a model", [&] {
            fs::remove_all(file("work/models"));
            for (auto moving = stage(); moving.ok() && *moving;) moving = stage();
        });
        ASSERT_TRUE(fs::exists(file("work/models/" + version_)));
        measure("ssh alone, back", [&] { shell(ssh + shell_quote("cat " + file("alone")) + " >" + file("copy")); });
        measure("an update", [&] {
            for (const auto& place : store_client::chunk_places(manifest_)) fs::remove(store_.blob(place.chunk.sha256));
            auto answer = push();
            while (answer.ok() && answer->moving) answer = push();
            ASSERT_TRUE(answer.ok() && !answer->error);
        });
    }
}

}  // namespace
}  // namespace atl::dispatch
