#include <algorithm>
#include <cstdlib>
#include <thread>

#include "shared/log/warn.h"
#include "trainer/comm/comm.h"
#include "trainer/comm/wait_text.h"

namespace atl::comm {
namespace {

class SelfComm final : public Comm {
  public:
    explicit SelfComm(std::shared_ptr<double> limit_s) : limit_s_(std::move(limit_s)) {}

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
    std::unique_ptr<Comm> split(int /*color*/, int /*order*/) override { return std::make_unique<SelfComm>(limit_s_); }
    std::unique_ptr<Comm> on_node() override { return std::make_unique<SelfComm>(limit_s_); }

    void wait_until(const std::function<bool()>& is_done, const Awaited& awaited) override {
        using Clock = std::chrono::steady_clock;
        for (const auto began = Clock::now(); !is_done(); std::this_thread::sleep_for(kDeviceInterval)) {
            const double waited_s = std::chrono::duration<double>(Clock::now() - began).count();
            if (*limit_s_ <= 0 || waited_s < *limit_s_) continue;
            log::warn(wait_text(0, waited_s, awaited) + "; the device stands still" + kLimitText);
            std::_Exit(1);  // what the device holds cannot be freed
        }
    }
    void limit_waits(double seconds) override { *limit_s_ = seconds; }

  private:
    std::shared_ptr<double> limit_s_;  // of this group and those that it was split from and into; 0: none
};

}  // namespace

std::unique_ptr<Comm> make_self() {
    return std::make_unique<SelfComm>(std::make_shared<double>(0));
}

}  // namespace atl::comm
