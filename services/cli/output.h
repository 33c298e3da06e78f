#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"
#include "shared/base/text.h"

// How commands answer people: tables, sizes, times and errors.
namespace atl::cli {

// Columns as wide as their widest cell (counted in characters, not bytes), two spaces between, nothing after the last.
class Table {
  public:
    explicit Table(std::vector<std::string> header);
    void add(std::vector<std::string> row);  // as many cells as the header has
    std::string text() const;

  private:
    std::vector<std::vector<std::string>> rows_;
};

std::string human_number(double value);  // four significant digits: "1.234e+04" never, "12340" instead

// "error: " and what is wrong, with what to do next where we know it; as people read it on standard error.
std::string explain(const Error& error);
// The program's exit status for an error: 2 bad input (a name or a file that is not there, too), 3 not enough of
// something, 1 anything else.
int exit_status(const Error& error);

}  // namespace atl::cli
