#include "services/dispatch/work/attempt_watch.h"

#include <algorithm>
#include <utility>

#include "services/dispatch/db/tasks.h"
#include "services/dispatch/domain/task_machine.h"
#include "services/dispatch/work/batch_job.h"

namespace atl::dispatch {
namespace {

std::vector<LookOrder> look_orders(const std::vector<Task>& tasks, const Site& site) {
    std::vector<LookOrder> orders;
    for (const Task& task : tasks) orders.push_back({batch_job_ref(task, site).directory, task.attempt->log_offset});
    return orders;
}

std::vector<BatchJobRef> batch_job_refs(const std::vector<Task>& tasks, const Site& site) {
    std::vector<BatchJobRef> jobs;
    for (const Task& task : tasks) jobs.push_back(batch_job_ref(task, site));
    return jobs;
}

}  // namespace

Result<std::vector<Task>> AttemptWatch::tasks_beside(const Task& task) const {
    ATOLL_TRY(auto connection, pool_.acquire());
    ATOLL_TRY(auto tasks, tasks_in_queue(*connection, task.facility));
    std::stable_sort(tasks.begin(), tasks.end(), [&](const Task& one, const Task& other) {
        const auto rank = [&](const Task& of) { return std::pair(of.id != task.id, of.attempt->looked_ms); };
        return rank(one) < rank(other);
    });
    return tasks;
}

Result<AnswerCache<Look>::Found> AttemptWatch::look(const Task& task, Site& site, std::int64_t now_ms) {
    const Attempt& attempt = *task.attempt;
    return looks_.find({task, attempt.looked_ms,
                        poll_interval_ms(attempt, connections_.poll_policy(site.facility()), now_ms), now_ms,
                        [&](const Look& look) { return look.log_begin == attempt.log_offset; },
                        [&]() -> Result<std::vector<Task>> {
                            ATOLL_TRY(auto tasks, tasks_beside(task));
                            tasks.resize(std::min(tasks.size(), kLooksMax));
                            return tasks;
                        },
                        [&](const std::vector<Task>& tasks) {
                            return asks_queue_with_looks(task, site, now_ms) ? look_and_ask(tasks, site, now_ms)
                                                                             : site.look(look_orders(tasks, site));
                        }});
}

bool AttemptWatch::asks_queue_with_looks(const Task& task, const Site& site, std::int64_t now_ms) {
    return !connections_.silent_queues().is_silent(task.facility) &&
           should_ask_batch(*task.attempt, connections_.poll_policy(site.facility()), now_ms);
}

Result<std::vector<Look>> AttemptWatch::look_and_ask(const std::vector<Task>& tasks, Site& site, std::int64_t now_ms) {
    const std::string& facility = tasks.front().facility;
    auto found = site.look_and_ask(look_orders(tasks, site), batch_job_refs(tasks, site));
    ATOLL_RETURN_IF_ERROR(found);
    note_queue(facility, found->queue, now_ms);
    if (found->queue.ok()) answers_.put(facility, tasks, std::move(found->queue).value(), now_ms);
    return std::move(found->looks);
}

void AttemptWatch::note_queue(const std::string& facility, const Result<std::vector<BatchAnswer>>& answers,
                              std::int64_t now_ms) {
    connections_.silent_queues().note(facility, answers.ok() ? Status() : Status(answers.error()), now_ms);
}

// One query about all attempts that the facility's batch system may know.
Result<AnswerCache<BatchAnswer>::Found> AttemptWatch::ask_queue(const Task& task, Site& site, std::int64_t after_ms,
                                                                std::int64_t now_ms) {
    return answers_.find({task, after_ms,
                          batch_interval_ms(*task.attempt, connections_.poll_policy(site.facility()), now_ms), now_ms,
                          [](const BatchAnswer&) { return true; }, [&] { return tasks_beside(task); },
                          [&](const std::vector<Task>& tasks) -> Result<std::vector<BatchAnswer>> {
                              if (auto silence = connections_.silent_queues().find(task.facility, now_ms))
                                  return *silence;
                              auto answers = site.ask_batch(batch_job_refs(tasks, site));
                              note_queue(task.facility, answers, now_ms);
                              return answers;
                          }});
}

}  // namespace atl::dispatch
