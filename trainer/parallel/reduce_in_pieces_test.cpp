// Reductions of several sizes at once, with threads as ranks, which get to their next pieces at different times.

#include "trainer/parallel/reduce_in_pieces.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "trainer/comm/testing/thread_comm.h"
#include "trainer/parallel/mpi_collectives.h"

namespace atl::parallel {
namespace {

constexpr int kReductions = 7;  // more than there are lanes
constexpr std::int64_t kScratch = 1024;

std::int64_t part_of(int reduction) {
    return 64 + 200 * reduction;
}

std::vector<float> values_of(int rank, int reduction, std::int64_t count) {
    std::mt19937 random(static_cast<unsigned>(100 * rank + reduction));
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::vector<float> values(static_cast<std::size_t>(count));
    std::ranges::generate(values, [&] { return uniform(random); });
    return values;
}

Tensor flat(std::vector<float>& values) {
    return {values.data(), tensor::DType::kF32, {std::ssize(values)}};
}

// What this rank gets, by the tree itself.
std::vector<float> sum_of(const comm::Comm& comm, int reduction) {
    const std::int64_t part = part_of(reduction);
    std::vector<float> pieces, sum(static_cast<std::size_t>(part));
    for (int rank = 0; rank < comm.size(); ++rank) {
        const std::vector<float> whole = values_of(rank, reduction, comm.size() * part);
        pieces.insert(pieces.end(), whole.begin() + comm.rank() * part, whole.begin() + (comm.rank() + 1) * part);
    }
    kernels::make_cpu_backend(1).value()->sum_pieces(flat(pieces), flat(sum));
    return sum;
}

void reduce_several(comm::Comm& comm) {
    const auto backend = kernels::make_cpu_backend(1).value();
    MpiCollectives ranks(comm, *backend);
    struct Buffers {
        std::vector<float> whole, shard, scratch;
        Collectives::Transfer transfer;
    };
    std::vector<Buffers> reductions;
    for (int i = 0; i < kReductions; ++i) {
        const auto part = static_cast<std::size_t>(part_of(i));
        reductions.push_back({values_of(comm.rank(), i, comm.size() * part_of(i)),
                              std::vector<float>(part),
                              std::vector<float>(kScratch),
                              {}});
    }
    for (Buffers& reduction : reductions) {
        reduction.transfer =
            ranks.start_reduce_scatter(flat(reduction.whole), flat(reduction.shard), {flat(reduction.scratch), {}}, {});
        for (int i = 0; i < 3 * comm.rank(); ++i) ranks.progress();
    }
    for (int i = 0; i < kReductions; ++i) {
        ranks.wait(reductions[static_cast<std::size_t>(i)].transfer);
        EXPECT_EQ(reductions[static_cast<std::size_t>(i)].shard, sum_of(comm, i)) << "reduction " << i;
    }
}

TEST(ReduceInPiecesTest, PiecesBeginInOneOrderHoweverOftenARankMovesThemOn) {
    for (const auto& [ranks, ranks_on_node] : {std::pair(2, 0), {3, 0}, {4, 0}, {4, 2}, {8, 2}}) {
        SCOPED_TRACE(testing::Message() << ranks << " ranks, on each machine " << ranks_on_node);
        comm::run_on_threads(ranks, reduce_several, ranks_on_node);
    }
}

}  // namespace
}  // namespace atl::parallel
