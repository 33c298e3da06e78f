#include "services/cli/output.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <iostream>
#include <sstream>

#include "services/cli/terminal.h"
#include "shared/base/check.h"
#include "shared/json/printable.h"

namespace atl::cli {
namespace {

constexpr std::size_t kCutMin = 10;   // characters of a text that is cut, as far as that helps
constexpr std::size_t kNoteMin = 20;  // of a note that may go below its row: a shorter one stays in it
constexpr const char* kMore = "  …";  // ends the header of a table that lacks columns

bool is_continuation(char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U;
}

// Characters of UTF-8 text: bytes that do not continue one.
std::size_t letters(std::string_view text) {
    return text.size() - static_cast<std::size_t>(std::count_if(text.begin(), text.end(), is_continuation));
}

std::string_view first_letters(std::string_view text, std::size_t count) {
    std::size_t end = 0;
    while (end < text.size() && (is_continuation(text[end]) || count-- > 0)) ++end;
    return text.substr(0, end);
}

// As wide as its column.
std::string padded(const std::string& cell, std::size_t width) {
    const std::size_t length = letters(cell);
    if (length <= width) return cell + std::string(width - length, ' ');
    return std::string(first_letters(cell, width - 1)) + "…";
}

// "2026-03-01T12:00:00.5Z" to the minute; anything else as it is.
std::string to_minute(const std::string& cell) {
    const std::string_view shape = "0000-00-00T00:00:00";
    const bool is_time = cell.size() > shape.size() && cell.ends_with('Z') &&
                         std::equal(shape.begin(), shape.end(), cell.begin(), [](char wanted, char c) {
                             return wanted == '0' ? c >= '0' && c <= '9' : c == wanted;
                         });
    return is_time ? cell.substr(0, shape.size() - 3) + "Z" : cell;
}

bool is_empty(const std::string& cell) {
    return cell.empty() || cell == "-";
}

// A sentence in the last column says itself what it is.
std::string note_below(const std::string& name, bool is_last, const std::string& text, std::size_t terminal) {
    if (is_empty(text)) return {};
    const bool is_sentence = is_last && letters(text) > kNoteMin;
    return std::string(kIndent, ' ') + fold(is_sentence ? text : name + ": " + text, kIndent, kIndent, terminal);
}

enum class Place { kInRow, kBelow, kNowhere };

// How a table's columns are shown on its terminal.
struct Fit {
    std::vector<Place> place;
    std::vector<std::size_t> widths;

