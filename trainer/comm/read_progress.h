#pragma once

#include <cstdint>
#include <string>

#include "shared/log/progress.h"
#include "trainer/comm/comm.h"

namespace atl::comm {

// How far a rank is with files that it reads while others may wait for it. Rank 0 logs it once it has taken two
// seconds, and who waits for this rank waits on while it gets on. Of one thread, that of the group.
//
//   ReadProgress progress(comm, "loading the weights", bytes);
//   while (…) progress.add(read(piece));
//   return comm.agree(status);  // who waits here for too long says after what
class ReadProgress {
  public:
    // `size` is all that there is to do, in any unit.
    ReadProgress(Comm& comm, const std::string& what, std::int64_t size);
    ReadProgress(const ReadProgress&) = delete;
    ReadProgress& operator=(const ReadProgress&) = delete;
    ~ReadProgress();

    // So much more is done; 0 for a piece of what counts as a whole. Cheap enough for an inner loop.
    void add(std::int64_t size);

  private:
    Comm& comm_;
    std::string what_;
    log::Progress progress_;
    std::int64_t size_;
    std::int64_t done_ = 0;
};

}  // namespace atl::comm
