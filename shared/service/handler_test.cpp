#include "shared/service/handler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>

#include "shared/pg/testing/database_fixture.h"
#include "shared/service/routes.h"

namespace atl::service {
namespace {

TEST(EtagTest, OnlyTheCurrentRevisionOrAStarMayChangeAResource) {
    http::Request request;
    EXPECT_EQ(check_if_match(request, 3).error().code, ErrorCode::kInvalidArgument);
    for (const char* header : {"\"3\"", "*", "\"1\", \"3\"", "\"1\" ,\"3\""}) {
        request.headers["if-match"] = header;
        EXPECT_TRUE(check_if_match(request, 3).ok()) << header;
    }
    for (const char* header : {"\"2\"", "3", "W/\"3\"", "\"33\"", ",", "\"3"}) {
        request.headers["if-match"] = header;
        EXPECT_EQ(check_if_match(request, 3).error().code, ErrorCode::kPreconditionFailed) << header;
    }
}

// A thousand items with a text of so many bytes each, by number.
class ListTest : public testing::Test {
  protected:
    json::Json ask(const http::Page& page, bool shows_cursor = true) {
        const auto read = [&](const http::Page& piece) {
            std::vector<json::Json> items;
            const int after = piece.after.empty() ? 0 : std::stoi(piece.after);
            for (int i = after + 1; i <= std::min<std::int64_t>(kItems, after + piece.limit + 1); ++i)
                items.push_back({{"number", i}, {"text", std::string(text_bytes_, 'x')}});
            items_read_max_ = std::max(items_read_max_, items.size());
            return Result(std::move(items));
        };
        const http::Response response = list(page, {"number", shows_cursor}, read).value();
        body_bytes_ = response.body.size();
        return json::Json::parse(response.body);
    }

    static constexpr int kItems = 1000;
    std::size_t text_bytes_ = 1;
    std::size_t items_read_max_ = 0;
    std::size_t body_bytes_ = 0;
};

TEST_F(ListTest, TheLastItemOfAPageIsTheCursor) {
    const auto cut = ask({.limit = 2, .after = ""});
    EXPECT_EQ(cut["items"].size(), 2U);
    EXPECT_EQ(cut["next"], "2");
    const auto whole = ask({.limit = kItems, .after = ""});
    EXPECT_EQ(whole["items"].size(), static_cast<std::size_t>(kItems));
    EXPECT_TRUE(whole["next"].is_null());
    EXPECT_EQ(ask({.limit = 3, .after = "999"})["items"].size(), 1U);
    EXPECT_EQ(ask({.limit = 3, .after = "1000"}), (json::Json{{"items", json::Json::array()}, {"next", nullptr}}));
    EXPECT_FALSE(ask({.limit = 2, .after = ""}, false)["items"][0].contains("number"));
}

TEST_F(ListTest, HoweverLongItsItemsAreAPageIsBoundedAndNoneIsLost) {
    text_bytes_ = 100'000;
    int seen = 900;
    for (json::Json after = "900"; !after.is_null();) {
        const auto page = ask({.limit = 1000, .after = after});
        EXPECT_LE(body_bytes_, kPageBytesMax + text_bytes_ + 100);
        for (const auto& item : page["items"]) EXPECT_EQ(item["number"], ++seen);
        after = page["next"];
    }
    EXPECT_EQ(seen, kItems);
    EXPECT_LE(items_read_max_, 17U) << "of the page, at once";
    text_bytes_ = 2 * kPageBytesMax;
    EXPECT_EQ(ask({.limit = 1000, .after = ""})["items"].size(), 1U) << "one at least";
}

TEST(AnswerTest, WhoAsksForTooMuchAtOnceIsToldSoAndWhenToAskAgain) {
    const http::Response refused = answer(Error{ErrorCode::kResourceExhausted, "64 of yours wait", {}}, {});
    EXPECT_EQ(refused.status, 429);
    const auto body = json::Json::parse(refused.body);
    EXPECT_EQ(body.at("status"), 429);
    EXPECT_EQ(body.at("type"), "urn:atoll:problem:resource-exhausted");
    EXPECT_NE(std::find(refused.headers.begin(), refused.headers.end(),
                        std::pair<std::string, std::string>("Retry-After", "1")),
              refused.headers.end());
    EXPECT_EQ(answer(unavailable("no database"), {}).status, 503);
}

class AnswerOnceTest : public pg::DatabaseTest {
  protected:
    void SetUp() override {
        DatabaseTest::SetUp();
        if (IsSkipped()) return;
        const std::string sql = std::string(kIdempotencyTableSql) + "CREATE TABLE effects (name text);";
        const pg::Migration migrations[] = {{1, sql}};
        ASSERT_TRUE(pg::migrate(*connection_, "thing", migrations).ok());
        pool_.emplace(conninfo_, "thing", 8);
    }

    static http::Request request(const std::string& key, const std::string& body, const std::string& subject = "ann") {
        http::Request request;
        request.method = http::Method::kPost;
        request.path = "/v1/things";
        request.body = body;
        request.headers["idempotency-key"] = key;
        request.principal = auth::Principal{.subject = subject, .role = auth::Role::kAdmin};
        return request;
    }

    http::Response create(const http::Request& request) {
        const auto work = [&](pg::Transaction& transaction) -> Result<http::Response> {
            ATOLL_RETURN_IF_ERROR(transaction.query("INSERT INTO effects VALUES ($1)", {request.body}));
            if (fail_) return conflict("not today");
            return http::Response::json(201, {{"number", ++number_}}).with("Location", "/v1/things/1");
        };
        return answer(idempotent(*pool_, request, work), request);
    }

