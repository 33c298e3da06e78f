#pragma once

#include <libpq-fe.h>

#include <memory>
#include <string>

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
    ConnectionHandle handle;
};

// The Error for a failed statement; `result` may be null when the connection broke.
Error make_error(PGconn* connection, const PGresult* result);

}  // namespace atl::pg
