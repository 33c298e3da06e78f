#include "trainer/comm/comm.h"

#include <chrono>
#include <span>
#include <string>
#include <thread>

#include "trainer/comm/wait_text.h"

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

void Comm::wait_until(const std::function<bool()>& is_done, const Awaited& /*awaited*/) {
    while (!is_done()) std::this_thread::sleep_for(kDeviceInterval);
}

std::string wait_text(int rank, double waited_s, const Awaited& awaited) {
    std::string text = "rank " + std::to_string(rank) + " has waited " +
                       std::to_string(static_cast<std::int64_t>(waited_s)) + " s for " + std::string(awaited.what);
    if (!awaited.unit.empty()) text += " of " + std::string(awaited.unit);
    return text + " (" + std::string(awaited.collective) + ")";
}

}  // namespace atl::comm
