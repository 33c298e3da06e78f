#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "shared/base/result.h"

// How the ranks of one training run exchange numbers. Knows buffers and ranks, never a layer or a parameter.
namespace atl::comm {

enum class Reduction { kSum, kMax };

// A transfer under way; see Comm::wait. Cheap to copy, waited for once.
struct Transfer {
    int slot = -1;  // -1: complete already
};

// What a rank waits for, for a message: "the weights of layers.17 (all-gather)", "step 12 of its device (computing)".
// The texts must outlive the wait.
struct Awaited {
    std::string_view what = "what the ranks exchange";
    std::string_view unit{};  // empty: of none
    std::string_view collective = "transfer";
};

// Where the ranks' parts of a buffer lie: that of rank r is `blocks` blocks of `block_bytes`, each `block_stride` after
// the one before, the first at r × `part_stride`. So parts may lie between one another.
struct Parts {
    std::size_t block_bytes = 0;
    std::size_t part_stride = 0;
    std::size_t blocks = 1;
    std::size_t block_stride = 0;
    std::size_t part_bytes() const { return blocks * block_bytes; }
    // Of `ranks` parts, from the beginning of the first to the end of the last.
    std::size_t whole_bytes(int ranks) const {
        return (static_cast<std::size_t>(ranks) - 1) * part_stride + (blocks - 1) * block_stride + block_bytes;
    }
    static Parts one_after_another(std::size_t part_bytes) { return {part_bytes, part_bytes}; }
};

// A group of ranks. Every member calls the same operations in the same order. Not thread-safe. What is exchanged lies
// in memory of the host; tensors of a device go through parallel/collectives.h.
//
// Sums are deterministic: contributions are added by one fixed binary tree over ranks, ((0+1)+(2+3))+…, whatever the
// order of arrival, so the same inputs give the same bits on every run with that many ranks.
//
// A failing network is fatal: the whole run is aborted, because a rank that returned an error here would leave the
// others waiting.
//
// Overlap a transfer with work, and let all ranks leave together when one of them cannot go on:
//
//   const Transfer transfer = comm.start_all_gather(shard, whole);
//   compute(previous);  // calls comm.progress() now and then
//   comm.wait(transfer);
//   ATOLL_RETURN_IF_ERROR(comm.agree(save(whole)));
class Comm {
  public:
    virtual ~Comm() = default;

    virtual int rank() const = 0;
    virtual int size() const = 0;

    // How many transfers may be under way at once.
    static constexpr int kTransfersMax = 8;

    // Every rank's `shard` into its part of `whole` on all ranks. `shard` may be this rank's own part of `whole`, and
    // is empty where that is in several blocks; then nothing is copied locally. Both stay untouched by the caller until
    // wait().
    virtual Transfer start_all_gather(std::span<const std::byte> shard, std::span<std::byte> whole,
                                      const Parts& parts) = 0;
    Transfer start_all_gather(std::span<const std::byte> shard, std::span<std::byte> whole) {
        return start_all_gather(shard, whole, Parts::one_after_another(shard.size()));
    }

    // This rank's part of every rank's `whole` into `received`, one after another.
    virtual Transfer start_all_to_all(std::span<const std::byte> whole, const Parts& parts,
                                      std::span<std::byte> received) = 0;
    Transfer start_all_to_all(std::span<const std::byte> whole, std::span<std::byte> received) {
        return start_all_to_all(whole, Parts::one_after_another(whole.size() / static_cast<std::size_t>(size())),
                                received);
    }

    virtual void wait(Transfer transfer, const Awaited& awaited) = 0;
    void wait(Transfer transfer) { wait(transfer, {}); }
    // Whether wait() would return at once; moves the transfer on.
    virtual bool is_done(Transfer transfer) = 0;

    // Moves the transfers under way on and returns at once. MPI moves nothing while nobody calls it: whoever computes
    // between a start and its wait() calls this now and then. Any number of times, on any rank.
    virtual void progress() = 0;

    // A few numbers (at most kSmallCountMax), every rank getting the same result.
    static constexpr std::size_t kSmallCountMax = 64;
    virtual void all_reduce(std::span<double> values, Reduction reduction) = 0;

    virtual void broadcast(std::span<std::byte> bytes, int root) = 0;
    // The bytes of one rank into those of another, as many; the other ranks' stay as they are and nothing is sent
    // there.
    virtual void send(std::span<std::byte> bytes, int from, int to) = 0;

    // The ranks that named the same colour as a group of their own, ordered by `order` and then as in this group.
    virtual std::unique_ptr<Comm> split(int color, int order = 0) = 0;

    // The ranks of this group on this machine, in its order: those that can share memory.
    virtual std::unique_ptr<Comm> on_node() = 0;
    int ranks_on_node() { return on_node()->size(); }

    // Until is_done(), which is called again and again, says so: for what this rank's device does. Such a wait has the
    // same limit, answers ranks that ask, and does not count in waited_s().
    virtual void wait_until(const std::function<bool()>& is_done, const Awaited& awaited);

    // Seconds that this rank has waited for others so far: in this group, in those that it is split from and in those
    // split from it. 0 where nobody counts them.
    virtual double waited_s() const { return 0; }
    // From now on a wait of more than so many seconds ends all ranks, with exit code 1 and a message that says who
    // waits for what and which ranks do not answer; 0: a wait may last for ever. In all those groups.
    virtual void limit_waits(double /*seconds*/) {}
    // This rank is at work alone, on `what` ("loading the weights"; empty: no longer), and gets on: from here on those
    // that wait for it count their wait anew. Cheap enough for an inner loop; see ReadProgress. The text must outlive
    // the work.
    virtual void tell_work(std::string_view /*what*/) {}

    void all_gather(std::span<const std::byte> shard, std::span<std::byte> whole) {
        wait(start_all_gather(shard, whole));
    }

    // So that all ranks leave together when one fails: the lowest failing rank gets its own error, all others its code
    // with an empty message; ok if none failed.
    Status agree(const Status& mine);
};

// The outcome that all ranks agree on, with this rank's value.
template <class T>
Result<T> agreed(Comm& comm, Result<T> mine) {
    const Status seen = comm.agree(mine.ok() ? Status() : Status(mine.error()));
    if (!seen.ok()) return seen.error();
    return mine;
}

// The group of one process: no copies, no network.
std::unique_ptr<Comm> make_self();

}  // namespace atl::comm
