#include "trainer/train/row_prefetch.h"

#include <chrono>

#include "shared/base/check.h"

namespace atl::train {

void RowPrefetch::start(const RowRange& range) {
    check(!reading_.valid(), "the rows read before are to be taken first");
    if (range.count == 0) return;
    range_ = range;
    reading_ = thread_.begin([this] { return read_(range_, batch_); });
}

Result<const dataset::Batch*> RowPrefetch::take(const RowRange& range) {
    check(reading_.valid() && range == range_, "rows are taken that start() was not given");
    if (!is_ready()) ++waits_;
    ATOLL_RETURN_IF_ERROR(reading_.get());
    return &batch_;
}

bool RowPrefetch::is_ready() const {
    return reading_.valid() && reading_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

}  // namespace atl::train
