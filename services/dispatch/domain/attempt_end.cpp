#include "services/dispatch/domain/attempt_end.h"

#include <algorithm>
#include <cctype>

#include "shared/base/text.h"
#include "shared/run_settings/exit_codes.h"

namespace atl::dispatch {
namespace {

constexpr std::int64_t kExitKilled = 137;  // 128 + SIGKILL

// "by ada" of "CANCELLED by ada".
std::string who_cancelled(const std::string& reason) {
    const std::size_t by = reason.find(" by ");
    if (by == std::string::npos) return " at the site";
    const std::size_t end = reason.find(':', by);
    return reason.substr(by, end == std::string::npos ? end : end - by);
}

std::string end_sentence(const BatchAnswer& answer) {
    switch (answer.end) {
        case BatchEnd::kOutOfMemory:
            return "its batch job ran out of memory";
        case BatchEnd::kTimeLimit:
            return "its batch job reached its time limit";
        case BatchEnd::kNodeFailure:
            return "a node of its batch job failed";
        case BatchEnd::kPreempted:
            return "its batch job was preempted by another one";
        case BatchEnd::kCancelled:
            return "its batch job was cancelled" + who_cancelled(answer.reason);
        case BatchEnd::kFailed:
            return "its batch job failed";
        case BatchEnd::kCompleted:
            return "its batch job ended by itself";
        case BatchEnd::kUnknown:
            break;
    }
    return "";
}

// A reason of squeue(1), "JOB REASON CODES", or a part of one, and what it means for the job.
struct Advice {
    std::string_view reason;
    const char* text;  // "ID" stands for the batch job's
};

// Whole reasons that end by what somebody does.
constexpr Advice kAdvice[] = {
    {"JobHeldUser", "is held: `scontrol release ID` at the site lets it go on"},
    {"JobHeldAdmin", "is held by the site's administrators: ask them why"},
    {"PartitionTimeLimit",
     "asks for more time than its partition gives: `scontrol update JobId=ID TimeLimit=TIME` at the site lowers it"},
    {"PartitionNodeLimit",
     "asks for more nodes than its partition gives: cancel the job, and submit it with fewer `nodes` in its resources"},
    {"PartitionDown", "waits until the site brings its partition up again: ask when that will be"},
    {"PartitionInactive", "waits until the site brings its partition up again: ask when that will be"},
    {"BadConstraints", "asks for what no node has: cancel the job, and correct its queue's record or its resources"},
    {"InvalidAccount",
     "has an account that the site no longer knows: correct the queue's record, then run `scontrol update JobId=ID "
     "Account=NAME` at the site"},
    {"InvalidQOS",
     "has a QOS that the site no longer knows: correct the queue's record, then run `scontrol update JobId=ID "
     "QOS=NAME` "
     "at the site"},
    {"Dependency",
     "waits for the end of the batch job before it; where that is none of Atoll's, as after Slurm has lost its state, "
     "`scontrol update JobId=ID Dependency=` at the site lets it go on"},
    {"ReservationDeleted",
     "has a reservation that is over: take it out of the queue's record, then run `scontrol update JobId=ID "
     "ReservationName=` at the site"},
};

// Parts of a reason: Slurm has dozens of limits, as AssocGrpCPUMinutesLimit and QOSMaxJobsPerUserLimit. The first that
// fits counts.
constexpr Advice kAdviceByPart[] = {
    {"Reserved for maintenance",
     "waits for the end of a maintenance: `scontrol show reservation` at the site says when that is"},
    {"DOWN, DRAINED", "waits for nodes that are away or reserved: `sinfo -R` at the site says why, and since when"},
    {"ReqNodeNotAvail", "waits for nodes that are away or reserved: `sinfo -R` at the site says why, and since when"},
};
constexpr Advice kLimitAdviceByPart[] = {
    {"PerJob",
     "asks for more than its account or QOS gives one job: cancel the job, and ask for less in its resources"},
    {"RunMinutes", "waits until other jobs of its account have ended"},
    {"Minutes", "has used up the compute time of its account: ask the site for more, or cancel the job"},
    {"", "waits for a limit of its account or QOS: it starts once other jobs have ended, if it fits the limit at all"},
};

// Of Slurm's name for a limit of an account or a QOS.
const char* limit_text(std::string_view limit) {
    for (const Advice& one : kLimitAdviceByPart)
        if (limit.find(one.reason) != std::string_view::npos) return one.text;
    return "";
}

// What a reason means and what to do about it; empty: its turn has not come, or nothing is known of the reason.
std::string advice(const std::string& reason, const std::string& batch_id) {
    const auto text = [&](const Advice& one) {
        return replace_all(std::string(" (batch job ID ") + one.text + ")", "ID", batch_id);
    };
    for (const Advice& one : kAdvice)
        if (reason == one.reason) return text(one);
    for (const Advice& one : kAdviceByPart)
        if (reason.find(one.reason) != std::string::npos) return text(one);
    if (!reason.starts_with("Assoc") && !reason.starts_with("QOS")) return "";
    return text({"", limit_text(reason)});
}

}  // namespace

bool is_interruption(BatchEnd end) {
    switch (end) {
        case BatchEnd::kTimeLimit:
        case BatchEnd::kNodeFailure:
        case BatchEnd::kPreempted:
        case BatchEnd::kCancelled:
            return true;
        case BatchEnd::kUnknown:
        case BatchEnd::kCompleted:
        case BatchEnd::kFailed:
        case BatchEnd::kOutOfMemory:
            break;
    }
    return false;
}

std::string end_text(const BatchAnswer& answer) {
    const std::string sentence = end_sentence(answer);
    if (sentence.empty()) return answer.reason;
    return answer.reason.empty() ? sentence : sentence + " (" + answer.reason + ")";
}

BatchAnswer as_stopped(BatchAnswer answer) {
    const bool is_unsaid = answer.end == BatchEnd::kUnknown || answer.end == BatchEnd::kCompleted;
    if (answer.state == BatchState::kQueued || answer.state == BatchState::kRunning || !is_unsaid) return answer;
    return {BatchState::kEnded, BatchEnd::kTimeLimit, ""};
}

std::string exit_code_text(std::int64_t exit_code) {
    const std::string text = "exit code " + std::to_string(exit_code);
    if (exit_code == kExitKilled) return text + " (killed by SIGKILL, as the kernel does when memory runs out)";
    if (exit_code == run_settings::kExitNotFinite) return text + " (the loss is not finite: lower `lr`)";
    return text;
}

std::string cure_of(BatchEnd end) {
    switch (end) {
        case BatchEnd::kTimeLimit:
            return "; it needs more than its batch job's time: raise `time` of its resources";
        case BatchEnd::kOutOfMemory:
            return "; raise `memory` of its resources, or lower batch_size";
        case BatchEnd::kCancelled:
            return "; it was cancelled again before it came further: ask the site why";
        case BatchEnd::kUnknown:
        case BatchEnd::kCompleted:
        case BatchEnd::kFailed:
        case BatchEnd::kNodeFailure:
        case BatchEnd::kPreempted:
            break;
    }
    return "; it is ended each time before it comes further";
}

bool tells_out_of_memory(std::string_view log_end) {
    // The last is of a Slurm that watches memory itself, by OverMemoryKill.
    for (const std::string_view word :
         {"oom-kill", "oom_kill", "Out Of Memory", "OUT_OF_MEMORY", "exceeded memory limit"})
        if (log_end.find(word) != std::string_view::npos) return true;
    return false;
}

std::string limit_advice(std::string_view said) {
    const auto is_letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; };
    for (auto at = said.begin(); at != said.end();) {
        const auto end = std::find_if_not(at, said.end(), is_letter);
        const std::string_view word(at, end);
        if ((word.starts_with("Assoc") || word.starts_with("QOS")) && word.ends_with("Limit"))
            return std::string(" (the job ") + limit_text(word) + ")";
        at = std::find_if(end, said.end(), is_letter);
    }
    return "";
}

std::string batch_wait(const BatchAnswer& answer, Step step, const std::string& batch_id) {
    // What was seen to run waits no more, whatever an older answer says.
    if (answer.state == BatchState::kQueued)
        return step == Step::kQueued ? answer.reason + advice(answer.reason, batch_id) : "";
    if (answer.is_suspended) return "suspended by the site";
    // A job that went well leaves its record in these moments.
    if (answer.state == BatchState::kEnded && answer.end != BatchEnd::kCompleted)
        return "its batch job has ended (" + answer.reason + "), and left no record so far";
    return "";
}

}  // namespace atl::dispatch
