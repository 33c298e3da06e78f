#include "services/dispatch/work/check_jobs.h"

#include "services/dispatch/sites/failure_text.h"
#include "services/dispatch/sites/image_command.h"
#include "shared/site/attempt_files.h"

namespace atl::dispatch {
namespace {

// No task's id begins so.
std::string check_task(const CheckJob& job) {
    return "check-" + job.id;
}

BatchJobRef check_job_ref(const CheckJob& job, const Site& site) {
    return {"atoll-" + check_task(job) + "-1", site.task_directory(check_task(job), 1)};
}

}  // namespace

Result<std::string> submit_check(Site& site, const CheckJob& check) {
    return site.submit({.ref = check_job_ref(check, site),
                        .environment = site.facility().environment,
                        .commands = {{site.program("atoll-trainer"), "report"}},
                        .resources = check.resources,
                        .launcher = site.facility().launcher,
                        .image_runner = render_image_runner(site.facility()),
                        .image_check = render_image_report(site.facility()),
                        .is_check = true});
}

Result<CheckJobSeen> look_at_check(Site& site, const CheckJob& check) {
    const BatchJobRef ref = check_job_ref(check, site);
    ATOLL_TRY(const auto looks, site.look({{ref.directory, 0}}));
    const Look& look = looks.at(0);
    if (look.exit_code) {
        ATOLL_TRY(const std::string said, site.tail(ref.directory + "/" + site::kStandardError, kStderrBytes));
        return CheckJobSeen{
            "ended", "",
            judge_check_job(look.lines, look.exit_code, failure_text(said, kFailureBytesMax), site.facility())};
    }
    ATOLL_TRY(const auto answers, site.ask_batch({ref}));
    const BatchAnswer& answer = answers.at(0);
    if (answer.state == BatchState::kQueued) return CheckJobSeen{"queued", answer.reason};
    if (answer.state == BatchState::kRunning) return CheckJobSeen{"running", answer.reason};
    // It may have ended since it was looked at.
    ATOLL_TRY(const auto again, site.look({{ref.directory, 0}}));
    if (again.at(0).exit_code) return CheckJobSeen{"running"};
    std::string how = answer.reason.empty() ? "the batch system does not know the job" : answer.reason;
    // What a template's command or the batch system itself has said.
    if (const auto log = site.tail(ref.directory + "/" + site::kBatchLog, kStderrBytes); log.ok() && !log->empty())
        how += ": " + failure_text(*log, kFailureBytesMax);
    return CheckJobSeen{"ended", how, judge_check_job(again.at(0).lines, {}, how, site.facility())};
}

Status drop_check(Site& site, const CheckJob& check) {
    return site.remove(check_job_ref(check, site));
}

}  // namespace atl::dispatch
