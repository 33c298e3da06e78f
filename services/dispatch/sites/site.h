#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "services/dispatch/domain/facility.h"
#include "services/dispatch/domain/site_output.h"
#include "services/dispatch/sites/job_script.h"

namespace atl::dispatch {

struct LookOrder {
    std::string directory;        // the attempt's
    std::int64_t log_offset = 0;  // bytes of stdout.jsonl that were read before
};
constexpr std::size_t kLooksMax = 64;  // by one script

// What is found in an attempt's directory.
struct Look {
    bool started = false;
    std::optional<std::int64_t> exit_code;
    std::vector<std::string> lines;  // whole new lines of stdout.jsonl
    std::int64_t log_begin = 0;      // where they begin
    std::int64_t log_offset = 0;     // after them
    bool log_is_drained = true;
};

struct StageOrder {
    std::vector<std::string> digests;
    std::string pin;  // what needs them: a job or a preparation
    std::string store_url;
    std::string token;
};

struct PushOrder {
    std::string directory;  // the attempt's
    std::string model;
    std::string store_url;
    std::string token;
    json::Json meta;
};

struct SiteCheck {
    std::string name;
    bool ok = false;
    std::string detail;
};

// One facility as dispatch works with it: its paths, and a closed set of verbs with typed arguments, nothing that a
// site would have to run as it comes. Errors of every verb: kUnavailable, nothing is known; kInvalidArgument, it can
// never work (a program calls its input wrong); else it failed. Each may be repeated: an answer can be lost. Not
// thread-safe; cheap to make.
class Site {
  public:
    // `programs` is where atoll and atoll-trainer are when the facility does not say.
    Site(Facility facility, std::string programs);
    virtual ~Site() = default;

    const Facility& facility() const { return facility_; }
    std::string program(const std::string& name) const;
    std::string path(const std::string& relative) const;  // an absolute path stays as it is
    std::string task_directory(const std::string& task, std::int64_t attempt) const;
    std::string model_directory(const std::string& digest) const;

    // Puts the job into the queue unless one of its name was put there before; its id either way. kConflict: the job
    // was cancelled before; kInvalidArgument: the batch system says that it can never run.
    virtual Result<std::string> submit(const BatchJob& job) = 0;
    // One answer a job, in order, by one query.
    virtual Result<std::vector<BatchAnswer>> ask_batch(const std::vector<BatchJobRef>& jobs) = 0;
    // Ends the job wherever it stands and makes a later submission of that name impossible. Ok: it is gone.
    virtual Status cancel(const BatchJobRef& job) = 0;

    // Brings the versions into models/, pinned until clean(pin). The token never enters a command line.
    virtual Status stage(const StageOrder& order) = 0;
    // An error says nothing of the update, only that this was no good moment.
    virtual Result<PushAnswer> push(const PushOrder& order) = 0;
    // One look an order, in order, by one script; at most kLooksMax.
    virtual Result<std::vector<Look>> look(const std::vector<LookOrder>& orders) = 0;
    // The last bytes of a file as printable UTF-8; empty when there is none.
    virtual Result<std::string> tail(const std::string& file, std::int64_t bytes) = 0;
    // kNotFound; kTooLarge: it has more bytes.
    virtual Result<std::string> read_file(const std::string& file, std::size_t bytes_max) = 0;
    virtual Status publish(const std::string& prepared, const std::string& place) = 0;  // renames, once
    virtual Status clean(const std::string& pin, const std::vector<std::string>& tasks) = 0;
    virtual Result<std::vector<SiteCheck>> check(const std::string& store_url) = 0;

  protected:
    const std::string& programs() const { return programs_; }

  private:
    Facility facility_;
    std::string programs_;
};

}  // namespace atl::dispatch
