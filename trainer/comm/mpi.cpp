#include "trainer/comm/mpi.h"

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>
#include <string>
#include <vector>

#include "trainer/comm/rank_watch.h"
#include "trainer/comm/tree_sum.h"

namespace atl::comm {
namespace {

constexpr std::size_t kUnitBytes = 64;  // long shards are counted in these: MPI counts with an int

int to_count(std::size_t count) {
    check(count <= static_cast<std::size_t>(INT_MAX), "a transfer is too long for an MPI count");
    return static_cast<int>(count);
}

struct Count {
    int count;
    MPI_Datatype type;
};

// So many bytes, in `unit`s of kUnitBytes where they are whole ones.
Count count_of(std::size_t bytes, MPI_Datatype unit) {
    const bool units = bytes % kUnitBytes == 0;
    return {to_count(units ? bytes / kUnitBytes : bytes), units ? unit : MPI_BYTE};
}

// One rank's part of a buffer, the next rank's `part_stride` after it. MPI keeps what a transfer under way needs of it.
class PartType {
  public:
    PartType(const Parts& parts, MPI_Datatype unit) {
        const auto [count, type] = count_of(parts.block_bytes, unit);
        MPI_Datatype blocks = MPI_DATATYPE_NULL;
        MPI_Type_create_hvector(to_count(parts.blocks), count, static_cast<MPI_Aint>(parts.block_stride), type,
                                &blocks);
        MPI_Type_create_resized(blocks, 0, static_cast<MPI_Aint>(parts.part_stride), &type_);
        MPI_Type_commit(&type_);
        MPI_Type_free(&blocks);
    }
    PartType(const PartType&) = delete;
    PartType& operator=(const PartType&) = delete;
    ~PartType() { MPI_Type_free(&type_); }

    MPI_Datatype type() const { return type_; }

  private:
    MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

class MpiComm final : public Comm {
  public:
    MpiComm(MPI_Comm comm, bool is_world, std::shared_ptr<RankWatch> watch)
        : comm_(comm), is_world_(is_world), watch_(std::move(watch)) {
        MPI_Comm_rank(comm_, &rank_);
        MPI_Comm_size(comm_, &size_);
        MPI_Type_contiguous(static_cast<int>(kUnitBytes), MPI_BYTE, &unit_);
        MPI_Type_commit(&unit_);
        small_.resize(kSmallCountMax * static_cast<std::size_t>(size_));
    }
    MpiComm(const MpiComm&) = delete;
    MpiComm& operator=(const MpiComm&) = delete;
    ~MpiComm() override {
        MPI_Type_free(&unit_);
        if (!is_world_) MPI_Comm_free(&comm_);
    }

    int rank() const override { return rank_; }
    int size() const override { return size_; }

    Transfer start_all_gather(std::span<const std::byte> shard, std::span<std::byte> whole,
                              const Parts& parts) override {
        const bool in_place = shard.empty() || shard.data() == whole.data() + own_part(parts);
        check((shard.empty() || shard.size() == parts.part_bytes()) && whole.size() == parts.whole_bytes(size_),
              "all_gather: the lengths differ");
        const auto [count, type] = count_of(parts.part_bytes(), unit_);
        const PartType part(parts, unit_);
        const Transfer transfer = claim_slot();
        MPI_Iallgather(in_place ? MPI_IN_PLACE : shard.data(), count, type, whole.data(), 1, part.type(), comm_,
                       &slot(transfer).request);
        return transfer;
    }

    Transfer start_all_to_all(std::span<const std::byte> whole, const Parts& parts,
                              std::span<std::byte> received) override {
        check(whole.size() == parts.whole_bytes(size_) &&
                  received.size() == parts.part_bytes() * static_cast<std::size_t>(size_),
              "all_to_all: the lengths differ");
        const auto [count, type] = count_of(parts.part_bytes(), unit_);
        const PartType part(parts, unit_);
        const Transfer transfer = claim_slot();
        MPI_Ialltoall(whole.data(), 1, part.type(), received.data(), count, type, comm_, &slot(transfer).request);
        return transfer;
    }

    void wait(Transfer transfer, const Awaited& awaited) override {
        if (transfer.slot < 0) return;
        Slot& done = slot(transfer);
        check(done.busy, "a transfer was waited for twice");
        watch_->wait(done.request, awaited);
        done = Slot{};
    }

    bool is_done(Transfer transfer) override {
        if (transfer.slot < 0) return true;
        int done = 0;
        MPI_Test(&slot(transfer).request, &done, MPI_STATUS_IGNORE);
        return done != 0;
    }

    void progress() override {
        for (Slot& slot : slots_) {
            int done = 0;  // the request is then null, and MPI_Wait returns at once
            if (slot.busy) MPI_Test(&slot.request, &done, MPI_STATUS_IGNORE);
        }
    }

    void all_reduce(std::span<double> values, Reduction reduction) override {
        check(values.size() <= kSmallCountMax, "all_reduce of more than a few numbers");
        const std::size_t count = values.size();
        MPI_Request request = MPI_REQUEST_NULL;
        MPI_Iallgather(values.data(), to_count(count), MPI_DOUBLE, small_.data(), to_count(count), MPI_DOUBLE, comm_,
                       &request);
        watch_->wait(request, {.what = "numbers of every rank", .collective = "all-reduce"});
        const std::size_t ranks = static_cast<std::size_t>(size_);
        for (std::size_t i = 0; i < count; ++i) {
            column_.resize(ranks);
            for (std::size_t rank = 0; rank < ranks; ++rank) column_[rank] = small_[rank * count + i];
            values[i] = reduction == Reduction::kSum ? tree_sum(column_) : *std::ranges::max_element(column_);
        }
    }

