#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "shared/base/result.h"
#include "shared/json/json.h"

// PostgreSQL over libpq: a pool, parameterised statements in text format, transactions, migrations.
namespace atl::pg {

// SQL that shows a timestamptz column as RFC 3339 in UTC, to the millisecond; NULL stays NULL.
std::string rfc3339(const std::string& column);

// One parameter of a statement; nullopt is NULL. Converts from what our code holds.
class Param {
  public:
    Param(std::nullptr_t) {}                                    // NOLINT(google-explicit-constructor)
    Param(std::string text) : text_(std::move(text)) {}         // NOLINT(google-explicit-constructor)
    Param(std::string_view text) : text_(std::string(text)) {}  // NOLINT(google-explicit-constructor)
    Param(const char* text) : text_(text) {}                    // NOLINT(google-explicit-constructor)
    Param(bool value) : text_(value ? "true" : "false") {}      // NOLINT(google-explicit-constructor)
    Param(double value);                                        // NOLINT(google-explicit-constructor)
    // Bytes that are not UTF-8 become U+FFFD.
    Param(const json::Json& value)
        : text_(value.dump(-1, ' ', false, json::Json::error_handler_t::replace)) {
    }  // NOLINT(google-explicit-constructor)
    template <class Integer>
        requires std::is_integral_v<Integer>
    Param(Integer value) : text_(std::to_string(value)) {}  // NOLINT(google-explicit-constructor)
    template <class T>
    Param(const std::optional<T>& value) : text_(value ? Param(*value).text_ : std::nullopt) {}  // NOLINT

    const std::optional<std::string>& text() const { return text_; }

  private:
    std::optional<std::string> text_;
};

// The rows of one statement, owned. Reading a column that does not exist or has another type is a programmer's error.
class Rows {
  public:
    class Impl;
    explicit Rows(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

    int size() const;
    bool empty() const { return size() == 0; }
    std::int64_t affected() const;  // rows that an INSERT, UPDATE or DELETE touched
    std::string command() const;    // the command's name as the server says it, "COMMIT"

    bool is_null(int row, std::string_view column) const;
    std::string text(int row, std::string_view column) const;  // "" for NULL
    std::int64_t integer(int row, std::string_view column) const;
    double number(int row, std::string_view column) const;
    bool boolean(int row, std::string_view column) const;
    json::Json json(int row, std::string_view column) const;  // null for NULL

    // Of two results of one statement: whether they hold the same.
    bool operator==(const Rows& other) const;

  private:
    std::shared_ptr<Impl> impl_;
};

// Errors: kConflict on a unique or exclusion violation, kNotFound on a foreign key violation, kInvalidArgument on a
// check violation or a value that its column cannot hold, kUnavailable on a lost connection, a timeout, a deadlock or a
// serialization failure; `field` is the constraint or column. One thread at a time.
class Connection {
  public:
    class Impl;
    explicit Connection(std::unique_ptr<Impl> impl);
    ~Connection();
    Connection(Connection&&) noexcept;
    Connection& operator=(Connection&&) noexcept;

    // One statement. What comes a second time is prepared, so that it is parsed and planned once a connection: values
    // belong into `params`, never into `sql`.
    Result<Rows> query(const std::string& sql, const std::vector<Param>& params = {});
    Status script(const std::string& sql);  // several statements, no parameters
    bool healthy() const;                   // connected, outside any transaction, and nothing unread
    // Waits for NOTIFY on a channel that was LISTENed to; the payloads of those that came, none if the time is over.
    Result<std::vector<std::string>> wait_for_notifications(std::chrono::milliseconds timeout);

  private:
    std::unique_ptr<Impl> impl_;
};

// Unless the connection string says otherwise (options=-c…), a statement ends after 30 s and an idle transaction after
// 60 s; times are in UTC. search_path as in SQL; empty: the server's.
Result<Connection> connect(const std::string& conninfo, const std::string& search_path = {});

// Thread-safe. A Lease gives its connection back when it dies; a broken connection is replaced.
//
// Open one pool a process; take a connection for as long as a statement or a transaction lasts:
//
//   pg::Pool pool(settings.postgres, "registry", 8);
//   ATOLL_TRY(auto connection, pool.acquire());
//   ATOLL_TRY(auto transaction, pg::Transaction::begin(*connection));
//   ATOLL_TRY(auto rows, transaction.query("SELECT revision FROM datasets WHERE name = $1 FOR UPDATE", {name}));
//   if (rows.empty()) return not_found("no dataset '" + name + "'");
//   ATOLL_TRY(rows, transaction.query("UPDATE datasets SET revision = $2 WHERE name = $1", {name, revision + 1}));
//   return transaction.commit();  // without it everything is rolled back
class Pool {
  public:
    class Lease;
    Pool(std::string conninfo, std::string search_path, int size_max);
    ~Pool();
    // kUnavailable when the database cannot be reached or no connection came free in time.
    Result<Lease> acquire(std::chrono::milliseconds timeout = std::chrono::seconds(10));
    struct Usage {
        int lent = 0;
        int idle = 0;
        int waiters = 0;
        int size_max = 0;
        double waited_s = 0;  // of all that ever waited
    };
    Usage usage() const;
    // A connection beside those of the pool, for a thread that must not wait until others give theirs back.
    Result<Connection> connect() const;

  private:
    class Impl;
    std::shared_ptr<Impl> impl_;
};

class Pool::Lease {
  public:
    Lease(std::shared_ptr<Pool::Impl> pool, std::unique_ptr<Connection> connection);
    ~Lease();
    Lease(Lease&&) noexcept;
    Connection& operator*() { return *connection_; }
    Connection* operator->() { return connection_.get(); }

  private:
    std::shared_ptr<Pool::Impl> pool_;
    std::unique_ptr<Connection> connection_;
};

// Rolls back unless committed. Events added with events::Outbox ride in the same transaction.
class Transaction {
  public:
    static Result<Transaction> begin(Connection& connection);
    ~Transaction();
    Transaction(Transaction&& other) noexcept;

    Result<Rows> query(const std::string& sql, const std::vector<Param>& params = {});
    Connection& connection() { return *connection_; }
    // On kUnavailable it is not known whether the transaction was committed.
    Status commit();

  private:
    explicit Transaction(Connection& connection) : connection_(&connection) {}
    Connection* connection_ = nullptr;
};

struct Migration {
    int version;           // 1, 2, 3 … without gaps
    std::string_view sql;  // one or more statements, run in one transaction
};

// What delete_in_batches() is to delete: rows of `table` of which `condition` is true, the first by `order` first. All
// are SQL; an index must serve `condition` and `order`, as each batch looks for its rows anew.
struct OldRows {
    std::string table;
    std::string condition;
    std::vector<Param> params;
    std::string order;
};
// Some thousand rows at a time, each batch in a transaction and with a time limit of its own, until none is left or
// `stop`. `on_batch` is told the number of rows of each batch.
Status delete_in_batches(Pool& pool, const OldRows& rows, const std::stop_token& stop,
                         const std::function<void(std::int64_t)>& on_batch);

// Creates the schema and brings it to the newest version, under an advisory lock so that replicas may start at once.
// Refuses a schema that is newer than the program.
Status migrate(Connection& connection, const std::string& schema, std::span<const Migration> migrations);

}  // namespace atl::pg
