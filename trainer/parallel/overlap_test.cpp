#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "trainer/parallel/run_memory.h"

namespace atl::parallel {
namespace {

// Two ranks that hold the same, seen from the first, and a list of what was asked of them and of the groups that were
// split from them. Nothing is done before somebody waits for it.
class MirroredComm final : public comm::Comm {
  public:
    struct Event {
        char kind = ' ';  // 'g' a gather begins, 'r' a reduction begins, 'w' one of them is waited for, 'p' progress
        int transfer = -1;
    };
    struct Record {
        std::vector<Event> events;
        int transfers = -1;
    };

    explicit MirroredComm(Record& record) : record_(record) {}

    int rank() const override { return 0; }
    int size() const override { return 2; }
    comm::Transfer start_all_gather(std::span<const std::byte> shard, std::span<std::byte> whole,
                                    const comm::Parts&) override {
        const std::vector<std::byte> copy(shard.begin(), shard.end());
        std::ranges::copy(copy, whole.begin());
        std::ranges::copy(copy, whole.subspan(shard.size()).begin());
        return started('g');
    }
    comm::Transfer start_all_to_all(std::span<const std::byte> whole, const comm::Parts&,
                                    std::span<std::byte> received) override {
        const auto mine = whole.first(whole.size() / 2);
        std::ranges::copy(mine, received.begin());
        std::ranges::copy(mine, received.subspan(mine.size()).begin());
        return started('r');
    }
    bool is_done(comm::Transfer) override { return false; }
    void wait(comm::Transfer transfer, const comm::Awaited&) override {
        record_.events.push_back({'w', transfer.slot});
    }
    void progress() override { record_.events.push_back({'p', -1}); }
    void all_reduce(std::span<double>, comm::Reduction) override {}
    void broadcast(std::span<std::byte>, int) override {}
    void send(std::span<std::byte>, int, int) override {}
    std::unique_ptr<comm::Comm> split(int, int) override { return std::make_unique<MirroredComm>(record_); }
    std::unique_ptr<comm::Comm> on_node() override { return split(0, 0); }

  private:
    comm::Transfer started(char kind) {
        record_.events.push_back({kind, ++record_.transfers});
        return {record_.transfers};
    }
    Record& record_;
};

class OverlapTest : public testing::Test {
  protected:
    // Of every transfer of a kind, in the order they began: how often the others could move between begin and wait.
    std::vector<int> progress_during(char kind) const {
        const auto& events = record_.events;
        std::vector<int> counts;
        for (std::size_t begin = 0; begin < events.size(); ++begin) {
            if (events[begin].kind != kind) continue;
            counts.push_back(0);
            for (std::size_t at = begin; events.at(at).kind != 'w' || events[at].transfer != events[begin].transfer;
                 ++at)
                counts.back() += events[at].kind == 'p' ? 1 : 0;
        }
        return counts;
    }

    static constexpr int kLayers = 3;
    // Embedding, layers, head: each a unit of its own but the head, which has a norm and a table.
    static model::Model make_model() {
        model::ModelConfig config;
        config.vocab_size = 64;
        config.hidden_size = 16;
        config.intermediate_size = 24;
        config.num_hidden_layers = kLayers;
        config.num_attention_heads = config.num_key_value_heads = 2;
        config.head_dim = 8;
        config.max_position_embeddings = 16;
        return model::make_model(config);
    }
    static constexpr std::int64_t kLength = 8;

    void step() {
        RunMemoryOptions options;
        options.engine.largest = {1, kLength};
        options.layout = parallel_layout(Sharding::kFullShard, 0, 2);
        options.optimizer = &optimizer_;
        const auto memory = RunMemory::allocate(*backend_, model_, options).value();
        ProcessGroups ranks(comm_, options.layout, *backend_);
        const std::vector<std::int32_t> ids = {1, 2, 3, 4, 5, 6, 7, 8};
        ASSERT_TRUE(memory->batch().load(*backend_, {{1, kLength}, ids, {}, {}}).ok());
        memory->engine().train(*backend_, ranks, memory->batch().batch(), {.loss_sum = memory->scalars().loss()});
        memory->engine().gradients().finish(*backend_, ranks);
    }

    MirroredComm::Record record_;
    MirroredComm comm_{record_};
    model::Model model_ = make_model();
    std::unique_ptr<kernels::Backend> backend_ = kernels::make_cpu_backend(1).value();
    optim::Optimizer optimizer_;
};

TEST_F(OverlapTest, TheNextBlocksWeightsMoveWhileALayerComputes) {
    step();
    const std::vector<int> moves = progress_during('g');
    // Forward each layer's successor; backward the layer before each layer.
    const auto moving = std::ranges::count_if(moves, [](int count) { return count >= 3; });
    EXPECT_GE(moving, kLayers + (kLayers - 1))
        << "gathers that get on while three products of a layer or more are computed";
}

// Forward each block, backward the layers whose buffer another block has taken; the embedding's backward reads none.
TEST_F(OverlapTest, WeightsThatNobodyReadsAreNotGathered) {
    step();
    EXPECT_EQ(progress_during('g').size(), std::size_t{(kLayers + 2) + (kLayers - 1)});
}

TEST_F(OverlapTest, ABlocksGradientsAreReducedWhileTheOneBeforeComputes) {
    step();
    const std::vector<int> moves = progress_during('r');
    ASSERT_GE(moves.size(), std::size_t{kLayers + 2});
    const auto moving = std::ranges::count_if(moves, [](int count) { return count >= 3; });
    EXPECT_GE(moving, kLayers) << "those of the head and of all layers but the first";
}

TEST_F(OverlapTest, WhatTwoBlocksReduceIsUnderWayAtOnce) {
    const auto ranks = open_exchange_library(*backend_)->make_group(comm_);
    std::vector<float> values(256, 1.0F), shards(128), scratch(256);
    const auto part = [](std::vector<float>& of, std::int64_t begin, std::int64_t count) {
        return Tensor(of.data() + begin, tensor::DType::kF32, {count});
    };
    std::vector<Collectives::Transfer> transfers;
    for (std::int64_t i = 0; i < 4; ++i)
        transfers.push_back(ranks->start_reduce_scatter(part(values, 64 * i, 64), part(shards, 32 * i, 32),
                                                        {part(scratch, 64 * i, 64), {}}, {}));
    EXPECT_EQ(std::ranges::count(record_.events, 'r', &MirroredComm::Event::kind), 4);
    for (const auto transfer : transfers) ranks->wait(transfer);
    EXPECT_EQ(shards, std::vector<float>(128, 2.0F));
}

}  // namespace
}  // namespace atl::parallel
