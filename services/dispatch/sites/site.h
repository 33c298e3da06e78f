#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "services/dispatch/domain/facility.h"
#include "services/dispatch/domain/site_output.h"
#include "services/dispatch/sites/batch/batch_system.h"
#include "services/dispatch/sites/transport/transport.h"

namespace atl::dispatch {

// What is found when looking at an attempt's directory.
struct Probe {
    bool started = false;
    std::optional<std::int64_t> exit_code;
    std::vector<std::string> lines;  // whole new lines of stdout.jsonl
    std::int64_t log_offset = 0;     // after them
    bool log_is_drained = true;
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

// One facility as dispatch works with it: its paths, and the small scripts that run there. Errors of every call:
// kUnavailable, nothing is known; kInvalidArgument, it can never work (a program calls its input wrong); else it
// failed. Not thread-safe; cheap to make.
class Site {
  public:
    // `programs` is where atoll and atoll-trainer are when the facility does not say.
    Site(Facility facility, std::shared_ptr<Transport> transport, std::string programs);

    const Facility& facility() const { return facility_; }
    std::string program(const std::string& name) const;
    std::string path(const std::string& relative) const;  // an absolute path stays as it is
    std::string task_directory(const std::string& task, std::int64_t attempt) const;
    std::string model_directory(const std::string& digest) const;

    // Puts the script into the queue unless a job of that name was put there before; its id either way. kConflict: the
    // job was cancelled before; kInvalidArgument: the batch system says that it can never run.
    Result<std::string> submit(const BatchJobRef& job, const std::string& script);
    // One answer a job, in order, by one query.
    Result<std::vector<BatchAnswer>> ask_batch(const std::vector<BatchJobRef>& jobs);
    // Ends the job wherever it stands and makes a later submission of that name impossible. Ok: it is gone.
    Status cancel(const BatchJobRef& job);

    // Brings the versions into models/, pinned by `pin` until clean(pin). The token never enters a command line.
    Status stage(const std::vector<std::string>& digests, const std::string& pin, const std::string& store_url,
                 const std::string& token);
    // An error says nothing of the update, only that this was no good moment.
    Result<PushAnswer> push(const PushOrder& order);
    Result<Probe> probe(const std::string& directory, std::int64_t log_offset);
    // The last bytes of a file as printable UTF-8; empty when there is none.
    Result<std::string> tail(const std::string& file, std::int64_t bytes);
    // kNotFound; kTooLarge: it has more bytes.
    Result<std::string> read_file(const std::string& file, std::size_t bytes_max);
    Status publish(const std::string& prepared, const std::string& place);  // renames, once
    Status clean(const std::string& pin, const std::vector<std::string>& tasks);
    Result<std::vector<SiteCheck>> check(const std::string& store_url);

  private:
    // With the batch system's functions in front of it.
    Result<CommandResult> run_batch(RemoteScript script);
    // run() whatever the script's status is.
    Result<CommandResult> run_any(RemoteScript script);
    Result<CommandResult> run(RemoteScript script, const char* what);
    Status check_exit(const CommandResult& result, const char* what) const;
    Error missing(const CommandResult& result, const char* what) const;

    Facility facility_;
    std::shared_ptr<Transport> transport_;
    std::unique_ptr<BatchSystem> batch_;
    std::string programs_;
};

}  // namespace atl::dispatch
