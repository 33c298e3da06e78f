#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"
#include "shared/base/text.h"

// How commands answer people: tables, sizes, times and errors.
namespace atl::cli {

// Of what stands below a row, and of what goes on with a line.
inline constexpr std::size_t kIndent = 4;

// A column of a table, and how it gives way on a terminal that is narrower than the table. A name alone: not at all, as
// far as there is a way.
struct Column {
    enum class Gives { kNothing, kItsEnd, kItself, kToLinesBelow };

    Column(const char* its_name) : name(its_name) {}
    Column(std::string its_name, Gives what = Gives::kNothing) : name(std::move(its_name)), gives(what) {}

    std::string name;
    Gives gives = Gives::kNothing;
};
// A text whose end may be missing, which "…" shows.
inline Column cut(std::string name) {
    return {std::move(name), Column::Gives::kItsEnd};
}
// May be left out, the one on the right first; "…" ends the header then.
inline Column droppable(std::string name) {
    return {std::move(name), Column::Gives::kItself};
}
// Its text may stand below its row, in lines of whole words.
inline Column note(std::string name) {
    return {std::move(name), Column::Gives::kToLinesBelow};
}

// Columns as wide as their widest cell (counted in characters, not bytes), two spaces between, nothing after the last.
// The first one says what the row is about: it never gives way.
class Table {
  public:
    explicit Table(std::vector<Column> header);
    void add(std::vector<std::string> row);  // as many cells as the header has
    // For a terminal of so many columns; 0: as wide as it is. Where it is too wide times are cut to their minutes, then
    // notes go below their rows, then columns are left out, then texts are cut, the widest first.
    std::string text(std::size_t width = 0) const;

  private:
    std::vector<Column> header_;
    std::vector<std::vector<std::string>> rows_;
};

// "2026-03-01T12:00:00Z"
std::string utc_time(std::int64_t unix_s);

// "1 job", "2 jobs".
std::string counted(std::size_t count, const std::string& noun);

// Lines of whole words that end before column `width` (0: one line); the first begins at column `first`, the others at
// `indent`. A word that is longer than a line is broken.
std::string fold(std::string_view text, std::size_t first, std::size_t indent, std::size_t width);

// The text with its further lines indented. Somebody else's text goes through it wherever a line stands for one thing:
// else its lines would look like ours.
std::string with_indented_lines(std::string_view text);

// Onto standard output, as the terminal's width asks for: a table; a line of text, whose further lines are indented.
void print(const Table& table);
void print_line(const std::string& text);

std::string human_number(double value);  // four significant digits: "1.234e+04" never, "12340" instead

// "error: " and what is wrong, with what to do next where we know it; as people read it on standard error.
std::string explain(const Error& error);
// The program's exit status for an error: 2 bad input (a name or a file that is not there, too), 3 not enough of
// something, 1 anything else.
int exit_status(const Error& error);

}  // namespace atl::cli
