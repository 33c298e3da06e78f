#include "tests/e2e/demo/process.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "shared/base/subprocess.h"
#include "shared/base/text.h"

namespace atl::demo {
namespace {

std::string tail(const std::string& text, std::size_t bytes_max = 2000) {
    return text.size() > bytes_max ? "…" + text.substr(text.size() - bytes_max) : text;
}

}  // namespace

Result<std::string> run_program(const std::vector<std::string>& argv, const std::string& input) {
    CommandOptions options;
    options.input = input;
    options.timeout = std::chrono::minutes(15);
    ATOLL_TRY(CommandResult result, run_command(argv, options));
    if (result.exit_code != 0)
        return internal_error("`" + join(argv, " ") + "` ended with status " + std::to_string(result.exit_code) +
                              ":\n" + tail(result.err.empty() ? result.out : result.err));
    return std::move(result.out);
}

Result<json::Json> last_json_line(const std::string& output) {
    const auto end = output.find_last_not_of(" \n");
    if (end == std::string::npos) return internal_error("a program printed nothing where JSON was expected");
    const auto newline = output.rfind('\n', end);
    const std::size_t begin = newline == std::string::npos ? 0 : newline + 1;
    return json::parse(output.substr(begin, end - begin + 1));
}

int run_attached(const std::vector<std::string>& argv) {
    std::vector<char*> words;
    for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    pid_t child = 0;
    if (::posix_spawnp(&child, words[0], nullptr, nullptr, words.data(), environ) != 0) return 127;
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace atl::demo
