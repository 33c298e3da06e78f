#include "shared/base/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <optional>
#include <string_view>

#include "shared/base/file.h"

extern char** environ;

namespace atl {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kTermToKill{2000};
constexpr milliseconds kTickWithoutPidfd{20};
constexpr milliseconds kTickToNoticeStop{200};
// What a child wrote before it exited is at most what its pipes hold; a grandchild that inherited them (such as an
// ssh control master) may keep writing for ever.
constexpr std::size_t kDrainBytesMax = 2U << 20;

struct Pipe {
    UniqueFd read;
    UniqueFd write;
};

Result<Pipe> make_pipe() {
    int fds[2];
    if (::pipe2(fds, O_CLOEXEC) != 0) return internal_error(std::string("cannot make a pipe: ") + std::strerror(errno));
    return Pipe{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

void set_nonblocking(const UniqueFd& fd) {
    ::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
}

// A child that closes its input early must not kill us: blocks SIGPIPE in this thread and swallows what came.
class SigpipeGuard {
  public:
    SigpipeGuard() {
        sigemptyset(&sigpipe_);
        sigaddset(&sigpipe_, SIGPIPE);
        pthread_sigmask(SIG_BLOCK, &sigpipe_, &before_);
    }
    SigpipeGuard(const SigpipeGuard&) = delete;
    SigpipeGuard& operator=(const SigpipeGuard&) = delete;
    ~SigpipeGuard() {
        if (sigismember(&before_, SIGPIPE) == 0) {
            const timespec now{};
            while (sigtimedwait(&sigpipe_, nullptr, &now) >= 0) {
            }
        }
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }

  private:
    sigset_t sigpipe_;
    sigset_t before_;
};

std::vector<std::string> merged_environment(const std::map<std::string, std::string>& added) {
    std::vector<std::string> result;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string_view text(*entry);
        if (!added.contains(std::string(text.substr(0, text.find('='))))) result.emplace_back(text);
    }
    for (const auto& [name, value] : added) result.push_back(name + "=" + value);
    return result;
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
    std::vector<char*> result;
    for (const auto& string : strings) result.push_back(const_cast<char*>(string.c_str()));
    result.push_back(nullptr);
    return result;
}

struct SpawnRequest {
    const std::vector<std::string>& argv;
    const std::map<std::string, std::string>& environment;
    const std::filesystem::path& directory;
    std::array<int, 3> standard_fds;  // become 0, 1, 2; every other descriptor is closed
    short flags;                      // POSIX_SPAWN_SETPGROUP or POSIX_SPAWN_SETSID
};

// The child starts with default signal handling, whatever this process blocks or ignores.
void reset_signals(posix_spawnattr_t& attributes) {
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes, &none);
    sigset_t all;
    sigfillset(&all);
    sigdelset(&all, SIGKILL);
    sigdelset(&all, SIGSTOP);
    posix_spawnattr_setsigdefault(&attributes, &all);
}

Result<pid_t> spawn(const SpawnRequest& request) {
    check(!request.argv.empty(), "a command needs at least its name");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    for (int i = 0; i < 3; ++i)
        posix_spawn_file_actions_adddup2(&actions, request.standard_fds[static_cast<std::size_t>(i)], i);
    posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    if (!request.directory.empty()) posix_spawn_file_actions_addchdir_np(&actions, request.directory.c_str());

    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    reset_signals(attributes);
    posix_spawnattr_setflags(&attributes,
                             static_cast<short>(request.flags | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF));

    const auto environment = merged_environment(request.environment);
    pid_t pid = -1;
    const int code = posix_spawnp(&pid, request.argv[0].c_str(), &actions, &attributes, pointers(request.argv).data(),
                                  pointers(environment).data());
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    if (code == 0) return pid;
    const std::string where = request.directory.empty() ? "" : " in " + request.directory.string();
    return Error{code == ENOENT ? ErrorCode::kNotFound : ErrorCode::kInternal,
                 "cannot start " + request.argv[0] + where + ": " + std::strerror(code), request.argv[0]};
}

// One running command: its pipes are moved and its exit is awaited by a single poll loop, so that no amount of input
// or output can block either side.
class Running {
  public:
    Running(pid_t pid, UniqueFd in, UniqueFd out, UniqueFd err, const CommandOptions& options)
        : pid_(pid), in_(std::move(in)), out_(std::move(out)), err_(std::move(err)), options_(options) {
        pidfd_ = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
        for (const auto* fd : {&in_, &out_, &err_}) set_nonblocking(*fd);
        if (options_.input.empty() && !options_.source) in_.reset();
    }

