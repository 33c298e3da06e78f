#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

// When what this process did began and ended, for --trace-steps. Off, as at the start, a span costs one branch. Used by
// the thread that computes, alone. Text arguments are copied, kinds must outlive all: literals.
//
//   trace::start();
//   {
//       const trace::Span span("forward", block.name());
//       …
//   }
//   ATOLL_RETURN_IF_ERROR(write_file_atomic(file, trace::finish(rank, ranks)));
namespace atl::trace {

// So many spans and transfers are kept, under 100 bytes each; what comes then is counted alone.
inline constexpr std::size_t kEventsMax = 200'000;

namespace detail {
inline bool on = false;
void begin(const char* kind, std::string_view name);
void end();
void begin_transfer(const char* kind, std::string_view name, std::size_t id);
void end_transfer(const char* kind, std::size_t id);
}  // namespace detail

inline bool is_on() {
    return detail::on;
}

// Times count from now on. Outside of any span.
void start();

// The events since start(), as JSON of the Trace Event Format, which ui.perfetto.dev and chrome://tracing open: spans
// that nest on one thread, and transfers beside it. `otherData` has the number of events that were too many. Outside of
// any span; then nothing is traced any more.
std::string finish(int rank, int ranks);

// From its construction to its destruction. Spans nest.
class Span {
  public:
    explicit Span(const char* kind, std::string_view name = {}) : on_(detail::on) {
        if (on_) detail::begin(kind, name);
    }
    ~Span() {
        if (on_) detail::end();
    }
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

  private:
    bool on_;
};

// A transfer that goes on while other things are done. `id` is its own among those of its kind that are under way.
inline void begin_transfer(const char* kind, std::string_view name, std::size_t id) {
    if (detail::on) detail::begin_transfer(kind, name, id);
}
inline void end_transfer(const char* kind, std::size_t id) {
    if (detail::on) detail::end_transfer(kind, id);
}

}  // namespace atl::trace
