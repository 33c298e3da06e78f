#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace atl {

// A Slurm cluster of a test's own: cluster.sh starts it and takes it away. Needs root and Slurm; why_not() tells.
class SlurmCluster {
  public:
    // Empty: one can be started here.
    static std::string why_not();
    // The same with --memory.
    static std::string why_not_memory();

    // `options` of `cluster.sh up` beside --port, as "--nodes", "1". Fails the test that it starts in.
    explicit SlurmCluster(const std::vector<std::string>& options = {});
    ~SlurmCluster();
    SlurmCluster(const SlurmCluster&) = delete;
    SlurmCluster& operator=(const SlurmCluster&) = delete;

    const std::string& name() const { return name_; }  // the login node's, in ssh_config()
    std::filesystem::path path(const std::string& file) const { return root_ / file; }
    std::string ssh_config() const { return path("ssh/config"); }
    std::string work_dir() const { return path("scratch/atoll"); }  // the user's
    // What a command prints that root gives on the cluster (scontrol, scancel); "" where it fails.
    std::string run(const std::vector<std::string>& command) const;
    void start() const;                          // what does not run
    void kill(const std::string& daemon) const;  // by SIGKILL: "slurmctld", "sshd.1", "slurmd.<name>-n1"

  private:
    std::vector<std::string> up_;
    std::string name_;
    std::filesystem::path root_;
};

}  // namespace atl
