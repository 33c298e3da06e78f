#include "shared/pg/pg.h"

#include <array>
#include <thread>

#include "shared/pg/testing/database_fixture.h"

namespace atl::pg {
namespace {

using std::chrono::milliseconds;

class PgTest : public DatabaseTest {
  protected:
    Error error_of(const std::string& sql, const std::vector<Param>& params = {}) {
        const auto rows = connection_->query(sql, params);
        EXPECT_FALSE(rows.ok()) << sql;
        return rows.ok() ? Error{} : rows.error();
    }
    // Ends every other connection to the database, and waits until the server is done with it.
    void terminate_others() {
        const std::string others =
            " FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
        query("SELECT pg_terminate_backend(pid)" + others);
        EXPECT_TRUE(eventually([&] { return query("SELECT 1" + others).empty(); }));
    }
};

TEST_F(PgTest, ParametersOfEveryKindComeBackAsTheyWere) {
    const Rows rows = query(
        "SELECT $1::text AS a, $2::bigint AS b, $3::double precision AS c, $4::boolean AS d, $5::jsonb AS e,"
        " $6::text AS f, $7::text AS g",
        {"x'è\"", INT64_MIN, 0.1, true, json::Json{{"k", {1, 2}}}, nullptr, std::optional<std::string>("z")});
    ASSERT_EQ(rows.size(), 1);
    EXPECT_EQ(rows.text(0, "a"), "x'è\"");
    EXPECT_EQ(rows.integer(0, "b"), INT64_MIN);
    EXPECT_EQ(rows.number(0, "c"), 0.1);
    EXPECT_TRUE(rows.boolean(0, "d"));
    EXPECT_EQ(rows.json(0, "e"), (json::Json{{"k", {1, 2}}}));
    EXPECT_TRUE(rows.is_null(0, "f"));
    EXPECT_TRUE(rows.json(0, "f").is_null());
    EXPECT_EQ(rows.text(0, "g"), "z");
}

TEST_F(PgTest, ErrorsCarryACodeAndTheConstraint) {
    ASSERT_TRUE(connection_
                    ->script("CREATE TABLE a (name text CONSTRAINT a_name PRIMARY KEY, n int CONSTRAINT n_small CHECK"
                             " (n < 5)); CREATE TABLE b (a text CONSTRAINT b_a REFERENCES a); INSERT INTO a VALUES"
                             " ('x', 1)")
                    .ok());
    const Error nul = error_of("SELECT $1::jsonb", {"{\"loss\": \"\\u0000\"}"});
    EXPECT_EQ(nul.code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(nul.message, "text must not contain NUL characters (\\u0000)");
    const Error unique = error_of("INSERT INTO a VALUES ('x', 2)");
    EXPECT_EQ(unique.code, ErrorCode::kConflict);
    EXPECT_EQ(unique.field, "a_name");
    const Error reference = error_of("INSERT INTO b VALUES ('y')");
    EXPECT_EQ(reference.code, ErrorCode::kNotFound);
    EXPECT_EQ(reference.field, "b_a");
    const Error limit = error_of("INSERT INTO a VALUES ('z', 9)");
    EXPECT_EQ(limit.code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(limit.field, "n_small");
    EXPECT_EQ(error_of("SELECT nonsense").code, ErrorCode::kInternal);
    EXPECT_EQ(error_of("SELECT $1::text", {std::string("a\0b", 3)}).code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(error_of("SELECT $1::text", {"\xff"}).code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(error_of("SET statement_timeout = 10; SELECT pg_sleep(60)").code, ErrorCode::kInternal)
        << "two statements are a script, not a query";
    query("SET statement_timeout = 10");
    EXPECT_EQ(error_of("SELECT pg_sleep(60)").code, ErrorCode::kUnavailable);
}

TEST_F(PgTest, ResultsAreEqualWhenTheyHoldTheSame) {
    const pg::Rows rows = query("SELECT 'a' AS a, NULL AS b");
    EXPECT_EQ(rows, query("SELECT 'a' AS a, NULL AS b"));
    for (const char* other : {"SELECT 'a' AS a, '' AS b", "SELECT 'a' AS a, NULL AS b WHERE false", "SELECT 'a' AS a",
                              "SELECT 'b' AS a, NULL AS b", "SELECT 'a' AS a, NULL AS b FROM generate_series(1, 2)"})
        EXPECT_FALSE(rows == query(other)) << other;
}

TEST_F(PgTest, AStatementThatComesAgainIsPreparedOnce) {
    ASSERT_TRUE(connection_->script("CREATE TABLE a (name text PRIMARY KEY)").ok());
    const auto count = [&] { return query("SELECT count(*) AS n FROM pg_prepared_statements").integer(0, "n"); };
    for (int i = 0; i < 5; ++i) query("SELECT $1::int AS i", {i});
    EXPECT_EQ(count(), 1);
    EXPECT_EQ(count(), 2) << "a statement without parameters too: this one";
    for (int i = 0; i < 5; ++i) query("NOTIFY a");  // has no plan
    query("INSERT INTO a VALUES ($1)", {"x"});
    for (int i = 0; i < 5; ++i) EXPECT_EQ(error_of("INSERT INTO a VALUES ($1)", {"x"}).code, ErrorCode::kConflict);
    EXPECT_EQ(count(), 3);
    for (int i = 0; i < 600; ++i) query("SELECT $1::int AS i" + std::to_string(i / 2), {i});
    EXPECT_LE(count(), 256) << "statements that are made anew each time must not fill the server's memory";
}

TEST_F(PgTest, AChangedTableCostsOneUnavailableAnswer) {
    ASSERT_TRUE(connection_->script("CREATE TABLE a (n int); INSERT INTO a VALUES (1)").ok());
    const std::string sql = "SELECT * FROM a WHERE n = $1";
    for (int i = 0; i < 2; ++i) query(sql, {1});
    ASSERT_TRUE(connection_->script("ALTER TABLE a ADD COLUMN more int DEFAULT 7").ok());
    EXPECT_EQ(error_of(sql, {1}).code, ErrorCode::kUnavailable);
    EXPECT_EQ(query(sql, {1}).integer(0, "more"), 7);
    query(sql, {1});
    ASSERT_TRUE(connection_->script("DEALLOCATE ALL").ok());
    EXPECT_EQ(error_of(sql, {1}).code, ErrorCode::kUnavailable);
    EXPECT_EQ(query(sql, {1}).integer(0, "n"), 1);
}

TEST_F(PgTest, AnUnreachableServerIsUnavailable) {
    const auto result = connect("host=127.0.0.1 port=1 dbname=x");
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, ErrorCode::kUnavailable);
    EXPECT_EQ(result.error().message, "the database does not answer: Connection refused");
    const auto gone = connect("host=/var/lib/atoll/nowhere dbname=x");
    ASSERT_FALSE(gone.ok());
    EXPECT_EQ(gone.error().message, "the database does not answer: No such file or directory") << "no path of ours";
}

TEST_F(PgTest, ATransactionThatIsNotCommittedLeavesNothing) {
    query("CREATE TABLE t (n int)");
    {
        auto transaction = Transaction::begin(*connection_).value();
        ASSERT_TRUE(transaction.query("INSERT INTO t VALUES (1)").ok());
    }
    EXPECT_TRUE(query("SELECT * FROM t").empty());
    {
        auto transaction = Transaction::begin(*connection_).value();
        EXPECT_EQ(transaction.query("INSERT INTO t VALUES (1), (2)").value().affected(), 2);
        EXPECT_TRUE(transaction.commit().ok());
    }
    EXPECT_EQ(query("SELECT * FROM t").size(), 2);
}

TEST_F(PgTest, CommitAfterAFailedStatementIsAnError) {
    auto transaction = Transaction::begin(*connection_).value();
    ASSERT_FALSE(transaction.query("SELECT nonsense").ok());
    EXPECT_FALSE(transaction.commit().ok());
}

TEST_F(PgTest, ANotificationWakesAndSilenceTimesOut) {
    auto listener = connect(conninfo_).value();
    ASSERT_TRUE(listener.query("LISTEN woken").ok());
    EXPECT_TRUE(listener.wait_for_notifications(milliseconds(10)).value().empty());
    query("NOTIFY woken, 'by this'");
    EXPECT_EQ(listener.wait_for_notifications(std::chrono::minutes(3)).value(), std::vector<std::string>{"by this"});
    terminate_others();
    EXPECT_FALSE(listener.wait_for_notifications(std::chrono::minutes(3)).ok());
}

TEST_F(PgTest, ThePoolLendsAtMostItsSizeAndTakesBack) {
    Pool pool(conninfo_, "", 2);
    auto first = pool.acquire();
    std::optional<Pool::Lease> second(pool.acquire().value());
    ASSERT_TRUE(first.ok());
    const auto third = pool.acquire(milliseconds(10));
    ASSERT_FALSE(third.ok());
    EXPECT_EQ(third.error().code, ErrorCode::kUnavailable);
    std::jthread giver([&] { second.reset(); });
    EXPECT_TRUE(pool.acquire(std::chrono::minutes(3)).ok());
}

TEST_F(PgTest, ThePoolSaysWhatIsLentAndHowLongOthersWaited) {
    Pool pool(conninfo_, "", 2);
    EXPECT_EQ(pool.usage().size_max, 2);
    std::optional<Pool::Lease> first(pool.acquire().value());
    {
        const auto second = pool.acquire();
    }
    EXPECT_EQ(pool.usage().lent, 1);
    EXPECT_EQ(pool.usage().idle, 1);
    const auto second = pool.acquire();
    const double waited_s = pool.usage().waited_s;
    std::jthread waiter([&] { EXPECT_TRUE(pool.acquire(std::chrono::minutes(3)).ok()); });
    EXPECT_TRUE(eventually([&] { return pool.usage().waiters == 1; }));
    EXPECT_EQ(pool.usage().lent, 2);
    first.reset();
    waiter.join();
    EXPECT_EQ(pool.usage().waiters, 0);
    EXPECT_GT(pool.usage().waited_s, waited_s);
}

TEST_F(PgTest, ThePoolReplacesABrokenConnectionAndOneLeftInATransaction) {
    Pool pool(conninfo_, "", 1);
    ASSERT_TRUE(pool.acquire().value()->query("SELECT 1").ok());
    terminate_others();
    EXPECT_TRUE(pool.acquire().value()->query("SELECT 1").ok());
    ASSERT_TRUE(pool.acquire().value()->script("BEGIN").ok());
    EXPECT_FALSE(pool.acquire().value()->script("SAVEPOINT s").ok()) << "there is no transaction any more";
}

TEST_F(PgTest, AConnectionBesideThePoolWaitsForNobody) {
    Pool pool(conninfo_, "pg_catalog", 1);
    const auto all = pool.acquire();
    auto beside = pool.connect();
    ASSERT_TRUE(beside.ok());
    EXPECT_EQ(beside->query("SHOW search_path").value().text(0, "search_path"), "pg_catalog");
}

TEST_F(PgTest, ManyRowsAreDeletedInBatchesOfBoundedSizeAndLockedOnesStay) {
    query("CREATE TABLE t (n int PRIMARY KEY)");
    query("INSERT INTO t SELECT generate_series(1, 200000)");
    query("BEGIN");
    query("SELECT 1 FROM t WHERE n = 7 FOR UPDATE");
    Pool pool(conninfo_, "", 1);
    std::int64_t batches = 0;
    std::int64_t rows = 0;
    std::int64_t most = 0;
    const Status status = delete_in_batches(pool, {"t", "n <= $1", {190000}, "n"}, {}, [&](std::int64_t deleted) {
        ++batches;
        rows += deleted;
        most = std::max(most, deleted);
    });
    ASSERT_TRUE(status.ok()) << describe(status.error());
    EXPECT_EQ(rows, 189999);
    EXPECT_LE(most, 5000);
    EXPECT_GE(batches, 38);
    query("COMMIT");
    EXPECT_EQ(query("SELECT n FROM t ORDER BY n LIMIT 2").integer(1, "n"), 190001);
}

TEST_F(PgTest, ABatchHasATimeLimitOfItsOwnAndAStopEndsTheDeleting) {
    query("CREATE TABLE t (n int PRIMARY KEY)");
    query("INSERT INTO t SELECT generate_series(1, 20000)");
    ASSERT_TRUE(connection_
                    ->script("CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
                             " CREATE TABLE IF NOT EXISTS noted AS SELECT current_setting('statement_timeout') AS t;"
                             " RETURN NULL; END $$;"
                             "CREATE TRIGGER note AFTER DELETE ON t FOR EACH STATEMENT EXECUTE FUNCTION note()")
                    .ok());
    Pool pool(conninfo_, "", 1);
    std::stop_source stop;
    ASSERT_TRUE(delete_in_batches(pool, {"t", "true", {}, "n"}, stop.get_token(), [&](std::int64_t) {
                    stop.request_stop();
                }).ok());
    EXPECT_EQ(query("SELECT count(*) AS n FROM t").integer(0, "n"), 15000);
    EXPECT_EQ(query("SELECT t FROM noted").text(0, "t"), "1min");
    EXPECT_EQ(pool.acquire().value()->query("SHOW statement_timeout").value().text(0, "statement_timeout"), "30s");
}

TEST_F(PgTest, MigrationsRunOnceAndANewerSchemaIsRefused) {
    const std::array<Migration, 2> migrations{{{1, "CREATE TABLE t (n int); INSERT INTO t VALUES (1)"},
                                               {2, "ALTER TABLE t ADD COLUMN m int; INSERT INTO t VALUES (2, 2)"}}};
    ASSERT_TRUE(migrate(*connection_, "thing", std::span(migrations).first(1)).ok());
    std::vector<std::jthread> replicas;
    for (int i = 0; i < 4; ++i)
        replicas.emplace_back([&] {
            auto mine = connect(conninfo_).value();
            EXPECT_TRUE(migrate(mine, "thing", migrations).ok());
        });
    replicas.clear();
    EXPECT_EQ(query("SELECT n FROM thing.t ORDER BY n").size(), 2);
    EXPECT_EQ(query("SELECT version FROM thing.schema_migrations").size(), 2);
    const Status older = migrate(*connection_, "thing", std::span(migrations).first(1));
    ASSERT_FALSE(older.ok());
    EXPECT_EQ(older.error().code, ErrorCode::kConflict);
}

TEST_F(PgTest, AFailedMigrationChangesNothing) {
    const std::array<Migration, 1> migrations{{{1, "CREATE TABLE t (n int); SELECT nonsense"}}};
    EXPECT_FALSE(migrate(*connection_, "broken", migrations).ok());
    EXPECT_TRUE(query("SELECT 1 FROM pg_namespace WHERE nspname = 'broken'").empty());
}

}  // namespace
}  // namespace atl::pg
