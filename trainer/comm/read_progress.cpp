#include "trainer/comm/read_progress.h"

#include <algorithm>

namespace atl::comm {

ReadProgress::ReadProgress(Comm& comm, const std::string& what, std::int64_t size)
    : comm_(comm), what_(what), progress_(what), size_(std::max<std::int64_t>(1, size)) {
    comm_.tell_work(what_);
}

ReadProgress::~ReadProgress() {
    comm_.tell_work({});
}

void ReadProgress::add(std::int64_t size) {
    done_ += size;
    comm_.tell_work(what_);
    if (comm_.rank() == 0) progress_.at(static_cast<double>(done_) / static_cast<double>(size_));
}

}  // namespace atl::comm
