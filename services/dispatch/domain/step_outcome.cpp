#include "services/dispatch/domain/task_machine.h"
#include "shared/base/text.h"
#include "shared/json/printable.h"

namespace atl::dispatch {
namespace {

constexpr std::size_t kReasonBytesMax = 2000;

// Parts of an error may be the site's words.
std::string printable_reason(const Error& error) {
    return shorten(json::printable(describe(error)), kReasonBytesMax);
}

}  // namespace

Outcome outcome_of(const Task& task, const Error& error) {
    const bool is_collecting = task.attempt->step == Step::kCollecting;
    const bool holds_update = task.kind() == TaskKind::kTrain && is_collecting;
    // Submitting and cleaning up are about nothing else than the site: what it says there is meant.
    const bool is_about_site =
        task.attempt->step == Step::kSubmitting || (task.kind() == TaskKind::kClean && is_collecting);
    const bool is_meant = is_about_site ? !is_transient(error.code) : is_refusal(error) || is_absent(error);
    if (holds_update || !is_meant) return Unreachable{printable_reason(error)};
    Rejected rejected{printable_reason(error), error.code == ErrorCode::kInvalidArgument};
    rejected.waits = task.attempt->step == Step::kSubmitting && is_absent(error);
    return rejected;
}

Outcome refuse_update(const Error& error, bool is_permanent) {
    return Rejected{printable_reason(error), is_permanent, true};
}

}  // namespace atl::dispatch
