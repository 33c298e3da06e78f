// What overlapping exchanges with computing gives: training steps of the Llama of 33.5 M parameters (4 × 256 tokens
// over all ranks) under full_shard, one thread a rank, in three ways in turns, the first one changing from round to
// round:
//   at once     every exchange is waited for where it begins
//   begun       exchanges begin early, and nobody drives them before they are waited for
//   overlapped  they move on between products: what `train` does
//
//   tests/mpirun.sh 2 build/bench/bin/overlap_bench [ROUNDS] [STEPS]
//
// Rank 0 prints one JSON line: for each way the median seconds a step with the quartiles, and the ratios to the first
// way within a round, also with the quartiles. Also the seconds a step that were spent waiting.

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <vector>

#include "trainer/comm/launch.h"
#include "trainer/parallel/run_memory.h"

namespace {

using namespace atl;

constexpr std::int64_t kGlobalRows = 4;
constexpr std::int64_t kLength = 256;

enum class Way { kAtOnce, kBegun, kOverlapped };
constexpr std::array kWays = {Way::kAtOnce, Way::kBegun, Way::kOverlapped};
constexpr std::array kNames = {"at once", "begun", "overlapped"};

double now_s() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The ranks of a run, of which transfers behave as `way` says, here and in the groups that are split from it.
class TimedComm final : public comm::Comm {
  public:
    TimedComm(comm::Comm& comm, const Way& way) : comm_(comm), way_(way) {}

    int rank() const override { return comm_.rank(); }
    int size() const override { return comm_.size(); }
    comm::Transfer start_all_gather(std::span<const std::byte> shard, std::span<std::byte> whole,
                                    const comm::Parts& parts) override {
        return started(comm_.start_all_gather(shard, whole, parts));
    }
    comm::Transfer start_all_to_all(std::span<const std::byte> whole, const comm::Parts& parts,
                                    std::span<std::byte> received) override {
        return started(comm_.start_all_to_all(whole, parts, received));
    }
    bool is_done(comm::Transfer transfer) override { return way_ != Way::kBegun && comm_.is_done(transfer); }
    void wait(comm::Transfer transfer, const comm::Awaited& awaited) override { comm_.wait(transfer, awaited); }
    void progress() override {
        if (way_ == Way::kOverlapped) comm_.progress();
    }
    void all_reduce(std::span<double> values, comm::Reduction reduction) override {
        comm_.all_reduce(values, reduction);
    }
    void broadcast(std::span<std::byte> bytes, int root) override { comm_.broadcast(bytes, root); }
    void send(std::span<std::byte> bytes, int from, int to) override { comm_.send(bytes, from, to); }
    std::unique_ptr<comm::Comm> split(int color, int order) override { return own(comm_.split(color, order)); }
    std::unique_ptr<comm::Comm> on_node() override { return own(comm_.on_node()); }

  private:
    TimedComm(std::unique_ptr<comm::Comm> owner, const Way& way) : TimedComm(*owner, way) { owner_ = std::move(owner); }
    std::unique_ptr<comm::Comm> own(std::unique_ptr<comm::Comm> part) const {
        return std::unique_ptr<comm::Comm>(new TimedComm(std::move(part), way_));
    }
    comm::Transfer started(comm::Transfer transfer) {
        if (way_ != Way::kAtOnce) return transfer;
        comm_.wait(transfer);
        return {};
    }
    std::unique_ptr<comm::Comm> owner_;  // null: somebody else's
    comm::Comm& comm_;
    const Way& way_;
};

model::Model llama() {
    model::ModelConfig config;
    config.vocab_size = 8000;
    config.hidden_size = 512;
    config.intermediate_size = 1376;
    config.num_hidden_layers = 8;
    config.num_attention_heads = config.num_key_value_heads = 8;
    config.head_dim = 64;
    config.max_position_embeddings = 2048;
    return model::make_model(config);
}

class Bench {
  public:
    explicit Bench(comm::Comm& world)
        : world_(world),
          comm_(world, way_),
          model_(llama()),
          backend_(kernels::make_cpu_backend(1).value()),
          rows_(kGlobalRows / world.size()) {
        parallel::RunMemoryOptions options;
        options.engine.largest = {rows_, kLength};
        options.layout = parallel::parallel_layout(parallel::Sharding::kFullShard, world.rank(), world.size());
        options.optimizer = &optimizer_;
        memory_ = parallel::RunMemory::allocate(*backend_, model_, options).value();
        ranks_ = std::make_unique<parallel::ProcessGroups>(comm_, options.layout, *backend_);
        parallel::ParameterStore& store = memory_->store();
        store.clear_moments(*backend_);
        for (std::size_t unit = 0; unit < store.unit_count(); ++unit) {
            const tensor::Tensor& weights = store.weights(unit);
            for (std::int64_t i = 0; i < weights.element_count(); ++i)
                weights.f32()[i] =
                    static_cast<float>(static_cast<int>(static_cast<std::uint64_t>(i) * 2654435761U % 1000) - 500) *
                    4e-5F;
        }
        for (std::int64_t i = 0; i < rows_ * kLength; ++i) ids_.push_back(static_cast<std::int32_t>(i * 7919 % 8000));
        check(memory_->batch().load(*backend_, {{rows_, kLength}, ids_, {}, {}}).ok(), "the batch does not load");
    }

