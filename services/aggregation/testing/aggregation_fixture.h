#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "services/aggregation/db/repository.h"
#include "services/aggregation/events/events.h"
#include "services/aggregation/routes/routes.h"
#include "services/aggregation/service.h"
#include "services/aggregation/testing/fake_dispatch.h"
#include "services/aggregation/work/worker.h"
#include "shared/base/file.h"
#include "shared/service/dead_letters.h"
#include "shared/service/testing/routes_fixture.h"

namespace atl::aggregation {

using json::Json;

// The service's routes on a real database, without any worker: a test plays these, dispatch and the store.
class AggregationTest : public service::RoutesFixture {
  protected:
    AggregationTest() : RoutesFixture(definition()) {}
    void add_routes(http::Server& server) override {
        routing_.emplace(*pool_, dispatch_settings());
        aggregation::add_routes(server, *routing_);
        service::add_dead_letter_routes("aggregation", server, *pool_,
                                        [](const std::string& id) -> Status { return not_found("none", id); });
    }

    static events::Event closed(std::int64_t round) {
        events::Event event;
        event.type = "atoll.round.closed.v1";
        event.data = {{"job", "j1"},
                      {"round", round},
                      {"model", "demo"},
                      {"base", std::string(64, '0')},
                      {"strategy", {{"name", "fedavg"}, {"weighting", "uniform"}}},
                      {"updates", Json::array({{{"facility", "leonardo"},
                                                {"task", "t1"},
                                                {"version", std::string(64, 'a')},
                                                {"samples", 1},
                                                {"tokens", 2},
                                                {"assigned", aggregate::to_json(aggregate::Assignment())}}})}};
        return event;
    }
    // Of round 1, by tasks t1 and t2, of which one is enough.
    static events::Event closed_by_two() {
        auto event = closed(1);
        Json other = event.data["updates"][0];
        other["task"] = "t2";
        event.data["updates"].push_back(other);
        event.data["quorum"] = 1;
        return event;
    }
    // Of a round that dispatch knows as the event says it.
    Status take(const events::Event& event) {
        dispatch_.add(event.data);
        return hear(event);
    }
    // Whatever dispatch knows.
    Status hear(const events::Event& event) {
        const Settings settings = dispatch_settings();
        auto lease = pool_->acquire().value();
        auto transaction = pg::Transaction::begin(*lease).value();
        ATOLL_RETURN_IF_ERROR(apply_event(transaction, event, settings));
        return transaction.commit();
    }
    Settings dispatch_settings() {
        Settings settings;
        settings.dispatch_url = dispatch_.url();
        settings.token_file = make_token();
        return settings;
    }
    std::filesystem::path make_token() {
        EXPECT_TRUE(write_file_atomic(directory_.path() / "token", "token").ok());
        return directory_.path() / "token";
    }
    Claim claim(const std::string& worker = "w") {
        return claim_work(*pool_->acquire().value(), {std::chrono::seconds(60), worker}).value().value();
    }
    // Runs one of the repository's functions in a committed transaction.
    template <class Function, class... Arguments>
    bool commit(Function function, const Arguments&... arguments) {
        auto lease = pool_->acquire().value();
        auto transaction = pg::Transaction::begin(*lease).value();
        const bool current = function(transaction, arguments...).value();
        EXPECT_TRUE(transaction.commit().ok());
        return current;
    }
    Settings settings_of(const http::TestServer& store) {
        Settings settings;
        settings.store_url = store.url();
        settings.token_file = make_token();
        return settings;
    }
    // Has a worker do what is due, with that store.
    Result<bool> work_once(const http::TestServer& store) {
        const Settings settings = settings_of(store);
        metrics::Registry metrics;
        return Worker(*pool_, settings, "", held_, metrics).work_once();
    }
    // In the service's schema.
    pg::Rows query(const std::string& sql) { return pool_->acquire().value()->query(sql).value(); }

    std::optional<Routing> routing_;
    TemporaryDirectory directory_;
    FakeDispatch dispatch_;
    pg::HeldLeases held_;
};

}  // namespace atl::aggregation
