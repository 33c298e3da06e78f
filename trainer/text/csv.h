#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"

namespace atl::text {

// RFC 4180, read as Python's csv module does with strict=True: a field that begins with a quote goes on to the next
// single quote, newlines and all; quotes elsewhere are part of a field. A record ends at \n, \r\n or \r; an empty line
// is none.

// Finds where records end, in bytes that come piece by piece.
class CsvScanner {
  public:
    explicit CsvScanner(char delimiter) : delimiter_(delimiter) {}

    // The end of the last record that ends within `bytes`, which follow those of the call before; 0: none does.
    std::size_t scan(std::string_view bytes);

  private:
    enum class State { kRecordBegin, kFieldBegin, kPlain, kQuoted, kQuoteInQuotes, kReturn };
    char delimiter_;
    State state_ = State::kRecordBegin;
};

// Takes the next record off the front of `text`, with its line end, and puts its fields into `fields`, reusing them. No
// fields: an empty line. kInvalidArgument: a quoted field that is followed by something else, or not closed.
Status take_csv_record(std::string_view& text, char delimiter, std::vector<std::string>& fields);

struct CsvTable {
    char delimiter = ',';
    std::vector<std::string> columns;
};

// The table that the first line names the columns of. `delimiter` '\0': comma, semicolon or tab, the first of these
// that the line has outside quotes. kInvalidArgument: no column, or two of one name; a column without a name is no
// fault.
Result<CsvTable> read_csv_header(std::string_view line, char delimiter);

}  // namespace atl::text
