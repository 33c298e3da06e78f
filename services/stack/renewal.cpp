#include "services/stack/renewal.h"

#include <sys/stat.h>

#include <csignal>
#include <utility>

#include "services/stack/process.h"
#include "shared/base/contained.h"

namespace atl::stack {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::hours kTokenInterval{1};

// Differs after every change of the file; empty where it is missing.
std::string state_of(const fs::path& file) {
    struct stat info{};
    if (::stat(file.c_str(), &info) != 0) return {};
    return std::to_string(info.st_ino) + " " + std::to_string(info.st_size) + " " +
           std::to_string(info.st_mtim.tv_sec) + "." + std::to_string(info.st_mtim.tv_nsec);
}

}  // namespace

FileWatch::FileWatch(std::vector<fs::path> files) : files_(std::move(files)) {
    (void)has_changed();
}

bool FileWatch::has_changed() {
    bool has_changed = false;
    for (const fs::path& file : files_) {
        const std::string now = state_of(file);
        if (now.empty() || now == states_[file]) continue;
        states_[file] = now;
        has_changed = true;
    }
    return has_changed;
}

void Renewal::look(const Stack& stack) {
    if (Clock::now() >= next_tokens_) renew_tokens(stack.layout);
    watch_certificate(stack);
}

// The services read their tokens each time that they show them.
void Renewal::renew_tokens(const Layout& layout) {
    const auto held = try_lock_state(layout);
    if (!held.ok()) return;  // soon again
    next_tokens_ = Clock::now() + kTokenInterval;
    const Status renewed = contained([&] { return make_credentials(layout); });
    if (!renewed.ok()) report_("cannot renew the stack's tokens: " + describe(renewed.error()));
}

void Renewal::watch_certificate(const Stack& stack) {
    const std::vector<fs::path> files = {stack.address.certificate, stack.address.certificate_key};
    if (std::exchange(watched_, files) != files) certificate_ = FileWatch(files);
    if (!certificate_.has_changed()) return;
    // Without its file nginx may not know yet what the signal means.
    const auto nginx = running_process(stack.layout.pid_file("gateway"));
    if (!nginx || !fs::exists(stack.layout.nginx() / "nginx.pid")) return;
    if (::kill(nginx->pid, SIGHUP) == 0) report_("the certificate files changed; nginx is reloading them");
}

}  // namespace atl::stack
