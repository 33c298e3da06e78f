#pragma once

#include <cstddef>
#include <memory>
#include <ostream>
#include <string_view>

// What this program shows was written by many: sites, operators, servers. None of it steers the terminal.
namespace atl::cli {

// While it lives, all that is written to a stream is made printable (shared/json/printable.h) on its way; characters
// may come in parts. Writing from several threads is safe. Where nobody reads any more the program ends by SIGPIPE.
//
//   const PrintableOutput out(std::cout);
class PrintableOutput {
  public:
    explicit PrintableOutput(std::ostream& stream);
    ~PrintableOutput();
    PrintableOutput(const PrintableOutput&) = delete;
    PrintableOutput& operator=(const PrintableOutput&) = delete;

    // Writes what is left; errno of the first write that failed, or 0.
    int finish();

  private:
    class Filter;
    std::ostream& stream_;
    std::unique_ptr<Filter> filter_;
    friend void write_as_it_is(std::ostream& stream, std::string_view bytes);
};

// Past the filter of PrintableOutput: our own control sequences ("\r", "\x1b[K"), and bytes for a program.
void write_as_it_is(std::ostream& stream, std::string_view bytes);

// True when standard output is a terminal.
bool is_terminal_output();
// True when it is one that moves its cursor, too.
bool interactive();

// The columns of the terminal that is standard output; 0: not known.
std::size_t terminal_columns();
// The rows that whole lines take on a terminal which wraps them after that many columns (0: it does not). Each code
// point counts as a column.
std::ptrdiff_t rows_on_terminal(std::string_view lines, std::size_t columns);

}  // namespace atl::cli
