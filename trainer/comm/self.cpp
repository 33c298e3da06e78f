#include <algorithm>

#include "trainer/comm/comm.h"

namespace atl::comm {
namespace {

class SelfComm final : public Comm {
  public:
    int rank() const override { return 0; }
    int size() const override { return 1; }

    Transfer start_all_gather(std::span<const std::byte> shard, std::span<std::byte> whole,
                              const Parts& parts) override {
        check(whole.size() == parts.whole_bytes(1), "all_gather: the lengths differ");
        if (shard.empty() || shard.data() == whole.data()) return {};
        check(shard.size() == parts.part_bytes(), "all_gather: the lengths differ");
        for (std::size_t block = 0; block < parts.blocks; ++block) {
            std::ranges::copy(shard.subspan(block * parts.block_bytes, parts.block_bytes),
                              whole.subspan(block * parts.block_stride).begin());
        }
        return {};
    }
    Transfer start_all_to_all(std::span<const std::byte> whole, const Parts& parts,
                              std::span<std::byte> received) override {
        check(whole.size() == parts.whole_bytes(1) && received.size() == parts.part_bytes(),
              "all_to_all: the lengths differ");
        if (received.data() == whole.data()) return {};
        for (std::size_t block = 0; block < parts.blocks; ++block) {
            std::ranges::copy(whole.subspan(block * parts.block_stride, parts.block_bytes),
                              received.subspan(block * parts.block_bytes).begin());
        }
        return {};
    }
    void wait(Transfer /*transfer*/, const Awaited& /*awaited*/) override {}
    bool is_done(Transfer /*transfer*/) override { return true; }
    void progress() override {}
    void all_reduce(std::span<double> /*values*/, Reduction /*reduction*/) override {}
    void broadcast(std::span<std::byte> /*bytes*/, int root) override { check(root == 0, "broadcast: no such rank"); }
    void send(std::span<std::byte> /*bytes*/, int from, int to) override {
        check(from == 0 && to == 0, "send: no such rank");
    }
    std::unique_ptr<Comm> split(int /*color*/, int /*order*/) override { return make_self(); }
    std::unique_ptr<Comm> on_node() override { return make_self(); }
};

}  // namespace

std::unique_ptr<Comm> make_self() {
    return std::make_unique<SelfComm>();
}

}  // namespace atl::comm
