#pragma once

#include <memory>
#include <vector>

#include "trainer/comm/comm.h"

namespace atl::parallel {

// A group that counts what its transfers move between machines, taking each `ranks_on_node` consecutive ranks of the
// run for those of one. Where it hides them, on_node() tells each rank that it is on a machine of its own.
class NodesComm final : public comm::Comm {
  public:
    enum class Told { kMachines, kHidden };

    NodesComm(comm::Comm& ranks, int ranks_on_node, Told told)
        : NodesComm(ranks, nullptr, ranks.rank() / ranks_on_node, told, std::make_shared<std::int64_t>(0)) {}

    // That this rank sent to other machines, in this group and all that were split from it.
    std::int64_t sent_bytes() const { return *sent_bytes_; }
    void count_anew() { *sent_bytes_ = 0; }

    int rank() const override { return group_.rank(); }
    int size() const override { return group_.size(); }
    comm::Transfer start_all_gather(std::span<const std::byte> shard, std::span<std::byte> whole,
                                    const comm::Parts& parts) override {
        *sent_bytes_ += far_ranks_ * static_cast<std::int64_t>(parts.part_bytes());
        return group_.start_all_gather(shard, whole, parts);
    }
    comm::Transfer start_all_to_all(std::span<const std::byte> whole, const comm::Parts& parts,
                                    std::span<std::byte> received) override {
        *sent_bytes_ += far_ranks_ * static_cast<std::int64_t>(parts.part_bytes());
        return group_.start_all_to_all(whole, parts, received);
    }
    void wait(comm::Transfer transfer, const comm::Awaited& awaited) override { group_.wait(transfer, awaited); }
    bool is_done(comm::Transfer transfer) override { return group_.is_done(transfer); }
    void progress() override { group_.progress(); }
    void all_reduce(std::span<double> values, comm::Reduction reduction) override {
        group_.all_reduce(values, reduction);
    }
    void broadcast(std::span<std::byte> bytes, int root) override { group_.broadcast(bytes, root); }
    void send(std::span<std::byte> bytes, int from, int to) override { group_.send(bytes, from, to); }
    std::unique_ptr<comm::Comm> split(int color, int order) override { return own(group_.split(color, order)); }
    std::unique_ptr<comm::Comm> on_node() override {
        return own(group_.split(told_ == Told::kMachines ? node_ : rank(), 0));
    }

  private:
    NodesComm(comm::Comm& group, std::unique_ptr<comm::Comm> owner, int node, Told told,
              std::shared_ptr<std::int64_t> sent_bytes)
        : owner_(std::move(owner)), group_(group), node_(node), told_(told), sent_bytes_(std::move(sent_bytes)) {
        std::vector<int> nodes(static_cast<std::size_t>(group.size()));
        group_.all_gather(std::as_bytes(std::span(&node_, 1)), std::as_writable_bytes(std::span(nodes)));
        for (const int other : nodes) far_ranks_ += other == node_ ? 0 : 1;
    }
    std::unique_ptr<comm::Comm> own(std::unique_ptr<comm::Comm> part) {
        comm::Comm& group = *part;
        return std::unique_ptr<comm::Comm>(new NodesComm(group, std::move(part), node_, told_, sent_bytes_));
    }

    std::unique_ptr<comm::Comm> owner_;  // null: somebody else's
    comm::Comm& group_;
    int node_;
    Told told_;
    std::shared_ptr<std::int64_t> sent_bytes_;
    std::int64_t far_ranks_ = 0;  // of this group on other machines
};

}  // namespace atl::parallel
