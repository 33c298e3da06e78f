#include "trainer/comm/testing/thread_comm.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "trainer/comm/tree_sum.h"
#include "trainer/comm/wait_text.h"

namespace atl::comm {
namespace {

thread_local std::function<void()> idle;  // see call_while_waiting(); empty: it sleeps

// A rank's memory in a transfer.
struct Ends {
    std::span<const std::byte> from;
    std::span<std::byte> to;
};

// Moves a transfer, given the memory of every rank.
using Move = std::function<void(std::span<const Ends> ranks)>;

// One call of a group, which all its ranks start. The sanitizer sees this order alone: what a rank did before it
// started comes before the move, and that before the end of its wait.
struct Exchange {
    std::mutex mutex;  // of the next three
    std::vector<Ends> ranks;
    int started = 0;
    std::shared_ptr<Exchange> next;  // the group's next call
    std::atomic<bool> is_done = false;
};

// A rank's part, whose blocks are a stride of their own apart on each side.
void copy_part(const Parts& parts, const std::byte* from, std::size_t from_stride, std::byte* to,
               std::size_t to_stride) {
    for (std::size_t block = 0; block < parts.blocks; ++block)
        std::copy_n(from + block * from_stride, parts.block_bytes, to + block * to_stride);
}

// Into every rank's `to` the part of each; a rank whose `from` is empty, or is its part of `to`, has it there already.
void move_all_gather(const Parts& parts, std::span<const Ends> ranks) {
    for (std::size_t sender = 0; sender < ranks.size(); ++sender) {
        const auto [from, to] = ranks[sender];
        std::byte* const own = to.data() + sender * parts.part_stride;
        const bool is_there = from.empty() || from.data() == own;
        const std::byte* const part = is_there ? own : from.data();
        const std::size_t stride = is_there ? parts.block_stride : parts.block_bytes;
        for (std::size_t receiver = 0; receiver < ranks.size(); ++receiver) {
            if (receiver == sender && is_there) continue;
            copy_part(parts, part, stride, ranks[receiver].to.data() + sender * parts.part_stride, parts.block_stride);
        }
    }
}

// Of every rank's `from` each gets its part, one after another.
void move_all_to_all(const Parts& parts, std::span<const Ends> ranks) {
    for (std::size_t sender = 0; sender < ranks.size(); ++sender) {
        for (std::size_t receiver = 0; receiver < ranks.size(); ++receiver) {
            copy_part(parts, ranks[sender].from.data() + receiver * parts.part_stride, parts.block_stride,
                      ranks[receiver].to.data() + sender * parts.part_bytes(), parts.block_bytes);
        }
    }
}

class ThreadComm final : public Comm {
  public:
    ThreadComm(std::shared_ptr<Exchange> first, int rank, int size, int node)
        : next_(std::move(first)), rank_(rank), size_(size), node_(node) {}

    int rank() const override { return rank_; }
    int size() const override { return size_; }

    Transfer start_all_gather(std::span<const std::byte> shard, std::span<std::byte> whole,
                              const Parts& parts) override {
        check((shard.empty() || shard.size() == parts.part_bytes()) && whole.size() == parts.whole_bytes(size()),
              "all_gather: the lengths differ");
        return start({shard, whole}, [parts](auto ranks) { move_all_gather(parts, ranks); });
    }
    Transfer start_all_to_all(std::span<const std::byte> whole, const Parts& parts,
                              std::span<std::byte> received) override {
        check(whole.size() == parts.whole_bytes(size()) &&
                  received.size() == parts.part_bytes() * static_cast<std::size_t>(size()),
              "all_to_all: the lengths differ");
        return start({whole, received}, [parts](auto ranks) { move_all_to_all(parts, ranks); });
    }

    void wait(Transfer transfer, const Awaited& /*awaited*/) override {
        if (transfer.slot < 0) return;
        const auto found = under_way_.find(transfer.slot);
        check(found != under_way_.end(), "a transfer was waited for twice");
        while (idle && !found->second->is_done) idle();
        found->second->is_done.wait(false);
        under_way_.erase(found);
    }
    bool is_done(Transfer transfer) override { return transfer.slot < 0 || under_way_.at(transfer.slot)->is_done; }
    void progress() override {}

