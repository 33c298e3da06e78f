#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "trainer/optim/optimizer.h"
#include "trainer/parallel/collectives.h"
#include "trainer/parallel/muon_directions.h"
#include "trainer/parallel/optimizer_state.h"
#include "trainer/parallel/sharding.h"

namespace atl::parallel {

using tensor::Arena;
using tensor::Tensor;

// What a rank keeps of the model between steps: its weights, gradients and moments, whole or its shard, one flat buffer
// a unit. With one rank the shard is the whole. Weights are in the unit's storage format; where that is not fp32 and
// there is an optimizer, it updates fp32 masters, which are cut as the moments are, and the weights are those rounded
// to nearest; or, without masters, the weights themselves. Formats says what all are kept in.
//
// Weights, and masters and moments, may be offloaded to pinned memory of the host, where the device updates them;
// masters and moments to a file, too.
class ParameterStore {
  public:
    struct Offload {
        Arena* pinned = nullptr;  // where what is offloaded lies, or the buffers of a file; null: nothing is
        const ExchangeLibrary* library = nullptr;  // gathers new weights through that memory; null: of one rank
        bool weights = false;
        run_settings::Offload optimizer = run_settings::Offload::kNone;
    };
    // Without an optimizer (evaluation) there are weights only. With measuring arenas only the memory is counted. Muon
    // takes the arenas' library and pinned memory too.
    static ParameterStore lay_out(Arena& arena, const model::Model& model, const ParallelLayout& layout,
                                  const optim::Optimizer* optimizer, const Offload& offload);
    // Makes the file of an offloaded optimizer, in a directory that exists. Errors name it.
    Status open_offload(const std::filesystem::path& directory) {
        return state_.open(directory, layout_.mesh.rank_of(layout_.place));
    }
    std::int64_t offloaded_bytes() const { return state_.file_bytes(); }

    const model::Model& model() const { return *model_; }
    const ParallelLayout& layout() const { return layout_; }
    Sharding sharding() const { return layout_.sharding; }
    const ShardSpec& shard_spec(std::size_t unit) const { return specs_[unit]; }
    std::size_t unit_count() const { return specs_.size(); }
    // False: the unit is frozen, has weights only, and no rank exchanges gradients of it.
    bool trains(std::size_t unit) const { return !model_->units[unit].frozen; }
    tensor::DType storage(std::size_t unit) const { return model_->units[unit].storage; }

    // Where weights lie; in pinned memory blocks do not read them.
    kernels::Space weights_space() const { return weights_space_; }
    // [whole] if every rank keeps all weights, else [shard].
    const Tensor& weights(std::size_t unit) const { return weights_[unit]; }
    // [whole] in the modes that keep whole gradients, else [shard]; of a frozen unit empty, as its moments.
    const Tensor& gradients(std::size_t unit) const { return gradients_[unit]; }
    // This rank's part of either, [shard].
    Tensor weight_shard(std::size_t unit) const { return shard_of(weights_[unit], specs_[unit]); }
    Tensor gradient_shard(std::size_t unit) const { return shard_of(gradients_[unit], specs_[unit]); }
    // The same part of the exact weights, see Saved, of a trained unit; empty: they are in an offloaded optimizer's
    // file.
    Tensor exact_weight_shard(std::size_t unit) const;
    // The part of gradient_shard that is this rank's alone, [shard / copies]: what it adds to sums over all gradients.
    Tensor own_gradients(std::size_t unit) const;
    int moment_count() const { return state_.moment_count(); }
    // Where in its unit's flat buffer something kept begins: 0, or where this rank's shard does.
    std::int64_t kept_begin(const Tensor& kept, std::size_t unit) const {
        return kept.element_count() < specs_[unit].whole ? specs_[unit].begin : 0;
    }
    // False where the weights themselves are fp32, and in evaluation.
    bool has_masters(std::size_t unit) const { return state_.has(OptimizerState::Part::kMasters, unit); }

