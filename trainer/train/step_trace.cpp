#include "trainer/train/step_trace.h"

#include <filesystem>
#include <string>

#include "shared/base/file.h"
#include "shared/log/warn.h"
#include "trainer/trace/trace.h"

namespace atl::train {
namespace {

// Beside --out. Without a directory at the end of its name, "out/" is "out".
std::filesystem::path trace_directory(const std::filesystem::path& out) {
    std::filesystem::path directory = out.has_filename() ? out : out.parent_path();
    directory += ".trace";
    return directory;
}

std::filesystem::path trace_file(const std::filesystem::path& directory, int rank) {
    return directory / ("rank-" + std::to_string(rank) + ".json");
}

}  // namespace

StepTrace::~StepTrace() {
    if (left_ > 0) write();
}

void StepTrace::before_step(std::int64_t step) {
    if (config_.trace_steps == 0 || left_ >= 0 || step < config_.trace_from) return;
    left_ = config_.trace_steps;
    double nothing = 0;
    comm_.all_reduce(std::span(&nothing, 1), comm::Reduction::kMax);  // so that no rank begins before another is here
    trace::start(backend_);
}

void StepTrace::after_step() {
    if (left_ > 0 && --left_ == 0) return write();
    trace::take_times();
}

void StepTrace::write() {
    left_ = 0;
    const std::filesystem::path directory = trace_directory(config_.out);
    const std::string events = trace::finish(comm_.rank(), comm_.size());
    std::error_code error;
    std::filesystem::create_directories(directory, error);
    const Status written = write_file_atomic(trace_file(directory, comm_.rank()), events);
    if (!written.ok()) log::warn("the trace is not written: " + written.error().message);
    // Of an earlier run on more ranks.
    for (int rank = comm_.size(); comm_.rank() == 0; ++rank)
        if (!std::filesystem::remove(trace_file(directory, rank), error)) break;
}

}  // namespace atl::train