    bool lacks_columns() const { return std::find(place.begin(), place.end(), Place::kNowhere) != place.end(); }
    std::size_t total() const {
        std::size_t total = lacks_columns() ? letters(kMore) : 0;
        for (std::size_t i = 0; i < place.size(); ++i)
            if (place[i] == Place::kInRow) total += widths[i] + (i == 0 ? 0 : 2);
        return total;
    }
    // Makes the widest of these narrower, one by one; false: none can be.
    bool cut_widest(const std::vector<std::size_t>& columns) {
        const auto widest = std::max_element(columns.begin(), columns.end(),
                                             [&](std::size_t a, std::size_t b) { return widths[a] < widths[b]; });
        if (widest == columns.end() || widths[*widest] <= kCutMin) return false;
        --widths[*widest];
        return true;
    }
};

void measure(Fit& fit, const std::vector<std::vector<std::string>>& rows) {
    std::fill(fit.widths.begin(), fit.widths.end(), 0);
    for (const auto& row : rows)
        for (std::size_t i = 0; i < row.size(); ++i) fit.widths[i] = std::max(fit.widths[i], letters(row[i]));
}

// Whether a column says nothing but its name.
bool is_empty(const std::vector<std::vector<std::string>>& rows, std::size_t column) {
    return std::all_of(rows.begin() + 1, rows.end(), [&](const auto& row) { return is_empty(row[column]); });
}

// Cuts the times in `rows` where that is needed.
Fit fit_columns(const std::vector<Column>& header, std::vector<std::vector<std::string>>& rows, std::size_t terminal) {
    Fit fit{std::vector<Place>(header.size(), Place::kInRow), std::vector<std::size_t>(header.size())};
    measure(fit, rows);
    const auto is_too_wide = [&] { return terminal > 0 && fit.total() > terminal; };
    if (!is_too_wide()) return fit;
    for (auto& row : rows) std::transform(row.begin(), row.end(), row.begin(), to_minute);
    measure(fit, rows);
    std::vector<std::size_t> texts;
    std::vector<std::size_t> others;  // that give way when nothing else is left
    for (std::size_t i = header.size(); i-- > 1;) {
        const Column::Gives gives = header[i].gives;
        const bool is_note = gives == Column::Gives::kToLinesBelow && (fit.widths[i] > kNoteMin || is_empty(rows, i));
        if (is_note && is_too_wide()) fit.place[i] = Place::kBelow;
        if (gives == Column::Gives::kItsEnd) texts.push_back(i);
        if (gives == Column::Gives::kNothing) others.push_back(i);
    }
    for (std::size_t i = header.size(); i-- > 1 && is_too_wide();)
        if (header[i].gives == Column::Gives::kItself) fit.place[i] = Place::kNowhere;
    while (is_too_wide() && (fit.cut_widest(texts) || fit.cut_widest(others))) {
    }
    return fit;
}

// Says what the header's "…" stands for.
std::string left_out(const std::vector<Column>& header, const Fit& fit) {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < header.size(); ++i)
        if (fit.place[i] == Place::kNowhere) names.push_back(header[i].name);
    return "(… left out: " + join(names) + "; a wider terminal, a pipe and --json have them)";
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

Table::Table(std::vector<Column> header) : header_(std::move(header)) {
    std::vector<std::string> names;
    for (const Column& column : header_) names.push_back(column.name);
    rows_.push_back(std::move(names));
}

void Table::add(std::vector<std::string> row) {
    check(row.size() == header_.size(), "a table's row has another number of cells than its header");
    for (std::string& cell : row) {
        cell = atl::json::printable(cell);  // here too, as what is not shown has no width
        std::replace_if(cell.begin(), cell.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
    }
    rows_.push_back(std::move(row));
}

std::string Table::text(std::size_t terminal) const {
    std::vector<std::vector<std::string>> rows = rows_;
    const Fit fit = fit_columns(header_, rows, terminal);
    std::string text;
    for (std::size_t number = 0; number < rows.size(); ++number) {
        const auto& row = rows[number];
        std::string line;
        for (std::size_t i = 0; i < row.size(); ++i)
            if (fit.place[i] == Place::kInRow) line += padded(row[i], fit.widths[i]) + "  ";
        line.erase(line.find_last_not_of(' ') + 1);
        if (number == 0 && fit.lacks_columns()) line += kMore;
        text += line + "\n";
        if (number == 0) continue;
        for (std::size_t i = 0; i < row.size(); ++i)
            if (fit.place[i] == Place::kBelow)
                text += note_below(header_[i].name, i + 1 == row.size(), row[i], terminal);
    }
    if (fit.lacks_columns()) text += fold(left_out(header_, fit), 0, kIndent, terminal);
    return text;
}

std::string utc_time(std::int64_t unix_s) {
    const auto when = static_cast<std::time_t>(unix_s);
    std::tm parts{};
    ::gmtime_r(&when, &parts);
    std::array<char, 32> text;
    return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

std::string counted(std::size_t count, const std::string& noun) {
    return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string fold(std::string_view text, std::size_t first, std::size_t indent, std::size_t width) {
    const std::string begin(indent, ' ');
    std::string folded;
    std::size_t at = first;
    bool is_begin = true;
    const auto break_line = [&] {
        folded += "\n" + begin;
        at = indent;
        is_begin = true;
    };
    std::istringstream words{std::string(text)};
    for (std::string given; words >> given;) {
        std::string_view word = given;
        if (!is_begin && width > 0 && at + 1 + letters(word) > width) break_line();
        if (!is_begin) {
            folded += ' ';
            ++at;
        }
        while (width > std::max(at, indent) && at + letters(word) > width) {  // no line holds it
            const std::string_view part = first_letters(word, width - at);
            folded += part;
            word.remove_prefix(part.size());
            break_line();
        }
        folded += word;
        at += letters(word);
        is_begin = false;
    }
    return folded + "\n";
}

void print(const Table& table) {
    std::cout << table.text(terminal_columns());
}

std::string with_indented_lines(std::string_view text) {
    return replace_all(std::string(text), "\n", "\n" + std::string(kIndent, ' '));
}

void print_line(const std::string& text) {
    const std::size_t width = terminal_columns();
    std::cout << (width > 0 && letters(text) > width ? fold(text, 0, kIndent, width)
                                                     : with_indented_lines(text) + "\n");
}

std::string human_number(double value) {
    if (value >= 1e9) return fmt::format("{:.3g}", value);
    return value >= 1000 ? fmt::format("{:.0f}", value) : fmt::format("{:.4g}", value);
}

std::string explain(const Error& error) {
    std::string text = "error: " + describe(error);
    // A refusal that names a field says itself what it takes.
    const bool says_itself =
        !error.field.empty() && (error.code == ErrorCode::kPermissionDenied || error.field == "--token-stdin");
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
