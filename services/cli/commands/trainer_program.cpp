#include "services/cli/commands/trainer_program.h"

#include <chrono>
#include <filesystem>
#include <iostream>

#include "shared/base/subprocess.h"

namespace atl::cli {
namespace {

constexpr std::chrono::hours kTrainerMax{24};

}  // namespace

Status run_trainer(const std::vector<std::string>& arguments, const std::string& field) {
    const auto trainer = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "atoll-trainer";
    std::vector<std::string> command = {trainer.string()};
    command.insert(command.end(), arguments.begin(), arguments.end());
    CommandOptions options;
    options.timeout = kTrainerMax;
    ATOLL_TRY(const auto result, run_command(command, options));
    if (result.exit_code == 0) {
        std::cerr << result.err;
        return {};
    }
    const std::string said = result.err.substr(0, result.err.find_last_not_of('\n') + 1);
    return Error{result.exit_code == 2 ? ErrorCode::kInvalidArgument : ErrorCode::kInternal,
                 said.empty() ? trainer.string() + " failed" : said, field};
}

}  // namespace atl::cli
