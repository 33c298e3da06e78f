// Models that are staged and updates that are handed in while the store is in trouble, or the way to it.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <thread>

#include "shared/digest/digest.h"
#include "tests/e2e/federation_fixture.h"

namespace atl {
namespace {

namespace fs = std::filesystem;
using json::Json;
using Clock = std::chrono::steady_clock;

// Longer than a step that is refused is repeated; ATOLL_OUTAGE_S says how long otherwise.
std::chrono::seconds outage() {
    const char* seconds = std::getenv("ATOLL_OUTAGE_S");
    return std::chrono::seconds(seconds != nullptr ? std::atoi(seconds) : 10);
}

class HandInTest : public e2e::FederationTest {
  protected:
    // A job of one round whose trainings may fail never. No two of them make the same update, which the store would
    // have.
    static std::string submit(const std::string& name) {
        static int seed = 0;
        Json spec = federation_->job_spec(name, 1);
        spec["training"]["seed"] = ++seed;
        spec["attempts_max"] = 1;
        spec["evaluation"] = {{"at", Json::array()}};
        const auto id = federation_->coordinator().submit(spec);
        EXPECT_TRUE(id.ok()) << id.error().message;
        return id.ok() ? *id : "";
    }
    // Where the store keeps its blobs.
    static fs::path blobs() { return federation_->path("stack") / "store/blobs"; }
    static Json trainings(const std::string& job) {
        const auto rounds = federation_->coordinator().rounds(job);
        return rounds.ok() ? rounds->at("items").back().at("tasks") : Json::array();
    }
    // Waits until both sites have met this trouble.
    static bool both_meet(const std::string& job, const std::string& trouble) {
        for (const auto deadline = Clock::now() + std::chrono::seconds(120); Clock::now() < deadline;) {
            int met = 0;
            for (const Json& task : trainings(job))
                met += task.value("attempt_error", "").find(trouble) != std::string::npos ? 1 : 0;
            if (met == 2) return true;
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
        }
        return false;
    }
    static void expect_completed_with_one_training_a_site(const std::string& job) {
        demo::Coordinator follower(federation_->address());
        // The pauses between the tries have grown as long as the outage was.
        const auto state = follower.follow(job, std::chrono::seconds(240) + 2 * outage(), [](const Json&) {});
        ASSERT_TRUE(state.ok()) << state.error().message;
        EXPECT_EQ(*state, "completed") << trainings(job).dump(2);
        for (const Json& task : trainings(job)) EXPECT_EQ(task.at("attempt"), 1);
    }
    static void signal_component(const std::string& component, int signal) {
        const auto record = read_file(federation_->path("stack/run") / (component + ".pid"));
        const int pid = std::atoi(record.value().c_str());
        ASSERT_GT(pid, 1);
        ASSERT_EQ(::kill(pid, signal), 0);
    }
    // Has the gateway answer what hands something in with this status. A job's output model is made before that.
    static void refuse_writes(int status) {
        const fs::path directory = federation_->path("stack");
        const fs::path file = directory / "nginx/nginx.conf";
        std::string text = read_file(file).value();
        const std::string begin = "set $write ";
        if (const auto before = text.find(begin); before != std::string::npos)
            text.erase(before, text.find('\n', before) + 1 - before);
        const auto at = text.find("absolute_redirect off;");
        ASSERT_NE(at, std::string::npos);
        text.insert(
            at, begin + "$request_method$uri; if ($write ~ \"^(PUT|POST)/store/v1/(blobs|models/[^/]*/versions)\") " +
                    "{ return " + std::to_string(status) + "; }\n");
        ASSERT_TRUE(write_file_atomic(file, text).ok());
        const int pid = std::atoi(read_file(directory / "run/gateway.pid").value().c_str());
        ASSERT_GT(pid, 1);
        ASSERT_EQ(::kill(pid, SIGHUP), 0);
    }
};

// The first one: no earlier job has left the model at the sites.
TEST_F(HandInTest, AStoreThatAnswers500WhileAModelIsStagedCostsWaitingAndNoAttempt) {
    // Of the base's tokenizer, which a submission does not read, the store finds a file where its directory was: an
    // error that it has no word for.
    const std::string sha256 = digest::sha256(read_file(federation_->path("base") / "tokenizer.model").value());
    const fs::path directory = blobs() / sha256.substr(0, 2);
    ASSERT_TRUE(fs::exists(directory)) << directory;
    fs::rename(directory, directory.string() + ".away");
    ASSERT_TRUE(write_file_atomic(directory, "").ok());
    const std::string job = submit("broken-staging");
    EXPECT_TRUE(both_meet(job, "staging models: exit status 1")) << trainings(job).dump(2);
    std::this_thread::sleep_for(outage());
    fs::remove(directory);
    fs::rename(directory.string() + ".away", directory);
    expect_completed_with_one_training_a_site(job);
}

TEST_F(HandInTest, AStoreThatAnswers500ForAWhileCostsWaitingAndNoTraining) {
    ASSERT_TRUE(fs::exists(blobs() / "tmp"));
    fs::rename(blobs() / "tmp", blobs() / "away");
    const std::string job = submit("broken-store");
    EXPECT_TRUE(both_meet(job, "failed")) << trainings(job).dump(2);
    std::this_thread::sleep_for(outage());  // the length of the outage is what is tried
    fs::rename(blobs() / "away", blobs() / "tmp");
    expect_completed_with_one_training_a_site(job);
}

TEST_F(HandInTest, AGatewayThatTakesNoTokenOrIsDownCostsWaitingAndNoTraining) {
    refuse_writes(401);
    const std::string job = submit("broken-gateway");
    EXPECT_TRUE(both_meet(job, "send a token")) << trainings(job).dump(2);  // the gateway's words of a 401
    refuse_writes(403);
    EXPECT_TRUE(both_meet(job, "may not show this")) << trainings(job).dump(2);
    ASSERT_TRUE(federation_->kill_component("gateway").ok());
    std::this_thread::sleep_for(outage());
    const Status up = federation_->up();
    ASSERT_TRUE(up.ok()) << up.error().message;
    expect_completed_with_one_training_a_site(job);
}

TEST_F(HandInTest, AStoreThatIsFrozenCostsWaitingAndNoTraining) {
    const std::string job = submit("frozen-store");
    signal_component("store", SIGSTOP);
    std::this_thread::sleep_for(outage());
    EXPECT_EQ(federation_->coordinator().job(job)->at("state"), "running") << "nothing could be handed in";
    signal_component("store", SIGCONT);
    expect_completed_with_one_training_a_site(job);
}

TEST_F(HandInTest, ARegistryThatIsFrozenCostsWaitingAndNothingThatWasPrepared) {
    // A job that needs no registry any more, and a preparation, which does when its texts are tokenised: the freeze
    // comes at once.
    const std::string job = submit("frozen-registry");
    const auto preparation =
        federation_->coordinator().prepare({{"facility", "a"},
                                            {"dataset", "text-a"},
                                            {"tokenizer", {{"model", "tiny"}, {"version", "base"}}},
                                            {"input", "corpus.jsonl"},
                                            {"seq_len", 16},
                                            {"batching", "packing"},
                                            {"validation_percent", 10}});
    ASSERT_TRUE(preparation.ok()) << preparation.error().message;
    signal_component("registry", SIGSTOP);
    expect_completed_with_one_training_a_site(job);  // which asks no registry
    http::ClientOptions options;
    options.base_url = federation_->address().gateway;
    options.token = federation_->address().token;
    options.attempts_max = 1;
    http::Client client(options);
    const auto refused = client.post_json("/dispatch/v1/jobs", federation_->job_spec("another", 1), "another");
    EXPECT_TRUE(!refused.ok() && refused.error().code == ErrorCode::kUnavailable);
    std::this_thread::sleep_for(outage());
    const std::string path = "/dispatch/v1/preparations/" + *preparation;
    EXPECT_EQ(client.get_json(path)->at("state"), "running") << "nothing could be registered";
    signal_component("registry", SIGCONT);
    const Status prepared =
        federation_->coordinator().await_preparation(*preparation, std::chrono::seconds(120) + outage());
    EXPECT_TRUE(prepared.ok()) << prepared.error().message;
    EXPECT_EQ(client.get_json(path)->at("attempt"), 1);
}

}  // namespace
}  // namespace atl
