#pragma once

#include <sys/types.h>

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace atl {

// A service's program, as it was built, run as a process of its own until the object dies.
class ServiceProcess {
  public:
    // Runs atoll-NAME on loopback and waits until it is ready. `config` is the configuration without address, and
    // without port where any free one will do; its file and the log are kept in `directory`, under `label`.
    ServiceProcess(const std::string& name, const nlohmann::json& config, const std::filesystem::path& directory,
                   const std::string& label = {});
    ServiceProcess(const ServiceProcess&) = delete;
    ServiceProcess& operator=(const ServiceProcess&) = delete;
    ~ServiceProcess();  // SIGTERM, then SIGKILL

    const std::string& url() const { return url_; }
    pid_t pid() const { return pid_; }
    std::string log() const;
    void kill();  // SIGKILL, and waits for its end

  private:
    void wait_until_ready();

    std::filesystem::path log_file_;
    pid_t pid_ = -1;
    std::string url_;
};

}  // namespace atl
