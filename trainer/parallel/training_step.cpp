#include "trainer/parallel/training_step.h"

#include <array>
#include <span>
#include <vector>

#include "trainer/parallel/exact_sum_of_squares.h"
#include "trainer/parallel/gather_to_rank0.h"
#include "trainer/parallel/pairwise_sum.h"
#include "trainer/trace/trace.h"

namespace atl::parallel {

Result<TrainingStep::Begun> TrainingStep::begin(const Rates& rates, double loss_scale, const Load& load) {
    auto began = backend_.record_timed(kernels::Stream::kCompute);
    ATOLL_TRY(const double targets, make_gradients(loss_scale, load));
    backend_.finish_step({.nominal_targets = rules_.nominal_targets,
                          .targets = targets,
                          .norm_max = rules_.gradient_norm_max,
                          .scales_loss = rules_.scales_loss},
                         memory_.scalars().all());
    const Status updated = update(rates);
    auto ended = backend_.record_timed(kernels::Stream::kCompute);
    memory_.scalars().send(backend_);
    ATOLL_RETURN_IF_ERROR(updated);
    return Begun{targets, std::move(began), std::move(ended)};
}

Result<double> TrainingStep::make_gradients(double loss_scale, const Load& load) {
    const DeviceScalars& scalars = memory_.scalars();
    std::vector<double> losses;  // of the micro-steps, where they are added by sequence
    double targets = 0;
    for (std::int64_t micro = 0; micro < rules_.micro_steps; ++micro) {
        targets += static_cast<double>(load(micro));
        memory_.engine().train(backend_, ranks_, memory_.batch().batch(),
                               {.gradient_scale = static_cast<float>(1 / rules_.nominal_targets),
                                .is_first = rules_.by_sequence || micro == 0,
                                .is_last = micro + 1 == rules_.micro_steps,
                                .loss_sum = scalars.loss(),
                                .loss_scale = rules_.scales_loss ? scalars.loss_scale() : Tensor()});
        if (rules_.by_sequence) losses.push_back(read_scalar(backend_, scalars.loss()));
    }
    memory_.engine().gradients().finish(backend_, ranks_);
    ranks_.sharing().comm().all_reduce(std::span(&targets, 1), comm::Reduction::kSum);
    ATOLL_RETURN_IF_ERROR(add_proximal_term(targets, loss_scale));
    add_up(losses);
    return targets;
}

Status TrainingStep::add_proximal_term(double targets, double loss_scale) {
    if (rules_.proximal_mu == 0 || targets == 0) return {};
    const trace::Span span("proximal term");
    // Of the gradients as they are, before the optimizer multiplies them by kernels::StepScalars::factor.
    const double share = targets * loss_scale / rules_.nominal_targets;
    const Status added =
        memory_.proximal_term().add_to_gradients(backend_, memory_.store(), rules_.proximal_mu * share);
    return agree_on_file(added);
}

void TrainingStep::add_up(const std::vector<double>& losses_by_sequence) {
    const trace::Span span("norm");
    const ParameterStore& store = memory_.store();
    const DeviceScalars& scalars = memory_.scalars();
    std::vector<Tensor> gradients;
    for (std::size_t unit = 0; unit < store.unit_count(); ++unit) {
        if (store.trains(unit)) gradients.push_back(store.own_gradients(unit));
    }
    ExactSumOfSquares exact;
    {
        const trace::StreamSpan of_device(kernels::Stream::kCompute, "norm");
        if (rules_.by_sequence) {
            for (const Tensor& own : gradients) exact.add(backend_, own);
        } else {
            backend_.sum_of_squares(gradients, scalars.gradient_squares(), false);
        }
    }
    const trace::Span wait_span("wait for ranks");
    const trace::StreamSpan of_device(kernels::Stream::kCompute, "wait for ranks");
    if (!rules_.by_sequence) return ranks_.sharing_by_shard().all_reduce(scalars.sums(), scalars.pinned_sums());
    comm::Comm& sharing = ranks_.sharing().comm();
    exact.combine(sharing);
    const std::array<double, 2> sums = {sum_by_sequence(sharing, losses_by_sequence), exact.value()};
    backend_.copy_from_host(sums.data(), scalars.sums());
}

Tensor TrainingStep::apply_control_variate() {
    const Tensor& scalars = memory_.scalars().all();
    if (!rules_.has_control_variate) return scalars;
    const trace::Span span("control variate");
    const trace::StreamSpan of_device(kernels::Stream::kCompute, "control variate");
    return memory_.control_variate().apply(backend_, memory_.store(), scalars);
}

Status TrainingStep::update(const Rates& rates) {
    const trace::Span span("optimizer");
    const Tensor scalars = apply_control_variate();
    memory_.engine().gradients().share(ranks_);
    const Status updated = memory_.store().update(backend_, ranks_.shard_group(), rules_.optimizer,
                                                  {.scalars = scalars,
                                                   .learning_rate = rates.usual,
                                                   .embedding_rate = rates.embedding,
                                                   .decay_norms = rules_.decay_norms,
                                                   .seed = rules_.seed});
    memory_.engine().weights_changed();
    return agree_on_file(updated);
}

Status TrainingStep::agree_on_file(const Status& mine) {
    return rules_.has_file ? world_.agree(write_outcome(mine)) : mine;
}

}  // namespace atl::parallel