    std::int64_t effects() {
        auto connection = pool_->acquire().value();
        return connection->query("SELECT count(*) AS n FROM effects").value().integer(0, "n");
    }

    std::optional<pg::Pool> pool_;
    std::atomic<int> number_ = 0;
    std::atomic<bool> fail_ = false;
};

TEST_F(AnswerOnceTest, ARepeatGetsTheFirstAnswerAndHasNoEffect) {
    const auto first = create(request("k1", "{}"));
    const auto second = create(request("k1", "{}"));
    EXPECT_EQ(first.status, 201);
    EXPECT_EQ(second.status, 201);
    EXPECT_EQ(second.body, first.body);
    EXPECT_EQ(second.headers, first.headers);
    EXPECT_EQ(effects(), 1);
}

TEST_F(AnswerOnceTest, WhatGoesBeforeIsDoneUntilThereIsAnAnswer) {
    int asked = 0;
    Status world = unavailable("nobody is there");
    const auto create_after = [&] {
        const auto before = [&]() -> Status {
            ++asked;
            return world;
        };
        const auto work = [](pg::Transaction&) -> Result<http::Response> {
            return http::Response::json(201, {{"number", 1}});
        };
        return answer(idempotent(*pool_, request("k1", "{}"), before, work), request("k1", "{}"));
    };
    EXPECT_EQ(create_after().status, 503);
    world = {};
    EXPECT_EQ(create_after().status, 201);
    EXPECT_EQ(create_after().status, 201);
    EXPECT_EQ(asked, 2) << "the third one had its answer";
}

TEST_F(AnswerOnceTest, OfOneSubjectTheNewestAnswersAreKeptAndFewBytes) {
    const auto rows = [&](const std::string& subject) {
        return pool_->acquire()
            .value()
            ->query("SELECT 1 FROM idempotency WHERE subject = $1", {subject})
            .value()
            .size();
    };
    const auto fill = [&](const std::string& subject, int count, int bytes) {
        const auto filled = pool_->acquire().value()->query(
            "INSERT INTO idempotency (subject, key, request_sha256, response, created_at) SELECT $1, 'old' || i, '', "
            "to_jsonb((SELECT string_agg(md5(random()::text), '') FROM generate_series(1, $3 / 32))), "
            "now() - interval '1 hour' + i * interval '1 s' FROM generate_series(1, $2) i",
            {subject, count, bytes});
        ASSERT_TRUE(filled.ok()) << filled.error().message;
    };
    fill("ann", 1200, 32);
    fill("bob", 20, 1 << 20);
    fill("carl", 1200, 32);
    const auto first = create(request("k1", "{}", "ann"));
    EXPECT_EQ(create(request("k1", "{}", "bob")).status, 201);
    EXPECT_EQ(rows("ann"), 1000);
    EXPECT_LE(rows("bob"), 12);
    EXPECT_EQ(rows("carl"), 1200) << "another's";
    EXPECT_EQ(create(request("k1", "{}", "ann")).body, first.body) << "the newest is there";
}

TEST_F(AnswerOnceTest, AnotherBodyUnderTheSameKeyConflicts) {
    create(request("k1", "{}"));
    const auto other = create(request("k1", "{\"a\":1}"));
    EXPECT_EQ(other.status, 409);
    EXPECT_EQ(json::Json::parse(other.body)["field"], "Idempotency-Key");
    EXPECT_EQ(effects(), 1);
}

TEST_F(AnswerOnceTest, KeysBelongToTheirSubject) {
    create(request("k1", "{}", "ann"));
    EXPECT_EQ(create(request("k1", "{}", "bob")).status, 201);
    EXPECT_EQ(effects(), 2);
}

TEST_F(AnswerOnceTest, AFailureIsNotKeptAndChangesNothing) {
    fail_ = true;
    EXPECT_EQ(create(request("k1", "{}")).status, 409);
    EXPECT_EQ(effects(), 0);
    fail_ = false;
    EXPECT_EQ(create(request("k1", "{}")).status, 201);
    EXPECT_EQ(effects(), 1);
}

TEST_F(AnswerOnceTest, WithoutAKeyEveryRequestTakesEffect) {
    for (int i = 0; i < 2; ++i) {
        auto without = request("k", "{}");
        without.headers.clear();
        create(without);
    }
    EXPECT_EQ(effects(), 2);
}

TEST_F(AnswerOnceTest, AKeyThatCannotBeOneIsNamed) {
    for (const std::string& key : {std::string(), std::string(201, 'k'), std::string("a b"), std::string("\xc3\xa9")}) {
        const auto response = create(request(key, "{}"));
        EXPECT_EQ(response.status, 422) << key;
        EXPECT_EQ(json::Json::parse(response.body)["field"], "Idempotency-Key");
    }
}

TEST_F(AnswerOnceTest, OfManyAtOnceOneTakesEffect) {
    std::vector<std::jthread> threads;
    std::atomic<int> wrong = 0;
    for (int i = 0; i < 8; ++i)
        threads.emplace_back([&] {
            if (create(request("k1", "{}")).body != "{\"number\":1}") ++wrong;
        });
    threads.clear();
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(effects(), 1);
}

}  // namespace
}  // namespace atl::service
