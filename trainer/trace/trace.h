#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "trainer/kernels/backend.h"

// When what this process and its device did began and ended, for --trace-steps. Off, as at the start, a span costs one
// branch. Used by the thread that computes, alone. Text arguments are copied, kinds must outlive all: literals.
//
//   trace::start(backend);
//   {
//       const trace::Span span("forward", block.name());
//       const trace::StreamSpan device_span(Stream::kCompute, "forward", block.name());
//       …
//   }
//   trace::take_times();  // now and then
//   ATOLL_RETURN_IF_ERROR(write_file_atomic(file, trace::finish(rank, ranks)));
namespace atl::trace {

// So many spans and transfers are kept, under 100 bytes each; what comes then is counted alone.
inline constexpr std::size_t kEventsMax = 200'000;
inline constexpr std::size_t kNone = static_cast<std::size_t>(-1);  // the index of an event beyond them

namespace detail {
inline bool on = false;
inline bool device_on = false;  // what streams do is traced, too
void begin(const char* kind, std::string_view name);
void end();
std::size_t begin_on_stream(kernels::Stream stream, const char* kind, std::string_view name);
void end_on_stream(std::size_t span, kernels::Stream stream);
void begin_transfer(const char* kind, std::string_view name, std::size_t id);
void end_transfer(const char* kind, std::size_t id);
}  // namespace detail

inline bool is_on() {
    return detail::on;
}

// Times count from now on. Outside of any span. What streams do is traced where the host does not reach `backend`'s
// memory, which must then outlive the trace; waits for it, so that its clock is put beside the host's: to within the
// time that the host takes to see that an event has happened.
void start(kernels::Backend& backend);

// Takes the times of what streams have done meanwhile, and waits for nothing: their events are kept until then. Outside
// of any span.
void take_times();

// The events since start(), as JSON of the Trace Event Format, which ui.perfetto.dev and chrome://tracing open: a row
// (thread) of spans that nest for the host, one of transfers, which go on beside it, and of a device one for each
// stream. `otherData` has the number of events that were too many. Outside of any span; waits for the device. Then
// nothing is traced any more.
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

// The same of what a stream is asked for meanwhile, from when it begins with that to when it is done with it: not from
// when it is asked. Those of one stream neither nest nor overlap. Not in a region.
class StreamSpan {
  public:
    StreamSpan(kernels::Stream stream, const char* kind, std::string_view name = {}) : stream_(stream) {
        if (detail::device_on) span_ = detail::begin_on_stream(stream, kind, name);
    }
    ~StreamSpan() {
        if (span_ != kNone) detail::end_on_stream(span_, stream_);
    }
    StreamSpan(const StreamSpan&) = delete;
    StreamSpan& operator=(const StreamSpan&) = delete;

  private:
    kernels::Stream stream_;
    std::size_t span_ = kNone;
};

// A transfer that goes on while other things are done. `id` is its own among those of its kind that are under way.
inline void begin_transfer(const char* kind, std::string_view name, std::size_t id) {
    if (detail::on) detail::begin_transfer(kind, name, id);
}
inline void end_transfer(const char* kind, std::size_t id) {
    if (detail::on) detail::end_transfer(kind, id);
}

}  // namespace atl::trace
