#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "services/dispatch/domain/batch_spec.h"
#include "services/dispatch/domain/image_spec.h"
#include "services/dispatch/domain/task.h"
#include "shared/json/json.h"

namespace atl::dispatch {

enum class TransportKind { kLocal, kSsh };
// How models and updates travel: the site asks the store, or they go through the coordinator's ssh sessions.
enum class DataPath { kStore, kSsh };
// Of which attempts a site's logs are given out.
enum class LogsGiven { kAll, kErrors, kNone };
// Their words in a record: "local", "ssh"; "store", "ssh"; "all", "errors", "none".
const char* to_string(TransportKind kind);
const char* to_string(DataPath path);
const char* to_string(LogsGiven given);

struct TransportSpec {
    TransportKind kind = TransportKind::kLocal;
    std::string host;           // ssh: a host or an alias of the user's ssh configuration, "user@host" allowed
    std::string config_file;    // ssh -F, absolute; empty: the user's own
    std::string host_key = {};  // what parse_host_key() gives; empty: what the user's own known_hosts say
    DataPath data = DataPath::kStore;
    bool operator==(const TransportSpec&) const = default;
};

// What of the attempts' logs leaves a site.
struct LogPolicy {
    LogsGiven give = LogsGiven::kAll;
    std::int64_t bytes_max = 65536;  // of each of the two streams, kept when an attempt has ended
    bool operator==(const LogPolicy&) const = default;
};

// How one HPC site is used: its transport, its batch system, its work directory.
struct Facility {
    std::string name;
    TransportSpec transport;
    BatchSpec batch;
    std::string work_dir;  // absolute, at the site
    std::string programs;  // directory of atoll and atoll-trainer at the site; empty: ours (local) or PATH (ssh)
    // Command before atoll-trainer when ranks > 1, "{ranks}" replaced; "mpirun": of one machine; "mpirun-in-image": the
    // image's own, of one machine. Empty: the batch system's, of an image on one machine its own.
    std::string launcher;
    std::map<std::string, std::string> environment;  // of every batch job and site script
    // What evaluations and preparations ask for, each one process.
    Resources evaluation = {};
    Resources preparation = {};
    std::optional<ImageSpec> image = {};  // that the programs are in; none: they are files of the site
    LogPolicy logs = {};
    std::string owner = {};               // the subject of a token; empty: the admins', for everybody's jobs
    std::vector<std::string> allow = {};  // whose jobs may use it beside the owner's; "*": everybody's
    bool has_work_dir = false;            // it was there before, and is not made again; no part of the record
    bool operator==(const Facility&) const = default;
};

// Whether jobs of this person, who is no admin, may use its account: its owner, whom it allows, or where it has neither
// everybody.
bool is_for_jobs_of(const Facility& facility, const std::string& subject);

// From a request: unknown fields, wrong types and parts that are not built yet are refused by name.
Result<Facility> parse_facility(const json::Json& value);
json::Json to_json(const Facility& facility);

// The word for a launcher that the image brings.
constexpr const char* kMpirunInImage = "mpirun-in-image";

// Of a new launcher: it says {ranks}, which Slurm's srun knows by itself, and nothing else in braces that would stay as
// it is (the shell's ${NAME} apart).
Status check_launcher(const Facility& facility);

// Whether a training there can have what it asks for, as check_resources() of its batch system and its launcher.
Status check_resources(const Resources& resources, const Facility& facility, const std::string& field);

// Whether what an attempt wrote at the site is given out. `step`: where the attempt stands.
bool gives_logs(const LogPolicy& policy, Step step);

inline constexpr const char* kSlotsMember = "batch.slots";
// The first member that says where attempts run ("transport", "batch", "work_dir", "batch.slots") and that differs;
// empty if none does. Another ssh host or configuration file is another way to the same place; other queues are those
// of later jobs.
std::string moved_member(const Facility& before, const Facility& after);
// Whether another trainer may run there than was looked at: another way in, other programs, another image or
// launcher.
bool is_other_trainer(const Facility& before, const Facility& after);

// An RFC 7396 merge patch; the name cannot change.
Result<Facility> patch_facility(const Facility& facility, const json::Json& patch);

}  // namespace atl::dispatch
