#include <nlohmann/json.hpp>

#include "trainer/program/commands.h"
#include "trainer/train/json_lines.h"
#include "trainer/train/self_check.h"

namespace atl::program {
namespace {

class VerifyCommand final : public Command {
  public:
    std::vector<Flag> flags() override { return {}; }

    Status run() override {
        Status outcome;
        for (const std::string& instructions : kernels::cpu_instruction_sets()) {
            ATOLL_TRY(const auto backend, kernels::make_cpu_backend(1, instructions));
            const Status checked = train::check_backend(*backend, [&](const train::CheckResult& result) {
                train::print_line(nlohmann::ordered_json{
                    {"check", result.name},
                    {"instructions", instructions},
                    {"kernels", backend->name()},
                    {"error", result.error},
                    {"tolerance", result.tolerance},
                    {"ok",
                     result.ok()}}.dump());
            });
            if (outcome.ok()) outcome = checked;
        }
        return outcome;
    }
};

}  // namespace

std::unique_ptr<Command> make_verify_command() {
    return std::make_unique<VerifyCommand>();
}

}  // namespace atl::program
