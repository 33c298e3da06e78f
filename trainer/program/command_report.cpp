#include <sys/utsname.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "shared/host/cores.h"
#include "shared/host/node.h"
#include "shared/log/warn.h"
#include "trainer/comm/launch.h"
#include "trainer/comm/mpi.h"
#include "trainer/comm/nccl.h"
#include "trainer/kernels/backend.h"
#include "trainer/kernels/device.h"
#include "trainer/program/commands.h"
#include "trainer/train/backend.h"
#include "trainer/train/json_lines.h"

namespace atl::program {
namespace {

using OrderedJson = nlohmann::ordered_json;

// The Singularity or Apptainer image that this process runs in.
OrderedJson image() {
    for (const char* name : {"APPTAINER_CONTAINER", "SINGULARITY_CONTAINER", "APPTAINER_NAME", "SINGULARITY_NAME"}) {
        if (const char* value = std::getenv(name)) return value;
    }
    return nullptr;
}

utsname system_names() {
    utsname names{};
    uname(&names);
    return names;
}

OrderedJson system() {
    const utsname names = system_names();
    return {{"host", names.nodename}, {"kernel", names.release}, {"machine", names.machine}};
}

OrderedJson chosen_device(const kernels::RankDevices& rank) {
    if (rank.visible == 0) return "cpu";
    const auto choice = kernels::choose_device(rank);
    if (!choice.ok()) return {{"error", choice.error().message}};
    return {{"gpu", choice->device}, {"card", kernels::gpu_card(choice->device)}, {"shared", choice->ranks > 1}};
}

// The names of the GPUs that this process may use; an object with the reason where this build's backend finds none.
OrderedJson gpus() {
    OrderedJson names = OrderedJson::array();
    const std::string device(kernels::gpu_device());
    if (device.empty()) return names;
    for (int index = 0; index == 0 || index < kernels::visible_gpus(); ++index) {
        const auto backend = kernels::make_gpu_backend(device, index);
        if (!backend.ok()) return {{"error", backend.error().message}};
        names.push_back((*backend)->name());
        if (index == 0 && !(*backend)->warning().empty()) log::warn((*backend)->warning());
    }
    return names;
}

OrderedJson kernels_in_use() {
    const auto name = kernels::cpu_kernels();
    if (!name.ok()) return {{"error", name.error().message}};
    return *name;
}

// The NCCL that ranks on GPUs would exchange tensors by; an object with the reason where a build for NVIDIA's GPUs does
// not find it.
OrderedJson nccl() {
    if (kernels::gpu_device() != "cuda") return nullptr;
    const auto& opened = comm::open_nccl();
    if (!opened.ok()) return {{"error", opened.error().message}};
    return {{"library", opened->name()}, {"path", opened->path}};
}

// Where this rank is and the device that it would take.
OrderedJson rank_line(comm::Comm& world) {
    const auto node = world.on_node();
    const kernels::RankDevices devices{node->rank(), node->size(), kernels::visible_gpus(),
                                       kernels::device_variables(comm::process_environment)};
    OrderedJson line = {{"rank", world.rank()},
                        {"host", system_names().nodename},
                        {"local_rank", node->rank()},
                        {"ranks_on_node", node->size()}};
    const auto launcher = comm::launcher_local_rank(comm::process_environment);
    if (launcher && launcher->rank != node->rank()) line["launcher_says"] = {{launcher->variable, launcher->rank}};
    line["visible_gpus"] = devices.visible;
    line["variables"] = OrderedJson::object();
    for (const kernels::DeviceVariable& variable : devices.variables) line["variables"][variable.name] = variable.value;
    line["device"] = chosen_device(devices);
    line["threads"] = train::thread_share(*node);
    return line;
}

// The lines of all ranks, in their order.
OrderedJson all_rank_lines(comm::Comm& world) {
    std::string mine = rank_line(world).dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
    double longest = static_cast<double>(mine.size());
    world.all_reduce(std::span(&longest, 1), comm::Reduction::kMax);
    const auto length = static_cast<std::size_t>(longest);
    mine.resize(length, ' ');
    std::string all(length * static_cast<std::size_t>(world.size()), ' ');
    world.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
    OrderedJson lines = OrderedJson::array();
    for (std::size_t at = 0; at < all.size(); at += length) {
        lines.push_back(OrderedJson::parse(all.substr(at, length)));
    }
    return lines;
}

// A check's job has five minutes: who waits longer is ended before it can say why.
constexpr double kReportLimit_s = 120;

class ReportCommand final : public Command {
  public:
    std::vector<Flag> flags() override { return {}; }

    Status run() override {
        ATOLL_TRY(const auto world, comm::open_world(kReportLimit_s));
        const OrderedJson ranks = all_rank_lines(*world);
        if (world->rank() != 0) return {};
        const OrderedJson report = {{"version", ATOLL_VERSION},
                                    {"system", system()},
                                    {"cpu",
                                     {{"model", host::cpu_model()},
                                      {"cores", host::usable_cores()},
                                      {"instructions", kernels::cpu_instruction_sets()}}},
                                    {"devices", train::built_devices()},
                                    {"gpu_architectures", kernels::gpu_architectures()},
                                    {"gpus", gpus()},
                                    {"available_bytes", host::available_bytes()},
                                    {"mpi", comm::mpi_version()},
                                    {"nccl", nccl()},
                                    {"kernels", kernels_in_use()},
                                    {"bf16_instructions", kernels::cpu_bf16_instructions()},
                                    {"gemm_libraries", kernels::cpu_gemm_libraries()},
                                    {"image", image()},
                                    {"ranks", ranks}};
        train::print_line(report.dump());
        if (const std::string warning = kernels::cpu_gemm_warning(); !warning.empty()) log::warn(warning);
        return {};
    }
};

}  // namespace

std::unique_ptr<Command> make_report_command() {
    return std::make_unique<ReportCommand>();
}

}  // namespace atl::program
