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

void Comm::all_reduce(std::span<float> whole, std::span<float> scratch) {
    if (size() == 1) return;
    const std::size_t ranks = static_cast<std::size_t>(size());
    check(whole.size() % ranks == 0, "all_reduce: the length does not divide over the ranks");
    const std::size_t count = whole.size() / ranks;
    const std::span<float> mine = whole.subspan(count * static_cast<std::size_t>(rank()), count);
    reduce_scatter(whole, mine, scratch);
    all_gather(std::as_bytes(mine), std::as_writable_bytes(whole));
}

Status Comm::agree(const Status& mine) {
    std::array<double, 2> worst = {severity(mine), mine.ok() ? 0.0 : static_cast<double>(size() - rank())};
    all_reduce(worst, Reduction::kMax);
    if (worst[0] == 0) return {};
    const int reporter = size() - static_cast<int>(worst[1]);
    if (reporter == rank()) return mine;
    return Error{static_cast<ErrorCode>(static_cast<int>(worst[0]) - 1), "", ""};
}

}  // namespace atl::comm
