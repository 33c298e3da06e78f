#pragma once

#include <filesystem>
#include <string>

#include "shared/json/json.h"

namespace atl::demo {

// A site of the demo as supercomputers have them: a Slurm cluster on this machine's loopback with an sshd, compute
// nodes and a user of its own, and no directory that anybody else works in. Needs root, Slurm and
// tests/slurm/cluster.sh.
class SlurmSite {
  public:
    static Result<SlurmSite> start(const std::string& name);
    static Status remove(const std::string& name);  // with all its files

    // As the user of the site does it, over ssh: `place` is below the work directory.
    Status copy_in(const std::filesystem::path& file, const std::string& place) const;
    // Why nobody can run containers here; empty: everybody can.
    Result<std::string> why_no_image() const;
    // As the user of the site builds it, without a registry; the image's file on this machine.
    Result<std::filesystem::path> build_image(const std::filesystem::path& programs) const;
    // Whoever logs in must be able to read it.
    std::filesystem::path private_key() const { return root_ / "ssh/user_key"; }
    // The facility's record: its programs are in the image, or files, at that place below the work directory.
    json::Json facility_with_image(const std::string& place) const;
    json::Json facility_with_programs(const std::string& place) const;

  private:
    SlurmSite(std::string name, std::filesystem::path root) : name_(std::move(name)), root_(std::move(root)) {}
    json::Json record() const;
    std::string user() const { return "atoll-" + name_; }
    std::string work_dir() const { return root_ / "scratch/atoll"; }
    std::string ssh_config() const { return root_ / "ssh/config"; }

    std::string name_;  // also of the login node, in its ssh configuration
    std::filesystem::path root_;
};

}  // namespace atl::demo
