#include "trainer/text/csv.h"

#include <algorithm>
#include <set>

namespace atl::text {
namespace {

constexpr char kQuote = '"';

bool is_line_end(char c) {
    return c == '\n' || c == '\r';
}

// Those of a line that no field needs quotes for, ',' if there is none.
char find_delimiter(std::string_view line) {
    bool quoted = false;
    std::string unquoted;
    for (const char c : line) {
        if (c == kQuote) quoted = !quoted;
        if (!quoted) unquoted += c;
    }
    for (const char delimiter : {',', ';', '\t'})
        if (unquoted.find(delimiter) != std::string::npos) return delimiter;
    return ',';
}

// A quoted field, whose first quote has been taken off `text`.
Status take_quoted(std::string_view& text, char delimiter, std::string& field) {
    for (;;) {
        const std::size_t quote = text.find(kQuote);
        if (quote == std::string_view::npos)
            return invalid_argument("", "a quoted field is not closed: a quote at its end is missing");
        field.append(text.substr(0, quote));
        text.remove_prefix(quote + 1);
        if (text.empty() || text[0] == delimiter || is_line_end(text[0])) return {};
        if (text[0] != kQuote)
            return invalid_argument("",
                                    "something follows the closing quote of a field: a quote within a quoted field is "
                                    "written twice");
        field += kQuote;
        text.remove_prefix(1);
    }
}

}  // namespace

std::size_t CsvScanner::scan(std::string_view bytes) {
    std::size_t end = 0;
    for (std::size_t at = 0; at < bytes.size(); ++at) {
        const char c = bytes[at];
        switch (state_) {
            case State::kReturn:  // "\r" has ended the record, "\n" belongs to it
                state_ = State::kRecordBegin;
                if (c == '\n') {
                    end = at + 1;
                    break;
                }
                [[fallthrough]];
            case State::kRecordBegin:
            case State::kFieldBegin:
            case State::kPlain:
            case State::kQuoteInQuotes:
                if (is_line_end(c)) {
                    end = at + 1;
                    state_ = c == '\r' ? State::kReturn : State::kRecordBegin;
                } else if (c == delimiter_) {
                    state_ = State::kFieldBegin;
                } else {
                    state_ = c == kQuote && state_ != State::kPlain ? State::kQuoted : State::kPlain;
                }
                break;
            case State::kQuoted:
                at = bytes.find(kQuote, at);
                if (at == std::string_view::npos) return end;
                state_ = State::kQuoteInQuotes;
                break;
        }
    }
    return end;
}

Status take_csv_record(std::string_view& text, char delimiter, std::vector<std::string>& fields) {
    std::size_t count = 0;
    while (!text.empty() && (count > 0 || !is_line_end(text[0]))) {
        if (count == fields.size()) fields.emplace_back();
        std::string& field = fields[count++];
        field.clear();
        if (!text.empty() && text[0] == kQuote) {
            text.remove_prefix(1);
            ATOLL_RETURN_IF_ERROR(take_quoted(text, delimiter, field));
        } else {
            const auto is_end = [&](char c) { return c == delimiter || is_line_end(c); };
            const auto end = std::find_if(text.begin(), text.end(), is_end) - text.begin();
            field.assign(text.substr(0, static_cast<std::size_t>(end)));
            text.remove_prefix(static_cast<std::size_t>(end));
        }
        if (text.empty() || text[0] != delimiter) break;
        text.remove_prefix(1);
        if (text.empty() || is_line_end(text[0])) {  // an empty field ends the record
            if (count == fields.size()) fields.emplace_back();
            fields[count++].clear();
            break;
        }
    }
    fields.resize(count);
    if (text.starts_with("\r\n"))
        text.remove_prefix(2);
    else if (!text.empty())
        text.remove_prefix(1);
    return {};
}

Result<CsvTable> read_csv_header(std::string_view line, char delimiter) {
    CsvTable table{delimiter == '\0' ? find_delimiter(line) : delimiter, {}};
    ATOLL_RETURN_IF_ERROR(take_csv_record(line, table.delimiter, table.columns));
    if (table.columns.empty()) return invalid_argument("", "the first line names no column");
    std::set<std::string_view> seen;
    for (const std::string& column : table.columns)
        if (!column.empty() && !seen.insert(column).second)
            return invalid_argument("", "the first line, which names the columns, has one name twice");
    return table;
}

}  // namespace atl::text