    struct Times {
        double step_s = 0;
        double waited_s = 0;
    };
    // Seconds a step, of the slowest rank.
    Times run(Way way, int steps) {
        way_ = way;
        double none = 0;
        comm_.all_reduce(std::span(&none, 1), comm::Reduction::kMax);  // all begin together
        const double waited_before_s = world_.waited_s();
        const double began = now_s();
        for (int step = 0; step < steps; ++step) this->step();
        std::array<double, 2> seconds = {now_s() - began, world_.waited_s() - waited_before_s};
        comm_.all_reduce(seconds, comm::Reduction::kMax);
        return {seconds[0] / steps, seconds[1] / steps};
    }

  private:
    void step() {
        parallel::Engine& engine = memory_->engine();
        kernels::StepScalars scalars{.updates = static_cast<double>(++steps_)};
        memory_->scalars().set(*backend_, scalars);
        engine.train(*backend_, *ranks_, memory_->batch().batch(),
                     {.gradient_scale = 1e-3F, .loss_sum = memory_->scalars().loss()});
        engine.gradients().finish(*backend_, *ranks_);
        check(memory_->store()
                  .update(*backend_, ranks_->shard_group(), optimizer_, {memory_->scalars().all(), 1e-5})
                  .ok(),
              "the update failed");
        engine.weights_changed();
    }

    comm::Comm& world_;
    Way way_ = Way::kOverlapped;
    TimedComm comm_;
    model::Model model_;
    std::unique_ptr<kernels::Backend> backend_;
    std::int64_t rows_;
    optim::Optimizer optimizer_;
    std::unique_ptr<parallel::RunMemory> memory_;
    std::unique_ptr<parallel::ProcessGroups> ranks_;
    std::vector<std::int32_t> ids_;
    std::int64_t steps_ = 0;
};

nlohmann::ordered_json quartiles(std::vector<double> values) {
    std::ranges::sort(values);
    const auto at = [&](double part) {
        return values[static_cast<std::size_t>(std::lround(part * static_cast<double>(values.size() - 1)))];
    };
    return {{"median", at(0.5)}, {"q1", at(0.25)}, {"q3", at(0.75)}};
}

}  // namespace

int main(int argc, char** argv) {
    const int rounds = argc > 1 ? std::atoi(argv[1]) : 9, steps = argc > 2 ? std::atoi(argv[2]) : 2;
    auto world = comm::open_world();
    if (!world.ok() || (*world)->size() < 2 || kGlobalRows % (*world)->size() != 0 || rounds < 1 || steps < 1) {
        std::fprintf(stderr, "overlap_bench [ROUNDS] [STEPS]: on 2 or 4 ranks, under tests/mpirun.sh\n");
        return 2;
    }
    Bench bench(**world);
    bench.run(Way::kOverlapped, 1);  // touches the memory
    std::array<std::vector<double>, kWays.size()> step_s, waited_s, ratio;
    for (int round = 0; round < rounds; ++round) {
        for (std::size_t turn = 0; turn < kWays.size(); ++turn) {
            const std::size_t way = (turn + static_cast<std::size_t>(round)) % kWays.size();
            const Bench::Times times = bench.run(kWays[way], steps);
            step_s[way].push_back(times.step_s);
            waited_s[way].push_back(times.waited_s);
        }
        for (std::size_t way = 0; way < kWays.size(); ++way)
            ratio[way].push_back(step_s[0].back() / step_s[way].back());
    }
    nlohmann::ordered_json line = {{"ranks", (*world)->size()}, {"rounds", rounds}, {"steps", steps}};
    for (std::size_t way = 0; way < kWays.size(); ++way) {
        line[kNames[way]] = {{"step_s", quartiles(step_s[way])},
                             {"waited_s", quartiles(waited_s[way])},
                             {"speed_to_at_once", quartiles(ratio[way])}};
    }
    if ((*world)->rank() == 0) std::printf("%s\n", line.dump().c_str());
    return 0;
}
