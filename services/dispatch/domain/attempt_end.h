#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "services/dispatch/domain/batch_state.h"
#include "services/dispatch/domain/task.h"

// Why an attempt has ended, in words that people are shown. Pure.
namespace atl::dispatch {

// What ended a batch job and is no fault of what ran in it.
bool is_interruption(BatchEnd end);

// How a batch job ended, with the batch system's own words in brackets:
// "its batch job was cancelled by ada (CANCELLED by ada)". Empty: the batch system has not said.
std::string end_text(const BatchAnswer& answer);

// Why a training stopped that saved its state and exited with 0 before its last step: its time was up, unless the batch
// system says otherwise. Told in time, trainer and batch script end well, which Slurm calls COMPLETED.
BatchAnswer as_stopped(BatchAnswer answer);

// "exit code 137", with what that number means where it is known to mean one thing.
std::string exit_code_text(std::int64_t exit_code);

// What to do where a training is ended so again and again before it comes further.
std::string cure_of(BatchEnd end);

// Whether the end of a log tells that a process was ended for want of memory, which not every batch system counts as
// the job's end.
bool tells_out_of_memory(std::string_view log_end);

// What the batch job `batch_id` of an attempt at this step waits for: the batch system's word, and what to do where
// more than its turn has to come. Empty: for nothing.
std::string batch_wait(const BatchAnswer& answer, Step step, const std::string& batch_id);

// What a limit means that a submission was refused for, whose name stands in the batch system's words: " (the job asks
// for …)". Empty: there is none.
std::string limit_advice(std::string_view said);

}  // namespace atl::dispatch