    CommandResult wait() {
        const SigpipeGuard guard;
        deadline_ = Clock::now() + options_.timeout;
        while (!exited()) {
            enforce_deadline();
            poll_once();
        }
        // The leader is dead but not reaped, so its group's number is still ours to signal.
        if (result_.timed_out) ::kill(-pid_, SIGKILL);
        int status = 0;
        while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
        }
        drain(out_, result_.out);
        drain(err_, result_.err);
        result_.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        return std::move(result_);
    }

  private:
    bool exited() const {
        siginfo_t info{};
        return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_;
    }

    void enforce_deadline() {
        const bool stopped = options_.stop.stop_requested() && !result_.timed_out;
        if (Clock::now() < deadline_ && !stopped) return;
        ::kill(-pid_, result_.timed_out ? SIGKILL : SIGTERM);
        result_.timed_out = true;
        deadline_ = Clock::now() + kTermToKill;
    }

    void poll_once() {
        std::array<pollfd, 4> fds{{{in_.get(), POLLOUT, 0},
                                   {out_.get(), POLLIN, 0},
                                   {err_.get(), POLLIN, 0},
                                   {pidfd_.get(), POLLIN, 0}}};  // poll ignores negative descriptors
        auto wait = std::chrono::ceil<milliseconds>(deadline_ - Clock::now());
        if (!pidfd_.valid()) wait = std::min(wait, kTickWithoutPidfd);
        if (options_.stop.stop_possible()) wait = std::min(wait, kTickToNoticeStop);
        const auto wait_ms = std::clamp<std::int64_t>(wait.count(), 0, 60000);
        if (::poll(fds.data(), fds.size(), static_cast<int>(wait_ms)) <= 0) return;
        if (fds[0].revents != 0) feed();
        if (fds[1].revents != 0) read_some(out_, result_.out);
        if (fds[2].revents != 0) read_some(err_, result_.err);
    }

    void feed() {
        if (input_.empty() && options_.source) {
            more_ = options_.source();
            input_ = more_;
        }
        const ssize_t written = input_.empty() ? 0 : ::write(in_.get(), input_.data(), input_.size());
        if (written < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (written > 0) input_.remove_prefix(static_cast<std::size_t>(written));
        const bool has_more = written > 0 && options_.source;
        if (input_.empty() && !has_more) in_.reset();
        if (written < 0) in_.reset();
    }

    // Returns how many bytes came; 0 at the end, when nothing is there now, or on an error.
    std::size_t read_some(UniqueFd& fd, std::string& into) {
        if (!fd.valid()) return 0;
        const ssize_t got = ::read(fd.get(), block_.data(), block_.size());
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
        if (got <= 0) {
            fd.reset();
            return 0;
        }
        const auto size = static_cast<std::size_t>(got);
        if (options_.sink && &into == &result_.out) {
            if (!options_.sink({block_.data(), size})) deadline_ = std::min(deadline_, Clock::now());
        } else {
            into.append(block_.data(), std::min(size, options_.output_bytes_max - into.size()));
        }
        return size;
    }

    void drain(UniqueFd& fd, std::string& into) {
        std::size_t total = 0;
        for (std::size_t got = 1; got > 0 && total < kDrainBytesMax; total += got) got = read_some(fd, into);
    }

    pid_t pid_;
    UniqueFd pidfd_;  // invalid on kernels before 5.3: then exit is noticed by ticks
    UniqueFd in_;
    UniqueFd out_;
    UniqueFd err_;
    const CommandOptions& options_;
    std::string more_;
    std::string_view input_ = options_.input;  // not fed yet
    Clock::time_point deadline_;
    CommandResult result_;
    std::array<char, 65536> block_;
};

}  // namespace

Result<CommandResult> run_command(const std::vector<std::string>& argv, const CommandOptions& options) {
    ATOLL_TRY(Pipe in, make_pipe());
    ATOLL_TRY(Pipe out, make_pipe());
    ATOLL_TRY(Pipe err, make_pipe());
    ATOLL_TRY(const pid_t pid, spawn({argv,
                                      options.environment,
                                      options.directory,
                                      {in.read.get(), out.write.get(), err.write.get()},
                                      POSIX_SPAWN_SETPGROUP}));
    in.read.reset();
    out.write.reset();
    err.write.reset();
    return Running(pid, std::move(in.write), std::move(out.read), std::move(err.read), options).wait();
}

Result<pid_t> start_daemon(const std::vector<std::string>& argv, const DaemonOptions& options) {
    const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
    const UniqueFd log(options.log.empty()
                           ? ::dup(null.get())
                           : ::open(options.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640));
    if (!null.valid() || !log.valid())
        return Error{ErrorCode::kInternal, "cannot open " + options.log.string() + ": " + std::strerror(errno),
                     options.log.string()};
    return spawn(
        {argv, options.environment, options.directory, {null.get(), log.get(), log.get()}, POSIX_SPAWN_SETSID});
}

}  // namespace atl
