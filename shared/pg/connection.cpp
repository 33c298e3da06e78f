#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>

#include "shared/pg/impl.h"

namespace atl::pg {
namespace {

using Clock = std::chrono::steady_clock;

// What a connection string does not say itself. A dead peer is noticed within about a minute, no statement runs for
// ever, and no forgotten transaction holds back the outbox relay or vacuum.
constexpr std::array<std::pair<const char*, const char*>, 8> kDefaults{{
    {"connect_timeout", "5"},
    {"keepalives_idle", "30"},
    {"keepalives_interval", "10"},
    {"keepalives_count", "3"},
    {"tcp_user_timeout", "60000"},
    {"application_name", "atoll"},
    {"client_encoding", "UTF8"},
    {"options", "-c statement_timeout=30s -c idle_in_transaction_session_timeout=60s -c timezone=UTC"},
}};

bool succeeded(const PGresult* result) {
    const auto status = PQresultStatus(result);
    return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK || status == PGRES_EMPTY_QUERY;
}

bool readable(int socket, std::chrono::milliseconds timeout) {
    pollfd fd{socket, POLLIN, 0};
    return ::poll(&fd, 1, static_cast<int>(timeout.count())) > 0;
}

std::vector<std::string> take_notifications(PGconn* connection) {
    std::vector<std::string> payloads;
    while (PGnotify* notification = PQnotifies(connection)) {
        payloads.emplace_back(notification->extra);
        PQfreemem(notification);
    }
    return payloads;
}

// BEGIN, NOTIFY and their like have none.
bool has_plan(std::string_view sql) {
    static constexpr std::string_view kPlanned[] = {"SELECT ", "WITH ", "INSERT ", "UPDATE ", "DELETE "};
    return std::any_of(std::begin(kPlanned), std::end(kPlanned), [&](auto word) { return sql.starts_with(word); });
}

}  // namespace

Param::Param(double value) {
    std::array<char, 32> text;
    const auto end = std::to_chars(text.data(), text.data() + text.size(), value);
    text_ = std::string(text.data(), end.ptr);
}

ResultHandle Connection::Impl::run(const std::string& sql, const std::vector<const char*>& values) {
    constexpr std::size_t kPreparedMax = 256;  // a plan takes some 50 KiB of the server's memory
    const int count = static_cast<int>(values.size());
    auto known = prepared_.find(sql);
    if (known == prepared_.end()) {
        // Statements that are made anew each time must not fill the memory.
        if (has_plan(sql) && prepared_.size() < kPreparedMax) prepared_.emplace(sql, "");
        return ResultHandle(PQexecParams(handle.get(), sql.c_str(), count, nullptr, values.data(), nullptr, nullptr,
                                         /*resultFormat=*/0));
    }
    if (known->second.empty()) {
        const std::string name = "s" + std::to_string(++names_);
        ResultHandle made(PQprepare(handle.get(), name.c_str(), sql.c_str(), count, nullptr));
        if (!succeeded(made.get())) return made;
        known->second = name;
    }
    ResultHandle result(PQexecPrepared(handle.get(), known->second.c_str(), count, values.data(), nullptr, nullptr,
                                       /*resultFormat=*/0));
    const std::string state = error_field(result.get(), PG_DIAG_SQLSTATE);
    if (state == kPlanChanged || state == kStatementGone) prepared_.erase(known);  // the next time plans anew
    return result;
}

Connection::Connection(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Connection::~Connection() = default;
Connection::Connection(Connection&&) noexcept = default;
Connection& Connection::operator=(Connection&&) noexcept = default;

Result<Rows> Connection::query(const std::string& sql, const std::vector<Param>& params) {
    std::vector<const char*> values;
    for (const auto& param : params) {
        if (param.text() && param.text()->find('\0') != std::string::npos)
            return unreadable("text must not contain NUL characters");
        values.push_back(param.text() ? param.text()->c_str() : nullptr);
    }
    auto rows = std::make_shared<Rows::Impl>();
    rows->result = impl_->run(sql, values);
    if (!succeeded(rows->result.get())) return make_error(impl_->handle.get(), rows->result.get());
    return Rows(std::move(rows));
}

Status Connection::script(const std::string& sql) {
    const ResultHandle result(PQexec(impl_->handle.get(), sql.c_str()));
    if (!succeeded(result.get())) return make_error(impl_->handle.get(), result.get());
    return {};
}

bool Connection::healthy() const {
    PGconn* connection = impl_->handle.get();
    // What a server says unasked is most often its farewell, and its end of the socket may close only a moment later.
    return PQstatus(connection) == CONNECTION_OK && PQtransactionStatus(connection) == PQTRANS_IDLE &&
           !readable(PQsocket(connection), std::chrono::milliseconds(0));
}

Result<std::vector<std::string>> Connection::wait_for_notifications(std::chrono::milliseconds timeout) {
    PGconn* connection = impl_->handle.get();
    const auto deadline = Clock::now() + timeout;
    for (;;) {
        if (PQconsumeInput(connection) == 0 || PQstatus(connection) != CONNECTION_OK)
            return make_error(connection, nullptr);
        if (auto payloads = take_notifications(connection); !payloads.empty()) return payloads;
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
        if (left.count() <= 0) return std::vector<std::string>();
        readable(PQsocket(connection), left);
    }
}

Result<Connection> connect(const std::string& conninfo, const std::string& search_path) {
    std::vector<const char*> names;
    std::vector<const char*> values;
    for (const auto& [name, value] : kDefaults) {
        names.push_back(name);
        values.push_back(value);
    }
    names.insert(names.end(), {"dbname", nullptr});  // the string is expanded here and overrides what precedes it
    values.insert(values.end(), {conninfo.c_str(), nullptr});
    auto impl = std::make_unique<Connection::Impl>();
    impl->handle.reset(PQconnectdbParams(names.data(), values.data(), /*expand_dbname=*/1));
    if (PQstatus(impl->handle.get()) != CONNECTION_OK) return make_error(impl->handle.get(), nullptr);
    PQsetNoticeProcessor(impl->handle.get(), [](void*, const char*) {}, nullptr);  // else they go to standard error
    Connection connection(std::move(impl));
    if (!search_path.empty())
        ATOLL_RETURN_IF_ERROR(connection.query("SELECT set_config('search_path', $1, false)", {search_path}));
    return connection;
}

}  // namespace atl::pg
