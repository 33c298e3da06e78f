#include <string_view>

#include "shared/base/text.h"
#include "shared/pg/impl.h"

namespace atl::pg {
namespace {

// https://www.postgresql.org/docs/current/errcodes-appendix.html
ErrorCode error_code(std::string_view sqlstate) {
    if (sqlstate.empty()) return ErrorCode::kUnavailable;  // no answer: the connection broke
    if (sqlstate == "23505" || sqlstate == "23P01") return ErrorCode::kConflict;
    if (sqlstate == "23503") return ErrorCode::kNotFound;
    if (sqlstate.starts_with("23") || sqlstate.starts_with("22")) return ErrorCode::kInvalidArgument;
    for (const std::string_view passing : {"08", "40", "53", "57"})  // connection, rollback, resources, shutdown
        if (sqlstate.starts_with(passing)) return ErrorCode::kUnavailable;
    if (sqlstate == "55P03" || sqlstate == "25P03" || sqlstate == "25P04") return ErrorCode::kUnavailable;
    if (sqlstate == kPlanChanged || sqlstate == kStatementGone) return ErrorCode::kUnavailable;
    return ErrorCode::kInternal;
}

// What libpq says of a connection, without the socket's path or its guesses: "Connection refused".
std::string connection_reason(std::string_view said) {
    constexpr std::string_view kFailed = "failed: ";
    said = said.substr(0, said.find('\n'));
    if (const auto at = said.rfind(kFailed); at != std::string_view::npos) said.remove_prefix(at + kFailed.size());
    return std::string(trim(said));
}

}  // namespace

std::string error_field(const PGresult* result, int which) {
    const char* text = result != nullptr ? PQresultErrorField(result, which) : nullptr;
    return text != nullptr ? text : "";
}

Error make_error(PGconn* connection, const PGresult* result) {
    const std::string sqlstate = error_field(result, PG_DIAG_SQLSTATE);
    if (sqlstate == kNoSuchText) return invalid_argument("", "text must not contain NUL characters (\\u0000)");
    if (sqlstate.empty())
        return unavailable("the database does not answer: " + connection_reason(PQerrorMessage(connection)));
    Error error{error_code(sqlstate), "database: " + error_field(result, PG_DIAG_MESSAGE_PRIMARY),
                error_field(result, PG_DIAG_CONSTRAINT_NAME)};
    if (error.field.empty()) error.field = error_field(result, PG_DIAG_COLUMN_NAME);
    if (const auto detail = error_field(result, PG_DIAG_MESSAGE_DETAIL); !detail.empty())
        error.message += ": " + detail;
    if (error.code == ErrorCode::kInternal) error.message += " (SQLSTATE " + sqlstate + ")";
    return error;
}

}  // namespace atl::pg
