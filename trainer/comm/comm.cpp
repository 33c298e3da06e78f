#include "trainer/comm/comm.h"

#include <span>

namespace atl::comm {

Status Comm::agree(const Status& mine) {
    // One number holds rank and code, the largest that of the lowest failing rank; 0 without an error.
    constexpr int kCodes = 256;
    const int code = mine.ok() ? 0 : static_cast<int>(mine.error().code);
    double told = mine.ok() ? 0.0 : static_cast<double>(size() - rank()) * kCodes + code;
    all_reduce(std::span(&told, 1), Reduction::kMax);
    if (told == 0) return {};
    const auto reported = static_cast<std::int64_t>(told);
    if (size() - reported / kCodes == rank()) return mine;
    return Error{static_cast<ErrorCode>(reported % kCodes), "", ""};
}

}  // namespace atl::comm
