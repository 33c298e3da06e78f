#include <algorithm>
#include <nlohmann/json.hpp>

#include "shared/host/cores.h"
#include "shared/host/node.h"
#include "trainer/comm/launch.h"
#include "trainer/comm/mpi.h"
#include "trainer/program/commands.h"
#include "trainer/train/backend.h"
#include "trainer/train/exchange.h"
#include "trainer/train/json_lines.h"
#include "trainer/train/memory_check.h"

namespace atl::program {
namespace {

// `has_device_memory`: of its own.
std::string to_json_line(const plan::MemoryPlan& plan, std::string_view device, const plan::Bytes& limit,
                         bool has_device_memory, bool fits) {
    nlohmann::ordered_json line = {{"device", device}, {"rank", 0}};
    for (int i = 0; i < tensor::kCategoryCount; ++i) {
        const auto category = static_cast<tensor::Category>(i);
        line[std::string(tensor::to_string(category)) + "_bytes"] = plan.categories[static_cast<std::size_t>(i)];
    }
    line["allocated_bytes"] = plan.device_bytes + plan.pinned_bytes;
    line["pinned_bytes"] = plan.pinned_bytes;
    line["backend_bytes"] = plan.backend_bytes;
    line["program_bytes"] = plan.program_bytes;
    line["staging_bytes"] = plan.staging_bytes;
    line["total_bytes"] = plan.total_bytes();
    line["offloaded_bytes"] = plan.offloaded_bytes;
    line["available_bytes"] = limit.host;
    if (has_device_memory) line["device_available_bytes"] = limit.device;
    line["fits"] = fits;
    return line.dump();
}

// Needs no ranks: it says what each of --ranks would need, by the code that lays out a run's memory.
class PlanCommand final : public Command {
  public:
    std::vector<Flag> flags() override { return flags_.flags(); }

    Status run() override {
        ATOLL_RETURN_IF_ERROR(flags_.apply());
        ATOLL_RETURN_IF_ERROR(train::settle_offload_dir(config_));
        if (config_.ranks == 0) config_.ranks = comm::launcher_size(comm::process_environment);
        const std::int64_t ranks = config_.ranks;
        if (config_.ranks_per_node > ranks)
            return invalid_argument("--ranks-per-node", "must not be more than the ranks, " + std::to_string(ranks));
        const auto self = comm::make_self();
        if (config_.steps == 0) config_.epochs = 1;
        const std::int64_t sharing = config_.ranks_per_node > 0 ? config_.ranks_per_node : ranks;
        const train::RankCounts counts{static_cast<int>(ranks), static_cast<int>(sharing)};
        ATOLL_TRY(train::PreparedRun prepared,
                  train::prepare_training(config_, *self, counts, model_io::Weights::kIfThere));
        prepared.unseen_bytes = comm::library_bytes(counts.on_node);
        if (config_.threads == 0)
            config_.threads = std::max(1, host::usable_cores() / counts.on_node);  // of a rank, not all
        ATOLL_TRY(const auto backend, train::open_backend(config_, *self));
        ATOLL_TRY(prepared.exchange, train::plan_exchange(config_, *backend, counts.ranks, counts.on_node));
        train::warm_up_products(  // as `train` does: what they leave behind counts
            *backend, prepared.directory.model.formats.activations);
        const std::int64_t program = host::resident_bytes();
        const plan::Bytes limit = {.host = config_.memory_bytes > 0 ? config_.memory_bytes / sharing
                                                                    : host::available_bytes() / sharing + program,
                                   .device = train::device_share_bytes(*backend, train::ranks_a_gpu(counts.on_node))};
        const plan::MemoryPlan plan =
            train::measure_with(prepared, train::memory_settings(prepared), *backend, 0, counts.ranks);
        const Status fits = train::check_memory(prepared, *backend, counts.ranks, limit);
        train::print_line(
            to_json_line(plan, to_string(config_.device), limit, backend->device_memory().has_value(), fits.ok()));
        return fits;
    }

  private:
    run_settings::RunConfig config_;
    ConfigFlags flags_{config_, run_settings::kPlan};
};

}  // namespace

std::unique_ptr<Command> make_plan_command() {
    return std::make_unique<PlanCommand>();
}

}  // namespace atl::program
