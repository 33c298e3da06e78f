#include <nlohmann/json.hpp>

#include "trainer/kernels/device.h"
#include "trainer/program/commands.h"
#include "trainer/train/json_lines.h"
#include "trainer/train/self_check.h"

namespace atl::program {
namespace {

class VerifyCommand final : public Command {
  public:
    std::vector<Flag> flags() override { return {}; }

    Status run() override {
        for (const std::string& instructions : kernels::cpu_instruction_sets()) {
            ATOLL_TRY(const auto backend, kernels::make_cpu_backend(1, instructions));
            check(*backend, {{"device", "cpu"}, {"instructions", instructions}});
        }
        if (kernels::visible_gpus() > 0) {
            const std::string device(kernels::gpu_device());
            ATOLL_TRY(const auto backend, kernels::make_gpu_backend(device, 0));
            check(*backend, {{"device", device}});
        }
        train::print_line(nlohmann::ordered_json{{"summary", true}, {"checks", checks_}, {"failed", failed_}}.dump());
        return outcome_;
    }

  private:
    void check(kernels::Backend& backend, const nlohmann::ordered_json& of) {
        const Status checked = train::check_backend(backend, [&](const train::CheckResult& result) {
            nlohmann::ordered_json line{{"check", result.name}};
            line.update(of);
            line.update({{"kernels", backend.name()},
                         {"error", result.error},
                         {"tolerance", result.tolerance},
                         {"ok", result.ok()}});
            train::print_line(line.dump());
            ++checks_;
            failed_ += result.ok() ? 0 : 1;
        });
        if (outcome_.ok()) outcome_ = checked;
    }

    int checks_ = 0;
    int failed_ = 0;
    Status outcome_;
};

}  // namespace

std::unique_ptr<Command> make_verify_command() {
    return std::make_unique<VerifyCommand>();
}

}  // namespace atl::program
