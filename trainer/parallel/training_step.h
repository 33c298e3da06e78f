#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "trainer/parallel/run_memory.h"

namespace atl::parallel {

// What all training steps of a run have in common.
struct StepRules {
    std::int64_t micro_steps = 1;  // of a step, on each rank
    // A micro-step is one sequence; losses and gradients of a step's sequences are added in one fixed tree
    // (GradientReduce::Options::fixed_tree_sequences).
    bool by_sequence = false;
    double nominal_targets = 1;    // what gradients are divided by until the number of real targets is known
    double gradient_norm_max = 0;  // 0: gradients are not clipped
    bool scales_loss = false;      // by kernels::StepScalars::loss_scale
    double proximal_mu = 0;        // of the ProximalTerm; 0: there is none
    bool has_control_variate = false;
    optim::Optimizer optimizer;
    bool decay_norms = true;
    std::uint64_t seed = 0;  // of the rounding of bf16 moments
    bool has_file = false;   // masters and moments lie in one (offload to kNvme), which can fail on one rank alone
};

// One step of the optimizer: a forward and backward pass for each micro-step, the sums over ranks, the proximal term,
// clipping, the control variate and the update. A step whose gradient is not finite, or that has no target, changes no
// weight (kernels::Backend::finish_step). Every rank makes the same calls; all references must outlive it.
//
//   TrainingStep step(rules, memory, backend, world, ranks);
//   ATOLL_TRY(const auto begun, step.begin(rate, loss_scale, [&](std::int64_t micro) { return load(micro); }));
//   const kernels::StepScalars made = memory.scalars().receive(backend);  // made.loss / begun.targets is the mean loss
class TrainingStep {
  public:
    TrainingStep(const StepRules& rules, RunMemory& memory, kernels::Backend& backend, comm::Comm& world,
                 ProcessGroups& ranks)
        : rules_(rules), memory_(memory), backend_(backend), world_(world), ranks_(ranks) {}

    // Puts a micro-step's rows into memory.batch() and returns how many targets they have on this rank.
    using Load = std::function<std::int64_t(std::int64_t micro)>;
    struct Rates {
        double usual = 0;
        double embedding = 0;  // see ParameterStore::Update
    };
    // A step that the device was asked for.
    struct Begun {
        double targets = 0;  // over all ranks
        // Where the device was done with all before it, and with the step: both have happened once its scalars are
        // received.
        std::shared_ptr<const kernels::TimedEvent> began, ended;
    };
    // Asks the device for a step and sends its scalars, to be read by DeviceScalars::receive(). `loss_scale` is that of
    // StepScalars at its beginning, which a proximal term needs. Errors are those of an offloaded optimizer's file, the
    // same outcome on every rank.
    Result<Begun> begin(const Rates& rates, double loss_scale, const Load& load);
    // The first half of that alone: gradients, and their sums among the scalars. Returns the targets.
    Result<double> make_gradients(double loss_scale, const Load& load);

  private:
    // The sums' gradients become those of the loss with the proximal term.
    Status add_proximal_term(double targets, double loss_scale);
    // The sums of a step over all ranks, of those of its micro-steps, into the device's scalars.
    void add_up(const std::vector<double>& losses_by_sequence);
    Tensor apply_control_variate();  // returns the scalars of the update
    Status update(const Rates& rates);
    Status agree_on_file(const Status& mine);

    StepRules rules_;
    RunMemory& memory_;
    kernels::Backend& backend_;
    comm::Comm& world_;
    ProcessGroups& ranks_;
};

}  // namespace atl::parallel