    // What is saved of a trained unit, and what a run goes on from. Its exact weights are the masters where there are
    // some, else the weights.
    enum class Saved : std::uint8_t { kExactWeights, kFirstMoment, kSecondMoment, kGradientSum };
    // Which elements of the unit's flat buffer this rank keeps of it: all, or its shard.
    struct Range {
        std::int64_t begin = 0;
        std::int64_t count = 0;
    };
    Range saved_range(Saved saved, std::size_t unit) const;
    // The part of all of them that is this rank's alone to save: that of own_gradients. By rank_by_shard the ranks'
    // parts follow each other.
    Range own_range(std::size_t unit) const;
    std::int64_t own_state_bytes() const;  // of all units, without padding
    tensor::DType saved_dtype(Saved saved, std::size_t unit) const;
    // Elements from `at` on, counted from the range's beginning, as bytes of that type. Errors are those of the file
    // that the optimizer is offloaded to.
    Status read(kernels::Backend& backend, Saved saved, std::size_t unit, std::int64_t at, std::span<std::byte> to);
    Status write(kernels::Backend& backend, Saved saved, std::size_t unit, std::int64_t at,
                 std::span<const std::byte> from);

    // Room for the sum of a run's gradients, which a ControlVariate adds up: fp32, of each trained unit this rank's
    // shard. Without it there is no kGradientSum.
    void lay_out_gradient_sums(Arena& arena);
    bool has_gradient_sums() const { return !gradient_sums_.empty(); }
    const Tensor& gradient_sum(std::size_t unit) const { return gradient_sums_[unit]; }

    // Zeros in all weights and masters, also their padding: before they are loaded.
    void clear_weights(kernels::Backend& backend) const;
    // Zeros in the moments: before the first step. Apart, so that nothing but weights takes memory while the files that
    // they are read from are mapped.
    void clear_moments(kernels::Backend& backend) const;

    // Applies the optimizer, by the step's scalars, to what this rank keeps moments of. Where only a shard of
    // replicated weights was updated, the ranks of this copy (`ranks`) exchange them, also after an error.
    // `decay_norms` false leaves norms without weight decay. Errors, of this rank alone, are those of the file that the
    // optimizer is offloaded to.
    struct Update {
        Tensor scalars;  // kernels::StepScalars
        double learning_rate = 0;
        double embedding_rate = 0;  // of embedding and head, and with Muon of all that AdamW drives
        bool decay_norms = true;
        std::uint64_t seed = 0;  // of the rounding of bf16 moments
    };
    Status update(kernels::Backend& backend, Collectives& ranks, const optim::Optimizer& optimizer,
                  const Update& update);

  private:
    // What an optimizer treats alike.
    struct Treatment {
        bool is_norm = false;
        bool has_embedding_rate = false;
        bool by_muon = false;
        bool operator==(const Treatment&) const = default;
    };
    // Neighbouring elements of that range that are treated alike.
    struct Run {
        std::int64_t begin = 0;
        std::int64_t count = 0;
        Treatment treatment;
    };
    // The ranges of a step, by what updates them.
    struct Ranges {
        std::vector<kernels::OptimizerRange> usual, with_embedding_rate, by_muon;
    };
    // Where what is saved is a tensor of the store's own; empty: the optimizer's state has it.
    Tensor saved_tensor(Saved saved, std::size_t unit) const;
    Range update_range(std::size_t unit) const;  // that this rank updates
    // Whether a shard of replicated weights is.
    bool gathers_new_weights() const { return shards_moments(sharding()) && !shards_weights(sharding()); }
    void lay_out_update(const Offload& offload);
    Treatment treat(const model::FsdpUnit& unit, const model::Parameter& parameter) const;
    std::vector<Run> find_runs(std::size_t unit) const;
    static Tensor shard_of(const Tensor& tensor, const ShardSpec& spec);
    void append_ranges(const Update& update, std::size_t unit, const OptimizerState::Piece& piece,
                       Ranges& ranges) const;
    void update_by_muon(kernels::Backend& backend, Collectives& ranks, const optim::Optimizer& optimizer,
                        const Update& update, std::size_t unit, std::vector<kernels::OptimizerRange>& ranges) const;

    const model::Model* model_ = nullptr;
    ParallelLayout layout_;
    std::vector<ShardSpec> specs_;
    std::vector<Tensor> weights_;
    kernels::Space weights_space_ = kernels::Space::kDevice;
    std::vector<Tensor> gradients_;
    std::vector<Tensor> gradient_sums_;  // by unit; empty: there are none
    OptimizerState state_;
    std::optional<MuonDirections> muon_;
    Tensor update_pinned_;  // of the gather of a unit's new weights
    std::vector<std::vector<Run>> runs_;
    std::vector<std::int64_t> first_elements_;  // of each unit, counted over the model
};

}  // namespace atl::parallel
