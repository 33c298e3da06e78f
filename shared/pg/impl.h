#pragma once

#include <libpq-fe.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "shared/pg/pg.h"

// What the module's own sources share; nothing outside shared/pg includes this.
namespace atl::pg {

struct ClearResult {
    void operator()(PGresult* result) const { PQclear(result); }
};
using ResultHandle = std::unique_ptr<PGresult, ClearResult>;

struct FinishConnection {
    void operator()(PGconn* connection) const { PQfinish(connection); }
};
using ConnectionHandle = std::unique_ptr<PGconn, FinishConnection>;

class Rows::Impl {
  public:
    ResultHandle result;
};

class Connection::Impl {
  public:
    // Runs it by the plan that the server keeps from its second time on; see Connection::query().
    ResultHandle run(const std::string& sql, const std::vector<const char*>& values);

    ConnectionHandle handle;

  private:
    std::unordered_map<std::string, std::string> prepared_;  // the statement's name, by SQL; "": seen once
    std::int64_t names_ = 0;
};

// A plan that was kept no longer fits its changed table; a prepared statement that the server does not know any more.
constexpr std::string_view kNoSuchText = "22P05";  // a NUL in JSON
constexpr std::string_view kPlanChanged = "0A000";
constexpr std::string_view kStatementGone = "26000";

// A field of a failed statement's error (PG_DIAG_…), or "".
std::string error_field(const PGresult* result, int which);

// The Error for a failed statement; `result` may be null when the connection broke.
Error make_error(PGconn* connection, const PGresult* result);

}  // namespace atl::pg
