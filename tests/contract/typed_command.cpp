#include "tests/contract/typed_command.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <utility>

#include "shared/base/check.h"
#include "shared/base/file.h"

extern char** environ;

namespace atl::contract {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::minutes kWatchedFor{1};

struct Child {
    pid_t pid = -1;
    UniqueFd out;
    UniqueFd err;  // of a pipe
};

// What execve() takes; made before the fork, after which nothing may allocate.
class Program {
  public:
    explicit Program(const std::vector<std::string>& argv) : words_(argv) {
        for (char** entry = environ; *entry != nullptr; ++entry)
            if (std::strncmp(*entry, "COLUMNS=", 8) != 0 && std::strncmp(*entry, "TERM=", 5) != 0)
                environment_.push_back(*entry);
        environment_.push_back(terminal_.data());
        environment_.push_back(nullptr);
        for (std::string& word : words_) arguments_.push_back(word.data());
        arguments_.push_back(nullptr);
    }
    [[noreturn]] void run() const {
        ::execve(arguments_.front(), arguments_.data(), environment_.data());
        ::_exit(127);
    }

  private:
    std::vector<std::string> words_;
    std::string terminal_ = "TERM=xterm";
    std::vector<char*> arguments_;
    std::vector<char*> environment_;
};

Child start(const std::vector<std::string>& argv, Output output) {
    const Program program(argv);
    Child child;
    if (output == Output::kTerminal) {
        winsize size{};
        size.ws_row = 24;
        size.ws_col = 80;
        int terminal = -1;
        child.pid = ::forkpty(&terminal, nullptr, nullptr, &size);
        if (child.pid == 0) program.run();
        ::fcntl(terminal, F_SETFD, FD_CLOEXEC);
        child.out = UniqueFd(terminal);
        return child;
    }
    int out[2];
    int err[2];
    check(::pipe2(out, O_CLOEXEC) == 0 && ::pipe2(err, O_CLOEXEC) == 0, "no pipe");
    child.pid = ::fork();
    if (child.pid == 0) {
        ::dup2(out[1], STDOUT_FILENO);
        ::dup2(err[1], STDERR_FILENO);
        program.run();
    }
    child.out = UniqueFd(out[0]);
    child.err = UniqueFd(err[0]);
    ::close(out[1]);
    ::close(err[1]);
    return child;
}

// False at its end; a terminal whose program has ended says EIO.
bool read_some(const UniqueFd& fd, std::string& text) {
    char block[16384];
    const ssize_t count = ::read(fd.get(), block, sizeof block);
    if (count > 0) text.append(block, static_cast<std::size_t>(count));
    return count > 0 || (count < 0 && errno == EINTR);
}

using Condition = std::function<bool(const std::string& shown)>;

// Ctrl-C once `interrupts` holds for what was shown.
Answer follow(Child child, Condition interrupts) {
    check(child.pid > 0, "no process");
    Answer answer;
    pollfd streams[2] = {{child.out.get(), POLLIN, 0}, {child.err.get(), POLLIN, 0}};
    if (child.err.get() < 0) streams[1].fd = -1;
    const auto deadline = Clock::now() + kWatchedFor;
    while ((streams[0].fd >= 0 || streams[1].fd >= 0) && !answer.is_late) {
        answer.is_late = Clock::now() > deadline;
        if (::poll(streams, 2, 100) <= 0) continue;
        if (streams[0].revents != 0 && !read_some(child.out, answer.out)) streams[0].fd = -1;
        if (streams[1].revents != 0 && !read_some(child.err, answer.err)) streams[1].fd = -1;
        if (interrupts && interrupts(answer.out)) {
            ::kill(child.pid, SIGINT);
            interrupts = nullptr;
        }
    }
    if (answer.is_late) ::kill(child.pid, SIGKILL);
    int status = 0;
    while (::waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
    }
    answer.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return answer;
}

}  // namespace

Answer type(const std::vector<std::string>& argv, Output output) {
    return follow(start(argv, output), nullptr);
}

Answer type_and_interrupt(const std::vector<std::string>& argv, Output output,
                          const std::vector<std::string>& awaited) {
    return follow(start(argv, output), [&](const std::string& shown) {
        const auto is_shown = [&](const std::string& words) { return shown.find(words) != std::string::npos; };
        return !shown.empty() && std::all_of(awaited.begin(), awaited.end(), is_shown);
    });
}

}  // namespace atl::contract
