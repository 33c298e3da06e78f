#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <utility>

#include "shared/base/result.h"
#include "trainer/dataset/dataset.h"
#include "trainer/offload/chunk_stream.h"

namespace atl::train {

// Positions [begin, begin + count) of a RowOrder.
struct RowRange {
    std::int64_t begin = 0;
    std::int64_t count = 0;
    bool operator==(const RowRange&) const = default;
};

// Reads the rows of the next micro-step beside the one that computes, so that a slow file delays no step unless reading
// takes longer than a step. One range at a time, into one buffer. Not thread-safe.
//
//   RowPrefetch prefetch(read);
//   prefetch.start(first);
//   for (…) {
//       ATOLL_TRY(const dataset::Batch* rows, prefetch.take(range));
//       copy(*rows);             // start() overwrites them
//       prefetch.start(next);
//       compute();
//   }
class RowPrefetch {
  public:
    // Fills `batch` with the rows of a range. Called by one thread, which is not the caller's; the destructor waits for
    // a call under way.
    using Read = std::function<Status(const RowRange& range, dataset::Batch& batch)>;
    explicit RowPrefetch(Read read) : read_(std::move(read)) {}

    // Begins to read a range, which is then to be taken; nothing for an empty one.
    void start(const RowRange& range);
    // The rows of the range that start() was given; waits for them. They stay until the next start(). The error is that
    // of reading them.
    Result<const dataset::Batch*> take(const RowRange& range);

    // Whether take() would not have to wait.
    bool is_ready() const;
    // How often take() had to. Any thread may ask.
    std::int64_t waits() const { return waits_; }

  private:
    Read read_;
    RowRange range_;  // that is read, or was last
    dataset::Batch batch_;
    std::future<Status> reading_;  // valid from start() to take()
    std::atomic<std::int64_t> waits_ = 0;
    offload::TransferThread thread_;  // last: it uses the others
};

}  // namespace atl::train
