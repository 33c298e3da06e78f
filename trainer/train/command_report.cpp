#include <cblas.h>
#include <sys/utsname.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "trainer/comm/mpi.h"
#include "trainer/kernels/backend.h"
#include "trainer/plan/node.h"
#include "trainer/train/commands.h"
#include "trainer/train/metrics.h"

namespace atl::train {
namespace {

using OrderedJson = nlohmann::ordered_json;

// The Singularity or Apptainer image that this process runs in.
OrderedJson image() {
    for (const char* name : {"APPTAINER_CONTAINER", "SINGULARITY_CONTAINER", "APPTAINER_NAME", "SINGULARITY_NAME"}) {
        if (const char* value = std::getenv(name)) return value;
    }
    return nullptr;
}

OrderedJson system() {
    utsname names{};
    uname(&names);
    return {{"host", names.nodename}, {"kernel", names.release}, {"machine", names.machine}};
}

class ReportCommand final : public Command {
  public:
    std::vector<Flag> flags() override { return {}; }

    Status run() override {
        const OrderedJson report = {{"version", ATOLL_VERSION},
                                    {"system", system()},
                                    {"cpu",
                                     {{"model", plan::cpu_model()},
                                      {"cores", plan::usable_cores()},
                                      {"instructions", kernels::cpu_instruction_sets()}}},
                                    {"gpus", OrderedJson::array()},  // this build has no GPU backend
                                    {"available_bytes", plan::available_bytes()},
                                    {"mpi", comm::mpi_version()},
                                    {"blas", openblas_get_config()},
                                    {"image", image()}};
        print_line(report.dump());
        return {};
    }
};

}  // namespace

std::unique_ptr<Command> make_report_command() {
    return std::make_unique<ReportCommand>();
}

}  // namespace atl::train
