#include "trainer/text/rows.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "shared/json/digits.h"
#include "shared/json/json.h"
#include "shared/json/printable.h"

namespace atl::text {
namespace {

// What is wrong with a row, without a word of it: the message travels to the coordinator.
std::string without_text(std::string message) {
    message = message.substr(0, message.find(" \""));  // a repeated key is quoted
    constexpr std::string_view kFirstLine = "parse error at line 1, ";
    if (const auto at = message.find(kFirstLine); at != std::string::npos) message.erase(at, kFirstLine.size());
    return message;
}

// Walks over the records of one block.
class RowWalk {
  public:
    RowWalk(const RecordBlock& block, const std::filesystem::path& path, bool keep_digits, const UseRow& use)
        : text_(block.text),
          block_(block),
          path_(path.string()),
          keep_digits_(keep_digits),
          use_(use),
          line_(block.first_line) {}

    Status walk() {
        switch (block_.format) {
            case InputFormat::kJsonLines:
            case InputFormat::kLines:
                return walk_lines();
            case InputFormat::kJsonArray:
                return walk_array();
            case InputFormat::kCsv:
            case InputFormat::kTsv:
                return walk_table();
            case InputFormat::kText:
                return use_text(text_, path_);
        }
        return {};
    }

  private:
    std::string place() const { return path_ + ":" + std::to_string(line_); }

    static Error fault(const std::string& where, const std::string& what) {
        return invalid_argument(where, where + ": " + what);
    }

    // Takes the first `size` bytes, and counts their lines.
    std::string_view take(std::size_t size) {
        const std::string_view taken = text_.substr(0, size);
        line_ += std::count(taken.begin(), taken.end(), '\n');
        text_.remove_prefix(taken.size());
        return taken;
    }

    Status walk_lines() {
        for (; !text_.empty(); ++line_) {
            const auto end = text_.find('\n');
            std::string_view line = text_.substr(0, end);
            text_.remove_prefix(end == std::string_view::npos ? text_.size() : end + 1);
            if (line.ends_with('\r')) line.remove_suffix(1);
            if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
            ATOLL_RETURN_IF_ERROR(block_.format == InputFormat::kLines ? use_text(line, place())
                                                                       : use_json(line, place()));
        }
        return {};
    }

    Status walk_array() {
        ArrayScanner scanner;
        for (std::int64_t number = block_.first_record; !scanner.is_closed(); ++number) {
            take(std::min(text_.find_first_not_of(kWhiteSpace), text_.size()));
            if (text_.empty()) return {};
            const std::string where = place() + ": element " + std::to_string(number);
            const std::size_t end = scanner.find_end(text_);
            check(end != std::string_view::npos, "a block of an array holds part of an element");
            std::string_view element = take(end);
            element.remove_suffix(1);
            element = element.substr(0, element.find_last_not_of(kWhiteSpace) + 1);
            if (element.empty() && scanner.is_closed() && number == 1) return {};
            if (element.empty()) return fault(where, "is empty: there is a comma too many");
            ATOLL_RETURN_IF_ERROR(use_json(element, where));
        }
        return {};
    }

    Status walk_table() {
        if (block_.table == nullptr) return {};  // an empty file
        for (const std::string& column : block_.table->columns)
            if (!json::is_utf8(column)) return not_utf8(path_ + ":1");
        std::vector<std::string> fields;
        while (!text_.empty()) {
            const std::string where = place();
            std::string_view rest = text_;
            const Status taken = take_csv_record(rest, block_.table->delimiter, fields);
            if (!taken.ok()) return fault(where, taken.error().message);
            const std::string_view record = take(text_.size() - rest.size());
            if (fields.empty()) continue;
            if (!json::is_utf8(record)) return not_utf8(where);
            ATOLL_RETURN_IF_ERROR(use_fields(fields, where));
        }
        return {};
    }

    Status use_fields(std::vector<std::string>& fields, const std::string& where) {
        const std::vector<std::string>& columns = block_.table->columns;
        if (fields.size() != columns.size())
            return fault(where, "the row has " + std::to_string(fields.size()) +
                                    (fields.size() == 1 ? " field" : " fields") + ", the first line names " +
                                    std::to_string(columns.size()) + (columns.size() == 1 ? " column" : " columns"));
        json::Json row = json::Json::object();
        for (std::size_t i = 0; i < columns.size(); ++i) row[columns[i]] = std::move(fields[i]);
        return use_(row, where);
    }

    Status use_json(std::string_view text, const std::string& where) {
        auto row = keep_digits_ ? json::parse_keeping_digits(text) : json::parse(text);
        if (!row.ok()) {
            std::string message = without_text(row.error().message);
            const auto has = [](std::string_view in, std::string_view word) { return in.find(word) != in.npos; };
            if (has(message, "invalid literal") && (has(text, "NaN") || has(text, "Infinity")))
                message += "; NaN and Infinity, which Python writes, are not JSON: null is";
            return fault(where, message);
        }
        if (row->is_string()) return use_(json::Json{{"text", std::move(*row)}}, where);
        return use_(*row, where);
    }

    Status use_text(std::string_view text, const std::string& where) {
        if (text.find_first_not_of(kWhiteSpace) == std::string_view::npos) return {};
        if (!json::is_utf8(text)) return not_utf8(where);
        return use_(json::Json{{"text", std::string(text)}}, where);
    }

    Error not_utf8(const std::string& where) const {
        return fault(where, "is not UTF-8: `iconv -f LATIN1 -t UTF-8 " + path_ + " > " + path_ +
                                ".utf8` converts a text of Western Europe");
    }

    std::string_view text_;
    const RecordBlock& block_;
    std::string path_;
    bool keep_digits_;
    const UseRow& use_;
    std::int64_t line_;
};

}  // namespace

Status for_each_row(const RecordBlock& block, const std::filesystem::path& path, bool keep_digits, const UseRow& use) {
    return RowWalk(block, path, keep_digits, use).walk();
}

}  // namespace atl::text
