#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shared/base/text.h"
#include "shared/pg/pg.h"

namespace atl::dispatch {

// A timestamptz column as Unix milliseconds, and back.
inline std::string sql_to_ms(const std::string& column) {
    return "(extract(epoch FROM " + column + ") * 1000)::bigint";
}
inline std::string sql_from_ms(const std::string& parameter) {
    return "to_timestamp(" + parameter + "::float8 / 1000)";
}

// What decisions are made by, so that no host's clock matters: the database's time in Unix milliseconds.
inline Result<std::int64_t> database_now_ms(pg::Connection& connection) {
    ATOLL_TRY(const pg::Rows rows, connection.query("SELECT " + sql_to_ms("clock_timestamp()") + " AS now_ms"));
    return rows.integer(0, "now_ms");
}

// Identifiers of ours (letters, digits, ".", "_" and "-" only) as a text[] parameter.
inline std::string sql_array(const std::vector<std::string>& words) {
    return "{" + join(words, ",") + "}";
}

}  // namespace atl::dispatch
