#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "services/dispatch/domain/facility_check.h"
#include "services/dispatch/testing/fake_squeue.h"
#include "shared/base/file.h"
#include "shared/base/subprocess.h"

namespace atl::dispatch {

// What stands for a login node's programs; the only ones in its PATH beside the tools that scripts need.
constexpr std::pair<const char*, const char*> kFakeSlurmPrograms[] = {
    // Runs what it is given at once.
    {"sbatch", R"sh(#!/bin/sh
case $1 in --version) echo slurm 22.05.8; exit ;; --test-only) exit ;; esac
for file; do :; done
sh "$file" >batch.log 2>&1
echo 1
)sh"},
    {"squeue", kFakeSqueue},
    {"scancel", "#!/bin/sh\n"},
    {"sacct", "#!/bin/sh\n"},
    {"scontrol", "#!/bin/sh\necho \"NodeName=n1 Arch=$(uname -m) Partitions=main\"\n"},
    {"sinfo", "#!/bin/sh\necho 'main*|1:00:00|10:00|1-infinite|4|4|4000|up|idle'\n"},
    {"srun", R"sh(#!/bin/sh
[ "$1" != --mpi=list ] || { printf 'MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\nspecific pmix plugin versions available: pmix_v4\n'; exit; }
case $1 in
    --mpi=none | --mpi=pmi2 | --mpi=pmix | --mpi=pmix_v4) ;;
    *) echo "srun: error: cannot find mpi plugin for $1" >&2; exit 1 ;;
esac
while :; do case $1 in -*) shift ;; *) break ;; esac; done
exec "$@"
)sh"},
    {"apptainer", R"sh(#!/bin/sh
inside=${0%/*}/../inside
while [ "${1%.sif}" = "$1" ]; do shift; done
shift
PATH=$inside:$PATH exec "$@"
)sh"},
    // Where a person who logs in has Slurm.
    {"fish", "#!/bin/sh\necho /opt/slurm/bin/sbatch\n"},
};

// A login node with Slurm and an image, played by programs of this machine: all that a facility's check looks at is as
// it should be.
class FakeSlurmSite {
  public:
    FakeSlurmSite() {
        for (const char* name : {"bin", "inside", "work"}) std::filesystem::create_directories(path(name));
        for (const char* tool :
             {"awk",  "bash",  "cat",  "chmod",    "cp",    "cut",       "date",  "dd",    "df",    "env",
              "find", "grep",  "head", "ls",       "nice",  "id",        "kill",  "ln",    "mkdir", "mktemp",
              "mv",   "nproc", "od",   "readlink", "rm",    "rmdir",     "sed",   "sh",    "sort",  "stat",
              "sync", "tail",  "tr",   "setsid",   "sleep", "sha256sum", "touch", "uname", "wc",    "timeout"})
            for (const std::string directory : {"/usr/bin/", "/bin/"})
                if (std::filesystem::exists(directory + tool) && !std::filesystem::exists(path("bin/") + tool))
                    std::filesystem::create_symlink(directory + tool, path("bin/") + tool);
        for (const auto& [name, text] : kFakeSlurmPrograms) put("bin/" + std::string(name), text);
        put("inside/atoll", "#!/bin/sh\n[ \"$1\" = ping ] || { echo atoll " ATOLL_VERSION "; exit; }\n" +
                                std::string("at=${3#http://} && at=${at%%/*}\n") +
                                "exec bash -c \"exec 3<>/dev/tcp/${at%:*}/${at#*:}\"\n");
        put("inside/atoll-trainer",
            "#!/bin/sh\necho '{\"version\":\"1\",\"devices\":[\"cpu\"],\"mpi\":\"Open MPI 4\",\"ranks\":[{\"rank\":0,"
            "\"host\":\"n1\",\"local_rank\":0,\"ranks_on_node\":1,\"visible_gpus\":0,\"device\":\"cpu\",\"threads\":4},"
            "{\"rank\":1,\"host\":\"n2\",\"local_rank\":0,\"ranks_on_node\":1,\"visible_gpus\":0,\"device\":\"cpu\","
            "\"threads\":4}]}'\n");
        put_image("02");
        listen();
        facility.name = "leonardo";
        facility.transport.kind = TransportKind::kLocal;
        facility.batch = {BatchKind::kSlurm, 1, {{"main", {}}}, "main"};
        facility.work_dir = path("work");
        facility.environment = {{"PATH", path("bin")}, {"SHELL", path("bin/fish")}};
        facility.image = ImageSpec{path("trainer.sif"), "", "", "none", {}, {}};
    }
    ~FakeSlurmSite() { ::close(store_); }
    FakeSlurmSite(const FakeSlurmSite&) = delete;
    FakeSlurmSite& operator=(const FakeSlurmSite&) = delete;

    std::string path(const std::string& name) const { return (directory_.path() / name).string(); }
    void put(const std::string& file, const std::string& text) const {
        std::filesystem::remove(path(file));  // a tool of the machine's stays
        check(write_file_atomic(path(file), text, 0755).ok(), "a file of the fake site");
    }
    // A SIF file for machines of that code.
    void put_image(const std::string& code) const {
        const std::string launch = std::string("#!/usr/bin/env run-singularity\n") + '\0';
        put("trainer.sif", launch + "SIF_MAGIC" + '\0' + "01" + '\0' + code + '\0' + std::string(4096, 'x'));
    }
    void flip_a_byte_of_the_image() const {
        std::fstream file(path("trainer.sif"), std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(2000);
        file.put('y');
        file.close();
        std::filesystem::last_write_time(path("trainer.sif"),
                                         std::filesystem::file_time_type::clock::now() - std::chrono::hours(2));
    }

    Facility facility;
    std::string store_url;

  private:
    void listen() {
        store_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof address;
        auto* any = reinterpret_cast<sockaddr*>(&address);
        check(::bind(store_, any, size) == 0 && ::listen(store_, 64) == 0 && ::getsockname(store_, any, &size) == 0,
              "a socket of the fake store");
        store_url = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/store";
    }

    TemporaryDirectory directory_;
    int store_ = -1;
};

// The rows by their names.
inline std::map<std::string, CheckRow> by_name(const std::vector<CheckRow>& rows) {
    std::map<std::string, CheckRow> named;
    for (const CheckRow& row : rows) named[row.name] = row;
    return named;
}

// Where a check of a site with one fault differs from that of a sound site: "ROW" of one that has failed, "warn ROW" of
// a warning. What could not be looked at is no finding.
inline std::vector<std::string> findings(const std::vector<CheckRow>& sound, const std::vector<CheckRow>& faulty) {
    const auto before = by_name(sound);
    std::vector<std::string> found;
    for (const CheckRow& row : faulty) {
        const bool is_wrong = row.state == CheckState::kFail || row.state == CheckState::kWarn;
        EXPECT_TRUE(!is_wrong || !row.mend.empty()) << row.name << " does not say what to do: " << row.seen;
        const auto same = before.find(row.name);
        if (row.state == CheckState::kSkipped || (same != before.end() && same->second.state == row.state)) continue;
        found.push_back((row.state == CheckState::kFail ? "" : "warn ") + row.name);
    }
    return found;
}

}  // namespace atl::dispatch