    void all_reduce(std::span<double> values, Reduction reduction) override {
        check(values.size() <= kSmallCountMax, "all_reduce of more than a few numbers");
        std::vector<double> all(values.size() * static_cast<std::size_t>(size()));
        all_gather(std::as_bytes(values), std::as_writable_bytes(std::span(all)));
        for (std::size_t i = 0; i < values.size(); ++i) {
            std::vector<double> column;
            for (std::size_t at = i; at < all.size(); at += values.size()) column.push_back(all[at]);
            values[i] = reduction == Reduction::kSum ? tree_sum(column) : *std::ranges::max_element(column);
        }
    }

    void broadcast(std::span<std::byte> bytes, int root) override {
        Comm::wait(start({bytes, bytes}, [root](auto ranks) {
            for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) move_between(ranks, root, rank);
        }));
    }
    void send(std::span<std::byte> bytes, int from, int to) override {
        Comm::wait(start({bytes, bytes}, [from, to](auto ranks) { move_between(ranks, from, to); }));
    }

    std::unique_ptr<Comm> split(int color, int order) override {
        struct Choice {
            int color, order, rank;
            const std::shared_ptr<Exchange>* first;
        };
        const auto own_first = std::make_shared<Exchange>();
        const Choice mine = {color, order, rank_, &own_first};
        std::vector<Choice> part(static_cast<std::size_t>(size()));
        all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(part)));
        std::erase_if(part, [&](const Choice& choice) { return choice.color != color; });
        std::ranges::stable_sort(part, {}, &Choice::order);
        const auto own = std::ranges::find(part, rank_, &Choice::rank) - part.begin();
        auto group = std::make_unique<ThreadComm>(*part.front().first, static_cast<int>(own),
                                                  static_cast<int>(part.size()), node_);
        Comm::wait(start({}, [](auto) {}));  // all have taken what lies on the first one's stack
        return group;
    }
    std::unique_ptr<Comm> on_node() override { return split(node_, 0); }

    void wait_until(const std::function<bool()>& is_done, const Awaited& awaited) override {
        const auto began = std::chrono::steady_clock::now();
        const std::chrono::duration<double> limit(limit_s_);
        while (!is_done()) {
            check(limit_s_ == 0 || std::chrono::steady_clock::now() - began < limit,
                  wait_text(rank_, limit_s_, awaited) + kLimitText);
            std::this_thread::sleep_for(kDeviceInterval);
        }
    }
    void limit_waits(double seconds) override { limit_s_ = seconds; }

  private:
    static void move_between(std::span<const Ends> ranks, int from, int to) {
        if (from == to) return;
        std::ranges::copy(ranks[static_cast<std::size_t>(from)].from, ranks[static_cast<std::size_t>(to)].to.begin());
    }

    Transfer start(const Ends& mine, const Move& move) {
        check(under_way_.size() < kTransfersMax, "too many transfers are under way");
        const std::shared_ptr<Exchange> exchange = next_;
        under_way_.emplace(++calls_, exchange);
        const std::scoped_lock lock(exchange->mutex);
        if (!exchange->next) exchange->next = std::make_shared<Exchange>();
        next_ = exchange->next;
        exchange->ranks.resize(static_cast<std::size_t>(size_));
        exchange->ranks[static_cast<std::size_t>(rank_)] = mine;
        if (++exchange->started == size_) {
            move(exchange->ranks);
            exchange->is_done = true;
            exchange->is_done.notify_all();
        }
        return {calls_};
    }

    std::shared_ptr<Exchange> next_;  // that this rank starts
    int rank_;
    int size_;
    int node_;
    int calls_ = 0;
    double limit_s_ = 0;                                  // of this group's waits
    std::map<int, std::shared_ptr<Exchange>> under_way_;  // by call: those that this rank has not waited for
};

}  // namespace

void call_while_waiting(std::function<void()> act) {
    idle = std::move(act);
}

void run_on_threads(int ranks, const std::function<void(Comm&)>& body, int ranks_on_node) {
    const auto first = std::make_shared<Exchange>();
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&, rank] {
            ThreadComm comm(first, rank, ranks, ranks_on_node == 0 ? 0 : rank / ranks_on_node);
            body(comm);
        });
    }
}

}  // namespace atl::comm
