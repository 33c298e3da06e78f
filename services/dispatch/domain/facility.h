#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "services/dispatch/domain/batch_spec.h"
#include "shared/json/json.h"

namespace atl::dispatch {

struct TransportSpec {
    std::string kind;         // "local" or "ssh"
    std::string host;         // ssh: a host or an alias of the user's ssh configuration, "user@host" allowed
    std::string config_file;  // ssh -F, absolute; empty: the user's own
    bool operator==(const TransportSpec&) const = default;
};

// How one HPC site is used: its transport, its batch system, its work directory.
struct Facility {
    std::string name;
    TransportSpec transport;
    BatchSpec batch;
    std::string work_dir;  // absolute, at the site
    std::string programs;  // directory of atoll and atoll-trainer at the site; empty: ours (local) or PATH (ssh)
    // Command before atoll-trainer when ranks > 1, "{ranks}" replaced; "mpirun": of one machine. Empty: the batch
    // system's.
    std::string launcher;
    std::map<std::string, std::string> environment;  // of every batch job and site script
    // What evaluations and preparations ask for, each one process.
    Resources evaluation = {};
    Resources preparation = {};
    bool operator==(const Facility&) const = default;
};

// From a request: unknown fields, wrong types and parts that are not built yet are refused by name.
Result<Facility> parse_facility(const json::Json& value);
json::Json to_json(const Facility& facility);

// Of a new launcher: it says {ranks}, which Slurm's srun knows by itself, and nothing else in braces that would stay as
// it is (the shell's ${NAME} apart).
Status check_launcher(const Facility& facility);

// Whether a training there can have what it asks for, as check_resources() of its batch system and its launcher.
Status check_resources(const Resources& resources, const Facility& facility, const std::string& field);

// The first member that says where attempts run ("transport", "batch", "work_dir") and that differs; empty if none
// does. Another ssh host or configuration file is another way to the same place; other queues are those of later jobs.
std::string moved_member(const Facility& before, const Facility& after);
// Whether another trainer may run there than was looked at: another way in, other programs, another launcher.
bool is_other_trainer(const Facility& before, const Facility& after);

// An RFC 7396 merge patch; the name cannot change.
Result<Facility> patch_facility(const Facility& facility, const json::Json& patch);

}  // namespace atl::dispatch
