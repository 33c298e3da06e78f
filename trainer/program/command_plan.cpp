#include <algorithm>
#include <nlohmann/json.hpp>

#include "shared/host/cores.h"
#include "shared/host/node.h"
#include "shared/training_memory/cards.h"
#include "trainer/comm/launch.h"
#include "trainer/comm/mpi.h"
#include "trainer/kernels/planned_gpu.h"
#include "trainer/program/commands.h"
#include "trainer/train/backend.h"
#include "trainer/train/exchange.h"
#include "trainer/train/json_lines.h"
#include "trainer/train/memory_check.h"

namespace atl::program {
namespace {

using training_memory::Card;

// How the workspace of attention is known of a card that is not here.
std::string attention_from(const Card& card, const run_settings::RunConfig& config) {
    if (config.deterministic || config.computes_in() == run_settings::Precision::kFp32)
        return "matrix products, exactly";
    const std::string library = kernels::kPlannedAttentionLibrary;
    if (card.has_planned_attention) return library + "'s plans for this card";
    const char* nearest = card.architecture >= 90 ? "H100" : card.architecture > 80 ? "L40S" : "A100";
    return library + "'s plans for an " + nearest + ", which this card resembles by its data sheet";
}

// What a plan is for.
struct Planned {
    std::string_view device;
    std::optional<Card> card;  // absent: what is here
    std::string attention_from = {};
    bool has_device_memory = false;  // of its own
    plan::Bytes limit = {};
};

std::string to_json_line(const plan::MemoryPlan& plan, const Planned& planned, bool fits) {
    nlohmann::ordered_json line = {{"device", planned.device}, {"rank", 0}};
    if (planned.card) line["card"] = planned.card->name;
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
    line["available_bytes"] = planned.limit.host;
    if (planned.has_device_memory) line["device_available_bytes"] = planned.limit.device;
    if (planned.card) {
        line["device_total_bytes"] = planned.card->memory_bytes;
        line["driver_bytes"] = training_memory::kDriverBytes;
        line["attention_from"] = planned.attention_from;
    }
    line["fits"] = fits;
    return line.dump();
}

// Needs no ranks: it says what each of --ranks would need, by the code that lays out a run's memory.
class PlanCommand final : public Command {
  public:
    std::vector<Flag> flags() override { return flags_.flags(); }

    Status run() override {
        ATOLL_RETURN_IF_ERROR(flags_.apply());
        if (!config_.card.empty()) {
            const auto found = training_memory::find_card(config_.card);
            if (!found.ok()) return invalid_argument("--card", found.error().message);
            card_ = *found;
        }
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
        ATOLL_TRY(const auto backend, open_backend(*self, counts, prepared.directory.model.formats.activations));
        ATOLL_TRY(prepared.exchange, train::plan_exchange(config_, *backend, counts.ranks, card_ ? 1 : counts.on_node));
        const std::int64_t program = host::resident_bytes();
        // A card that is not here is one rank's.
        const int ranks_a_gpu = card_ ? 1 : train::ranks_a_gpu(counts.on_node);
        const plan::Bytes limit = {.host = config_.memory_bytes > 0 ? config_.memory_bytes / sharing
                                                                    : host::available_bytes() / sharing + program,
                                   .device = train::device_share_bytes(*backend, ranks_a_gpu)};
        const plan::MemoryPlan plan =
            train::measure_with(prepared, train::memory_settings(prepared), *backend, 0, counts.ranks);
        const Status fits = train::check_memory(prepared, *backend, counts.ranks, limit);
        const Planned planned = {.device = to_string(config_.device),
                                 .card = card_,
                                 .attention_from = card_ ? attention_from(*card_, config_) : "",
                                 .has_device_memory = backend->device_memory().has_value(),
                                 .limit = limit};
        train::print_line(to_json_line(plan, planned, fits.ok()));
        return fits;
    }

  private:
    // The card's, or what is here, warm as in a training: what products leave behind counts.
    Result<std::unique_ptr<kernels::Backend>> open_backend(comm::Comm& self, const train::RankCounts& counts,
                                                           tensor::DType activations) {
        if (card_)
            return kernels::make_planned_gpu({.architecture = card_->architecture,
                                              .memory_bytes = card_->memory_bytes,
                                              .driver_bytes = training_memory::kDriverBytes,
                                              .deterministic = config_.deterministic});
        if (config_.threads == 0)
            config_.threads = std::max(1, host::usable_cores() / counts.on_node);  // of a rank, not all
        ATOLL_TRY(auto backend, train::open_backend(config_, self));
        train::warm_up_products(*backend, activations);
        return backend;
    }

    run_settings::RunConfig config_;
    std::optional<Card> card_;  // that is planned for and need not be here
    ConfigFlags flags_{config_, run_settings::kPlan};
};

}  // namespace

std::unique_ptr<Command> make_plan_command() {
    return std::make_unique<PlanCommand>();
}

}  // namespace atl::program
