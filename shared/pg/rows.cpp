#include <charconv>

#include "shared/pg/impl.h"

namespace atl::pg {

std::string rfc3339(const std::string& column) {
    return "to_char(" + column + " AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')";
}
namespace {

// The column's number; a missing one is a programmer's error, as is a row outside the result.
int find_column(const PGresult* result, int row, std::string_view column) {
    const int index = PQfnumber(result, std::string(column).c_str());
    if (index < 0) check(false, "the result has no column \"" + std::string(column) + "\"");
    check(row >= 0 && row < PQntuples(result), "the result has no such row");
    return index;
}

std::string_view cell_text(const PGresult* result, int row, std::string_view column) {
    const int index = find_column(result, row, column);
    return {PQgetvalue(result, row, index), static_cast<std::size_t>(PQgetlength(result, row, index))};
}

template <class Number>
Number parse(std::string_view text, std::string_view column) {
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size())
        check(false, "column \"" + std::string(column) + "\" is not a number but '" + std::string(text) + "'");
    return value;
}

}  // namespace

int Rows::size() const {
    return PQntuples(impl_->result.get());
}

std::int64_t Rows::affected() const {
    const std::string_view count = PQcmdTuples(impl_->result.get());
    return count.empty() ? 0 : parse<std::int64_t>(count, "affected");
}

std::string Rows::command() const {
    return PQcmdStatus(impl_->result.get());
}

bool Rows::is_null(int row, std::string_view column) const {
    return PQgetisnull(impl_->result.get(), row, find_column(impl_->result.get(), row, column)) == 1;
}

std::string Rows::text(int row, std::string_view column) const {
    return std::string(cell_text(impl_->result.get(), row, column));
}

std::int64_t Rows::integer(int row, std::string_view column) const {
    return parse<std::int64_t>(cell_text(impl_->result.get(), row, column), column);
}

double Rows::number(int row, std::string_view column) const {
    return parse<double>(cell_text(impl_->result.get(), row, column), column);
}

bool Rows::boolean(int row, std::string_view column) const {
    const auto text = cell_text(impl_->result.get(), row, column);
    if (text != "t" && text != "f") check(false, "column \"" + std::string(column) + "\" is not a boolean");
    return text == "t";
}

json::Json Rows::json(int row, std::string_view column) const {
    if (is_null(row, column)) return nullptr;
    auto value = json::Json::parse(cell_text(impl_->result.get(), row, column), nullptr, /*allow_exceptions=*/false);
    if (value.is_discarded()) check(false, "column \"" + std::string(column) + "\" is not JSON");
    return value;
}

bool Rows::operator==(const Rows& other) const {
    const PGresult* const a = impl_->result.get();
    const PGresult* const b = other.impl_->result.get();
    if (size() != other.size() || PQnfields(a) != PQnfields(b)) return false;
    const auto cell = [](const PGresult* result, int row, int column) {
        const auto length = static_cast<std::size_t>(PQgetlength(result, row, column));
        return std::pair(PQgetisnull(result, row, column), std::string_view(PQgetvalue(result, row, column), length));
    };
    for (int row = 0; row < size(); ++row)
        for (int column = 0; column < PQnfields(a); ++column)
            if (cell(a, row, column) != cell(b, row, column)) return false;
    return true;
}

}  // namespace atl::pg
