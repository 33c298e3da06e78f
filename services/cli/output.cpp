#include "services/cli/output.h"

#include <fmt/format.h>

#include <algorithm>

#include "shared/base/check.h"
#include "shared/json/printable.h"

namespace atl::cli {
namespace {

// Characters of UTF-8 text: bytes that do not continue one.
std::size_t width(std::string_view text) {
    return static_cast<std::size_t>(std::count_if(
        text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

std::string_view advice(ErrorCode code) {
    switch (code) {
        case ErrorCode::kUnauthenticated:
            return "give a valid token with --token-file or ATOLL_TOKEN; an admin makes one with atoll token issue";
        case ErrorCode::kPermissionDenied:
            return "give the token of somebody who may; atoll token show says whose this one is";
        case ErrorCode::kPreconditionFailed:
            return "it changed meanwhile: look at it again, then repeat";
        default:
            return {};
    }
}

}  // namespace

Table::Table(std::vector<std::string> header) {
    rows_.push_back(std::move(header));
}

void Table::add(std::vector<std::string> row) {
    check(row.size() == rows_.front().size(), "a table's row has another number of cells than its header");
    for (std::string& cell : row) {
        cell = atl::json::printable(cell);  // here too, as what is not shown has no width
        std::replace_if(cell.begin(), cell.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
    }
    rows_.push_back(std::move(row));
}

std::string Table::text() const {
    std::vector<std::size_t> widths(rows_.front().size());
    for (const auto& row : rows_)
        for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
    std::string text;
    for (const auto& row : rows_) {
        std::string line;
        for (std::size_t i = 0; i < row.size(); ++i) line += row[i] + std::string(widths[i] - width(row[i]) + 2, ' ');
        line.erase(line.find_last_not_of(' ') + 1);
        text += line + "\n";
    }
    return text;
}

std::string human_number(double value) {
    if (value >= 1e9) return fmt::format("{:.3g}", value);
    return value >= 1000 ? fmt::format("{:.0f}", value) : fmt::format("{:.4g}", value);
}

std::string explain(const Error& error) {
    std::string text = "error: " + describe(error);
    // A refusal that names a field says itself what it takes.
    const bool says_itself = error.code == ErrorCode::kPermissionDenied && !error.field.empty();
    if (const auto what = advice(error.code); !what.empty() && !says_itself) text += "\n  " + std::string(what);
    return text;
}

int exit_status(const Error& error) {
    switch (error.code) {
        case ErrorCode::kInvalidArgument:
        case ErrorCode::kNotFound:
        case ErrorCode::kTooLarge:
            return 2;
        case ErrorCode::kResourceExhausted:
        case ErrorCode::kInsufficientStorage:
            return 3;
        default:
            return 1;
    }
}

}  // namespace atl::cli
