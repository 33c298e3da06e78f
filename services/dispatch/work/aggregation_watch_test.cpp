#include "services/dispatch/work/aggregation_watch.h"

#include <gtest/gtest.h>

#include <atomic>

#include "services/dispatch/testing/dispatch_fixture.h"
#include "shared/http/testing/test_server.h"

namespace atl::dispatch {
namespace {

using json::Json;
using std::chrono::milliseconds;

// Jobs of a dispatch whose broker never answers.
class AggregationWatchTest : public DispatchTest {
  protected:
    void SetUp() override {
        DispatchTest::SetUp();
        if (IsSkipped()) return;
        begin({}, "127.0.0.1:1");
    }

    // Aggregation's answer to who asks about a round.
    http::Response answer(const http::Request& asked) {
        ++questions_;
        if (is_away_) return http::Response::problem(unavailable("not now"), "");
        const std::string round = "/v1/jobs/" + asked.param("job") + "/rounds/" + asked.param("round");
        return http::Response::json(200, aggregation_->aggregate(get(round + "/updates")));
    }

    std::atomic<bool> is_away_ = true;
    std::atomic<int> questions_ = 0;
    http::TestServer aggregation_api_{[this](http::Server& server) {
        server.route(http::Method::kPut, "/v1/aggregations/:job/:round", http::Access::open(),
                     [this](const http::Request& asked) { return answer(asked); });
    }};
};

TEST_F(AggregationWatchTest, WithoutKafkaAJobSaysWhatItWaitsForAndGoesOnWhenAggregationAnswers) {
    const auto issuer = auth::Issuer::from_pem(keys_.private_pem).value();
    const Catalog catalog(catalog_->url(), catalog_->url(), issuer, aggregation_api_.url());
    const Topics topics(prefix_);
    pg::Pool pool(conninfo_, "dispatch", 4);
    const std::string job = submit(job_request(2));
    const AggregationWatch watch(pool, catalog, topics,
                                 {.look = milliseconds(30),
                                  .unsent = milliseconds(100),
                                  .unanswered = milliseconds(300),
                                  .ask = milliseconds(100)});
    const auto says = [&](const Json& waiting, const char* what) {
        return waiting.is_object() && waiting.at("reason").get<std::string>().find(what) != std::string::npos;
    };
    for (const char* what : {"Kafka does not take", "aggregation cannot be asked: not now"}) {
        EXPECT_TRUE(
            eventually([&] { return says(get("/v1/jobs/" + job).value("aggregation_waiting", Json()), what); }));
        EXPECT_TRUE(eventually([&] {
            return says(get("/v1/jobs/" + job + "/rounds").at("items").back().value("waiting", Json()), what);
        }));
    }
    EXPECT_EQ(state_of(job), "running");
    is_away_ = false;
    ASSERT_TRUE(reaches(job, "completed")) << get("/v1/jobs/" + job).dump(2);
    EXPECT_FALSE(get("/v1/jobs/" + job).contains("aggregation_waiting"));
    EXPECT_GE(questions_, 2);
}

}  // namespace
}  // namespace atl::dispatch
