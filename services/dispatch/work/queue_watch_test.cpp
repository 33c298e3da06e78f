#include "services/dispatch/work/queue_watch.h"

#include <gtest/gtest.h>

#include "services/dispatch/db/facilities.h"
#include "services/dispatch/db/sql.h"
#include "services/dispatch/db/tasks.h"
#include "services/dispatch/testing/dispatch_fixture.h"
#include "services/dispatch/testing/fake_squeue.h"

namespace atl::dispatch {
namespace {

using json::Json;
using std::chrono::hours;
using std::chrono::milliseconds;

// Facilities of this machine, one of them with a squeue that does what the file "answer" beside it says.
class QueueWatchTest : public DispatchSchemaTest {
  protected:
    void SetUp() override {
        DispatchSchemaTest::SetUp();
        if (IsSkipped()) return;
        const std::string squeue = kFakeSqueue + std::string("echo asked >>\"${0%/*}/asked\"\n. \"${0%/*}/answer\"\n");
        ASSERT_TRUE(write_file_atomic(fake("squeue"), squeue, 0755).ok());
        answer("exit 0\n");
        connection_ = std::make_unique<pg::Connection>(connect());
        add_facility("leonardo", {{"kind", "slurm"}, {"queues", {{"main", Json::object()}}}});
        add_facility("laptop", {{"kind", "local"}});
    }
    void answer(const std::string& shell) const { ASSERT_TRUE(write_file_atomic(fake("answer"), shell).ok()); }
    void add_facility(const std::string& name, const Json& batch) {
        const std::string programs = fake("").parent_path();
        const Json facility = {{"name", name},
                               {"transport", {{"kind", "local"}}},
                               {"batch", batch},
                               {"environment", {{"PATH", programs + ":/usr/bin:/bin"}}},
                               {"work_dir", work_dir(name).string()}};
        auto transaction = pg::Transaction::begin(*connection_).value();
        ASSERT_TRUE(insert_facility(transaction, parse_facility(facility).value()).ok());
        ASSERT_TRUE(transaction.commit().ok());
    }
    void add_task(const std::string& facility) { add_preparing_task(*connection_, "t-" + facility, facility); }
    std::string next(std::chrono::milliseconds interval) {
        const auto found = take_queue_to_ask(*connection_, interval).value();
        return found ? found->facility.name : "";
    }
    std::optional<Waiting> waiting() { return find_facility(*connection_, "leonardo")->waiting; }

    std::unique_ptr<pg::Connection> connection_;
};

TEST_F(QueueWatchTest, OneIsAskedThatHasABatchSystemAndUnfinishedTasksAndWasNotAskedLately) {
    EXPECT_EQ(next(milliseconds(0)), "") << "nothing is to be done there";
    add_task("leonardo");
    add_task("laptop");
    EXPECT_EQ(next(hours(1)), "leonardo");
    EXPECT_EQ(next(hours(1)), "") << "it was asked just now";
    EXPECT_EQ(next(milliseconds(0)), "leonardo");
    ASSERT_TRUE(record_answer(*connection_, "leonardo", "no route to host", 60000, 60000).ok());
    EXPECT_EQ(next(milliseconds(0)), "") << "nothing there can be asked";
    ASSERT_TRUE(record_answer(*connection_, "leonardo", "", 60000, 60000).ok());
    ASSERT_TRUE(connection_->query("UPDATE tasks SET state = 'done'").ok());
    EXPECT_EQ(next(milliseconds(0)), "");
    ASSERT_TRUE(record_batch_silence(*connection_, "leonardo", "a check got no answer").ok());
    EXPECT_EQ(next(milliseconds(0)), "leonardo") << "else it would be called silent for ever";
}

TEST_F(QueueWatchTest, ASlurmThatStopsAnsweringIsSaidWithSinceWhenUntilItAnswersAgain) {
    const Settings settings = parse_settings(Json::parse(*read_file(config_file(0))).at("dispatch")).value();
    pg::Pool pool(conninfo_, "dispatch", 4);
    FacilityConnections connections(settings);
    add_task("leonardo");
    const QueueWatch watch(pool, connections, 2, milliseconds(100));
    ASSERT_TRUE(eventually([&] { return !lines("asked").empty(); }));
    EXPECT_EQ(waiting(), std::nullopt);
    answer("echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2\nexit 1\n");
    ASSERT_TRUE(eventually([&] { return waiting().has_value(); }));
    const Waiting first = *waiting();
    EXPECT_EQ(first.reason,
              "Slurm of leonardo does not answer: slurm_load_jobs error: Unable to contact slurm controller (connect "
              "failure)");
    EXPECT_GT(first.since_ms, 0);
    const std::size_t asked = lines("asked").size();
    ASSERT_TRUE(eventually([&] { return lines("asked").size() > asked + 2; }));
    EXPECT_EQ(waiting()->since_ms, first.since_ms);
    answer("exit 0\n");
    EXPECT_TRUE(eventually([&] { return !waiting(); }));
}

TEST_F(QueueWatchTest, OnlyAnAnswerToALaterQuestionEndsASilence) {
    const auto now_ms = [&] { return database_now_ms(*connection_).value(); };
    const std::int64_t before_ms = now_ms() - 1;
    ASSERT_TRUE(record_batch_silence(*connection_, "leonardo", "squeue gave no answer").ok());
    const Waiting first = *waiting();
    ASSERT_TRUE(record_batch_answer(*connection_, "leonardo", before_ms).ok());
    ASSERT_TRUE(record_answer(*connection_, "leonardo", "", 60000, 60000).ok());  // a look that needs no squeue
    ASSERT_TRUE(waiting().has_value());
    ASSERT_TRUE(record_batch_silence(*connection_, "leonardo", "scancel gave no answer").ok());
    EXPECT_EQ(waiting()->reason, "scancel gave no answer");
    EXPECT_EQ(waiting()->since_ms, first.since_ms);
    ASSERT_TRUE(record_batch_answer(*connection_, "leonardo", now_ms() + 1).ok());
    EXPECT_EQ(waiting(), std::nullopt);
}

}  // namespace
}  // namespace atl::dispatch
