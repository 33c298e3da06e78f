#include "tests/integration/service_process.h"

#include <sys/wait.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "shared/base/file.h"
#include "shared/base/subprocess.h"
#include "shared/http/client/client.h"
#include "tests/integration/test_stack.h"

namespace atl {
namespace {

std::filesystem::path program_directory() {
    return std::filesystem::read_symlink("/proc/self/exe").parent_path();
}

// Ready: /readyz answers 200. The port stands in the log line "listening on 127.0.0.1:PORT".
std::string url_in(const std::string& log) {
    constexpr std::string_view kMark = "listening on ";
    const auto at = log.find(kMark);
    if (at == std::string::npos) return {};
    const auto begin = at + kMark.size();
    return "http://" + log.substr(begin, log.find('"', begin) - begin);
}

bool is_ready(const std::string& url) {
    http::ClientOptions options;
    options.base_url = url;
    options.attempts_max = 1;
    const auto answer = http::Client(options).call(http::Method::kGet, "/readyz");
    return answer.ok() && answer->status == 200;
}

}  // namespace

ServiceProcess::ServiceProcess(const std::string& name, const nlohmann::json& config,
                               const std::filesystem::path& directory, const std::string& label)
    : log_file_(directory / (name + label + ".log")) {
    const auto config_file = directory / (name + label + ".yaml");
    nlohmann::json complete = config;
    complete["listen_address"] = "127.0.0.1";
    complete["port"] = config.value("port", 0);
    check(write_file_atomic(config_file, complete.dump()).ok(), "cannot write the configuration");
    const auto pid = start_daemon({program_directory() / ("atoll-" + name), "--config", config_file},
                                  {.log = log_file_, .environment = {}, .directory = directory});
    check(pid.ok(), pid.ok() ? "" : pid.error().message);
    pid_ = *pid;
    wait_until_ready();
}

void ServiceProcess::wait_until_ready() {
    const bool ready = eventually([&] {
        url_ = url_in(log());
        if (!url_.empty() && is_ready(url_)) return true;
        check(::waitpid(pid_, nullptr, WNOHANG) == 0, "the service ended: " + log());
        return false;
    });
    check(ready, "the service does not become ready: " + log());
}

ServiceProcess::~ServiceProcess() {
    if (pid_ < 0) return;
    ::kill(pid_, SIGTERM);
    if (!eventually([&] { return ::waitpid(pid_, nullptr, WNOHANG) == pid_; })) kill();
}

void ServiceProcess::kill() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
}

std::string ServiceProcess::log() const {
    return read_file(log_file_).ok() ? read_file(log_file_).value() : "";
}

}  // namespace atl
