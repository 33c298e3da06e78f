#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "services/dispatch/domain/task.h"

namespace atl::dispatch {

// What each facility said last about its tasks' attempts: one question serves them all. Thread-safe; while one worker
// asks a facility the others wait for its answer.
template <class Answer>
class AnswerCache {
  public:
    struct Query {
        const Task& task;
        std::int64_t seen_ms = 0;     // when the newest answer that the task has seen was asked for
        std::int64_t age_ms_max = 0;  // of an answer that still counts
        std::int64_t now_ms = 0;
        std::function<bool(const Answer&)> is_usable;           // whether an answer to an earlier question is
        std::function<Result<std::vector<Task>>()> list_tasks;  // all that are worth asking about
        std::function<Result<std::vector<Answer>>(const std::vector<Task>&)> ask;  // one each, in order
    };
    struct Found {
        Answer answer;
        std::int64_t asked_ms = 0;
    };

    // From an answer that the task has not seen, or by asking now. kUnavailable: no answer, or the tasks do not hold
    // this one.
    Result<Found> find(const Query& query) {
        Facility& known = facility(query.task.facility);
        const std::string name = batch_job_name(query.task);
        const std::lock_guard lock(known.mutex);
        const std::int64_t age_ms = query.now_ms - known.asked_ms;
        // Another worker's question may be newer than this one's time; a much newer one is of before the clock was set
        // back.
        const bool is_fresh = known.asked_ms > query.seen_ms && std::abs(age_ms) < query.age_ms_max;
        auto found = known.answers.find(name);
        if (!is_fresh || found == known.answers.end() || !query.is_usable(found->second)) {
            ATOLL_TRY(const auto tasks, query.list_tasks());
            const auto is_asking = [&](const Task& task) { return batch_job_name(task) == name; };
            // It ended, or its row was changed, since it was taken.
            if (std::none_of(tasks.begin(), tasks.end(), is_asking)) return unavailable("nobody asks about " + name);
            ATOLL_TRY(auto answers, query.ask(tasks));
            keep(known, tasks, std::move(answers), query.now_ms);
            found = known.answers.find(name);
        }
        Found answer{std::move(found->second), known.asked_ms};
        known.answers.erase(found);
        return answer;
    }

    // Answers that came with those to another question: one each, in order.
    void put(const std::string& facility_name, const std::vector<Task>& tasks, std::vector<Answer> answers,
             std::int64_t now_ms) {
        Facility& known = facility(facility_name);
        const std::lock_guard lock(known.mutex);
        keep(known, tasks, std::move(answers), now_ms);
    }

  private:
    struct Facility {
        std::mutex mutex;
        std::int64_t asked_ms = 0;
        std::map<std::string, Answer> answers;  // to the last question, by batch job; each is given out once
    };
    static void keep(Facility& known, const std::vector<Task>& tasks, std::vector<Answer> answers,
                     std::int64_t now_ms) {
        check(answers.size() == tasks.size(), "a facility answers for each task");
        known.answers.clear();
        for (std::size_t i = 0; i < tasks.size(); ++i)
            known.answers.insert_or_assign(batch_job_name(tasks[i]), std::move(answers[i]));
        known.asked_ms = now_ms;
    }
    Facility& facility(const std::string& name) {
        const std::lock_guard lock(mutex_);
        auto& place = facilities_[name];
        if (place == nullptr) place = std::make_unique<Facility>();
        return *place;
    }

    std::mutex mutex_;
    std::map<std::string, std::unique_ptr<Facility>> facilities_;
};

}  // namespace atl::dispatch
