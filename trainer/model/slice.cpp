#include "trainer/model/slice.h"

#include <algorithm>

namespace atl::model {

std::int64_t Slice::elements_before(std::int64_t element) const {
    const std::int64_t whole_rows = element / width - row;
    if (whole_rows < 0) return 0;
    if (whole_rows >= rows) return rows * columns;
    return whole_rows * columns + std::clamp<std::int64_t>(element % width - column, 0, columns);
}

std::vector<SliceRun> runs_of(const Slice& slice, std::int64_t begin, std::int64_t count) {
    if (slice.columns == slice.width) return {{slice.row * slice.width + begin, 0, count}};
    std::vector<SliceRun> runs;
    for (std::int64_t done = 0; done < count;) {
        const std::int64_t row = (begin + done) / slice.columns, column = (begin + done) % slice.columns;
        const std::int64_t length = std::min(slice.columns - column, count - done);
        runs.push_back({(slice.row + row) * slice.width + slice.column + column, done, length});
        done += length;
    }
    return runs;
}

}  // namespace atl::model
