#include "trainer/tokenize/progress.h"

#include <fmt/format.h>

#include <algorithm>

#include "shared/log/log.h"
#include "shared/log/progress.h"

namespace atl::tokenize {
std::string to_string(const ProgressPoint& point) {
    const double megabytes = static_cast<double>(point.bytes) / 1e6;
    std::string text =
        fmt::format("{:.0f} % done, {} documents, {:.1f} MB of text, {:.2f} MB/s", 100.0 * point.fraction,
                    point.documents, megabytes, megabytes / std::max(point.elapsed_s, 1e-9));
    const double done = point.fraction - point.fraction_begun;
    if (done > 0) text += ", " + log::duration_text(point.elapsed_s * (1.0 - point.fraction) / done) + " left";
    return text;
}

bool Progress::is_due() {
    if (!enabled_ || elapsed_s() < next_s_) return false;
    next_s_ = elapsed_s() + 2.0;
    return true;
}

void Progress::show(ProgressPoint point) const {
    point.elapsed_s = elapsed_s();
    spdlog::info("tokenize: {}", to_string(point));
}

double Progress::elapsed_s() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

}  // namespace atl::tokenize
