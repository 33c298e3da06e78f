#include "trainer/comm/comm.h"

#include <array>

namespace atl::comm {
namespace {

// 0 without an error, so that the largest over ranks is some error's code + 1.
double severity(const Status& status) {
    if (status.ok()) return 0;
    return 1 + static_cast<double>(status.error().code);
}

}  // namespace

Status Comm::agree(const Status& mine) {
    std::array<double, 2> worst = {severity(mine), mine.ok() ? 0.0 : static_cast<double>(size() - rank())};
    all_reduce(worst, Reduction::kMax);
    if (worst[0] == 0) return {};
    const int reporter = size() - static_cast<int>(worst[1]);
    if (reporter == rank()) return mine;
    return Error{static_cast<ErrorCode>(static_cast<int>(worst[0]) - 1), "", ""};
}

}  // namespace atl::comm
