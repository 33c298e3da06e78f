#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "services/dispatch/domain/facility.h"
#include "services/dispatch/domain/facility_check.h"
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
    std::int64_t free_kib = -1;  // in the work directory; -1: not known
    std::string unknown;         // why nothing of this is known: the directory cannot be entered
};

struct LookAndQueue {
    std::vector<Look> looks;
    Result<std::vector<BatchAnswer>> queue = unavailable("the batch system was not asked");
};

struct StageOrder {
    std::vector<std::string> digests;
    std::string pin;      // what needs them: a job or a preparation
    std::string attempt;  // the batch job's name: what is begun is begun for it
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

// Some of the bytes of the facility's image on their way there; none: how far it is.
struct ImagePart {
    std::int64_t bytes_total = 0;  // of the image
    std::int64_t offset = 0;
    std::string bytes;
};
constexpr std::int64_t kImagePartBytesMax = 16 << 20;

struct CheckOrder {
    std::string store_url;
    double now_s = 0;  // by the coordinator's clock
};

// What a look at a site as a whole has found.
struct SiteCheck {
    std::vector<CheckRow> rows;
    std::string host = {};                                 // the login node; empty: it could not be asked
    bool has_looked_at_queues = false;                     // the batch system has told which there are
    std::map<std::string, QueueLimits> limits = {};        // of those there are, by their names in the record
    std::optional<std::vector<std::string>> devices = {};  // what its trainer computes on
    bool has_work_dir = false;
    std::vector<std::string> tasks =
        {};                              // that have a directory in its work directory, the oldest first, at most 1,000
    std::vector<std::string> kept = {};  // the same of jobs whose sites keep something for their next round
    std::optional<std::string> no_batch_answer = {};  // why its batch system does not answer; empty: it does
};

// The kUnavailable of a site whose work directory is not there, as where its file system is not mounted.
Error no_work_dir(const Facility& facility, const std::string& said);
// Whether an error stands in the way of everything at a facility: it gives no answer, or its work directory is away.
bool is_of_facility(const Error& error);
// The kUnavailable, with Cause::kBatchSystem, of a site whose batch system gives no answer; what runs there can be
// looked at all the same.
Error no_batch_answer(const Facility& facility, const std::string& said);

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
    std::string program(const std::string& name) const;   // a file, or the name of one in PATH or in the image
    std::string path(const std::string& relative) const;  // an absolute path stays as it is
    std::string task_directory(const std::string& task, std::int64_t attempt) const;
    std::string model_directory(const std::string& digest) const;

    // Puts the job into the queue unless one of its name was put there before; its id either way. kConflict: the job
    // was cancelled before; kInvalidArgument: the batch system says that it can never run.
    virtual Result<std::string> submit(const BatchJob& job) = 0;
    // Has the trainer see, on the login node, what the files of an input are and whether it can read the tokenizer.
    // kInvalidArgument: it cannot read one of them, with its words, which name a file; ok: it can, or nothing is known,
    // as where only compute nodes see the files.
    virtual Status check_input(const std::vector<std::string>& command) = 0;
    // One answer a job, in order, by one query.
    virtual Result<std::vector<BatchAnswer>> ask_batch(const std::vector<BatchJobRef>& jobs) = 0;
    // A short question to the batch system, to learn whether it answers at all: Cause::kBatchSystem if not.
    virtual Status ping_batch() = 0;
    // Ends the job wherever it stands, its push too, and makes a later submission of that name impossible. Ok: it is
    // gone.
    virtual Status cancel(const BatchJobRef& job) = 0;

    // cancel(), and what the job has left goes, its logs too.
    virtual Status remove(const BatchJobRef& job) = 0;

    // What moves data goes on at the site by itself and is looked at by the same verb, which is patient for two seconds
    // with what it has begun. Nothing: it is done.
    using Move = Result<std::optional<Moving>>;

    // Brings the versions into models/, pinned until clean(pin). The token never enters a command line.
    virtual Result<StageAnswer> stage(const StageOrder& order) = 0;
    // Ends what stage() has begun for this attempt.
    virtual Status stop_staging(const StageOrder& order) = 0;
    // An error says nothing of the update, only that this was no good moment.
    virtual Result<PushAnswer> push(const PushOrder& order) = 0;
    // One look an order, in order, by one script; at most kLooksMax.
    virtual Result<std::vector<Look>> look(const std::vector<LookOrder>& orders) = 0;
    // look(), and then ask_batch(), by one script.
    virtual Result<LookAndQueue> look_and_ask(const std::vector<LookOrder>& orders,
                                              const std::vector<BatchJobRef>& jobs) = 0;
    // The last bytes of each of these files of attempts as printable UTF-8, by one script; empty when there is none.
    virtual Result<std::vector<std::string>> tails(const std::vector<std::string>& files, std::int64_t bytes) = 0;
    Result<std::string> tail(const std::string& file, std::int64_t bytes);
    // kNotFound; kTooLarge: it has more bytes.
    virtual Result<std::string> read_file(const std::string& file, std::size_t bytes_max) = 0;
    virtual Status publish(const std::string& prepared, const std::string& place) = 0;  // renames, once
    virtual Move clean(const std::string& pin, const std::vector<std::string>& tasks) = 0;
    // Brings the image of the facility's record, which has its sha256, to its place, part by part: bytes_done says
    // where the next part begins. What has come as a whole is read before it gets its name. kInvalidArgument: it is
    // another image, and is gone.
    virtual Move put_image(const ImagePart& part) = 0;
    // One script at the site for all that its login node can tell; what went wrong is a row.
    virtual SiteCheck check(const CheckOrder& order) = 0;

  protected:
    const std::string& programs() const { return programs_; }

  private:
    Facility facility_;
    std::string programs_;
};

}  // namespace atl::dispatch