    void send(std::span<std::byte> bytes, int from, int to) override {
        if (from == to) return;
        const int count = to_count(bytes.size());
        MPI_Request request = MPI_REQUEST_NULL;
        if (rank_ == from) MPI_Isend(bytes.data(), count, MPI_BYTE, to, 0, comm_, &request);
        if (rank_ == to) MPI_Irecv(bytes.data(), count, MPI_BYTE, from, 0, comm_, &request);
        watch_->wait(request, {.what = "what one rank has for another", .collective = "send"});
    }

    void broadcast(std::span<std::byte> bytes, int root) override {
        constexpr std::size_t kStep = std::size_t{1} << 30;
        for (std::size_t begin = 0; begin < bytes.size(); begin += kStep) {
            const std::size_t length = std::min(kStep, bytes.size() - begin);
            MPI_Request request = MPI_REQUEST_NULL;
            MPI_Ibcast(bytes.data() + begin, to_count(length), MPI_BYTE, root, comm_, &request);
            watch_->wait(request, {.what = "what one rank tells", .collective = "broadcast"});
        }
    }

    std::unique_ptr<Comm> split(int color, int order) override {
        await_all();
        MPI_Comm part = MPI_COMM_NULL;
        MPI_Comm_split(comm_, color, order, &part);
        return std::make_unique<MpiComm>(part, false, watch_);
    }

    std::unique_ptr<Comm> on_node() override {
        await_all();
        MPI_Comm node = MPI_COMM_NULL;
        MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node);
        return std::make_unique<MpiComm>(node, false, watch_);
    }

    void wait_until(const std::function<bool()>& is_done, const Awaited& awaited) override {
        watch_->wait_until(is_done, awaited);
    }
    double waited_s() const override { return watch_->waited_s(); }
    void limit_waits(double seconds) override { watch_->limit(seconds); }
    void tell_work(std::string_view what) override { watch_->tell_work(what); }

  private:
    struct Slot {
        MPI_Request request = MPI_REQUEST_NULL;
        bool busy = false;
    };

    std::size_t own_part(const Parts& parts) const { return static_cast<std::size_t>(rank_) * parts.part_stride; }

    // Before what MPI has in a blocking form alone, where nobody would look at the time.
    void await_all() {
        MPI_Request request = MPI_REQUEST_NULL;
        MPI_Ibarrier(comm_, &request);
        watch_->wait(request, {.what = "every rank", .collective = "barrier"});
    }

    Slot& slot(Transfer transfer) { return slots_[static_cast<std::size_t>(transfer.slot)]; }

    Transfer claim_slot() {
        const auto free = std::ranges::find(slots_, false, &Slot::busy);
        check(free != slots_.end(), "too many transfers are under way");
        free->busy = true;
        return {static_cast<int>(free - slots_.begin())};
    }

    MPI_Comm comm_;
    bool is_world_;
    std::shared_ptr<RankWatch> watch_;  // one a process
    int rank_ = 0;
    int size_ = 1;
    MPI_Datatype unit_ = MPI_DATATYPE_NULL;
    std::array<Slot, kTransfersMax> slots_;
    std::vector<double> small_;   // [size, count] of all_reduce
    std::vector<double> column_;  // [size]
};

}  // namespace

std::unique_ptr<Comm> make_mpi_world(double limit_s) {
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
    check(provided >= MPI_THREAD_FUNNELED, "MPI does not allow a process with threads");
    set_abort_handler([] { MPI_Abort(MPI_COMM_WORLD, 1); });
    // At the process' end, where the ranks wait for each other: a rank that ended with an error of all before rank 0
    // has told it would have the launcher kill that one.
    std::atexit([] { MPI_Finalize(); });
    return std::make_unique<MpiComm>(MPI_COMM_WORLD, true, std::make_shared<RankWatch>(limit_s));
}

void abort_mpi_world(int code) {
    int is_initialized = 0;
    MPI_Initialized(&is_initialized);
    if (is_initialized != 0) MPI_Abort(MPI_COMM_WORLD, code);
}

std::int64_t library_bytes(int ranks_on_node) {
    if (ranks_on_node <= 1) return 0;
#if defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5
    return 9'500'000;  // 9.3 to 10.0 MB on 2 to 8 ranks
#else
    // To 2 MB on 2 to 6 ranks: less where one rank may copy from another (single copy), more where they wait for cores.
    constexpr std::int64_t kLibrary = 9'400'000, kPeer = 700'000;
    return kLibrary + kPeer * (ranks_on_node - 1);
#endif
}

std::string mpi_version() {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
    int length = 0;
    MPI_Get_library_version(text.data(), &length);
    const std::string_view version(text.data(), static_cast<std::size_t>(std::max(0, length)));
    return std::string(version.substr(0, version.find_first_of(",\n\0")));
}

}  // namespace atl::comm
