#include "services/dispatch/work/batch_answers.h"

namespace atl::dispatch {

BatchAnswers::Facility& BatchAnswers::facility(const std::string& name) {
    const std::lock_guard lock(mutex_);
    auto& place = facilities_[name];
    if (place == nullptr) place = std::make_unique<Facility>();
    return *place;
}

Result<BatchAnswer> BatchAnswers::state_of(const Question& question) {
    Facility& known = facility(question.facility);
    const std::lock_guard lock(known.mutex);
    const bool is_fresh = known.asked_ms > question.seen_ms && question.now_ms - known.asked_ms < question.age_ms_max;
    if (!is_fresh || !known.states.contains(question.operation)) {
        ATOLL_TRY(const auto operations, question.operations());
        ATOLL_TRY(const auto states, question.ask(operations));
        check(states.size() == operations.size(), "a batch system answers for each operation");
        known.states.clear();
        for (std::size_t i = 0; i < operations.size(); ++i) known.states[operations[i].name] = states[i];
        known.asked_ms = question.now_ms;
    }
    const auto found = known.states.find(question.operation);
    if (found == known.states.end()) return unavailable("nobody asks about " + question.operation);
    return BatchAnswer{found->second, known.asked_ms};
}

}  // namespace atl::dispatch
