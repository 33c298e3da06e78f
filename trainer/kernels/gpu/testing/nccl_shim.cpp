#include "trainer/kernels/gpu/testing/nccl_shim.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "shared/numeric/float16.h"
#include "trainer/kernels/gpu/testing/cuda_shim.h"

namespace {

using atl::comm::NcclConfig;
using atl::comm::NcclOperation;
using atl::comm::NcclResult;
using atl::comm::NcclType;
using atl::comm::NcclUniqueId;
namespace numeric = atl::numeric;
namespace shim = atl::kernels::gpu::shim;

using Bytes = std::vector<std::byte>;
// What a rank sends in a call, by who gets it; under kAll what every rank gets.
using Sent = std::map<int, Bytes>;
constexpr int kAll = -1;

// One call of all ranks.
struct Call {
    std::string signature;  // "all-gather of 64 uint8"
    int first = 0;          // the rank that began
    int asked = 0, begun = 0;
    std::vector<Sent> sent;  // by rank
};

// The ranks of a communicator, under one lock.
struct Clique {
    explicit Clique(int ranks) : size(ranks) {}
    std::mutex mutex;
    int size;
    std::map<std::string, int> cards;  // who is on each
    int joined = 0, finalized = 0;
    NcclResult state = NcclResult::kSuccess;
    std::string trouble;
    std::map<std::uint64_t, std::shared_ptr<Call>> calls;

    void fail(const std::string& why) {
        state = NcclResult::kInvalidUsage;
        if (trouble.empty()) trouble = why;
    }
};

}  // namespace

namespace atl::comm {
struct NcclCommunicator {
    std::shared_ptr<Clique> clique;
    int rank = 0;
    std::uint64_t calls = 0;
    int busy = 0;  // as often it says that it is in progress
    bool is_finalizing = false;
};
}  // namespace atl::comm

namespace {

using Communicator = atl::comm::Nccl::Communicator;

thread_local std::optional<NcclResult> planted;

// Between group_start and group_end.
struct Group {
    bool is_open = false;
    Communicator communicator = nullptr;
    cudaStream_t stream = nullptr;
    std::vector<std::pair<int, std::pair<const void*, std::size_t>>> sends;
    std::vector<std::pair<int, std::pair<void*, std::size_t>>> receives;
};
thread_local Group group;

struct Cliques {
    std::mutex mutex;
    std::map<std::array<char, 128>, std::weak_ptr<Clique>> all;
    int ids = 0;
};
Cliques& cliques() {
    static Cliques all;
    return all;
}

std::size_t size_of(NcclType type) {
    switch (type) {
        case NcclType::kUint8:
            return 1;
        case NcclType::kFloat16:
        case NcclType::kBfloat16:
            return 2;
        case NcclType::kFloat32:
            return 4;
        case NcclType::kFloat64:
            return 8;
    }
    return 0;
}

std::string signature_of(const char* what, std::size_t count, NcclType type) {
    return std::string(what) + " of " + std::to_string(count) + " of type " + std::to_string(static_cast<int>(type));
}

Bytes copy_of(const void* from, std::size_t bytes) {
    Bytes copy(bytes);
    if (bytes > 0) std::memcpy(copy.data(), from, bytes);
    return copy;
}

// On the rank's stream: what it sends is there.
void begin(Clique& clique, Call& call, const std::string& signature, std::uint64_t number, int rank, Sent sent) {
    const std::scoped_lock lock(clique.mutex);
    if (call.begun == 0) {
        call.signature = signature;
        call.first = rank;
        call.sent.resize(static_cast<std::size_t>(clique.size));
    } else if (call.signature != signature) {
        return clique.fail("call " + std::to_string(number) + " is " + call.signature + " on rank " +
                           std::to_string(call.first) + " and " + signature + " on rank " + std::to_string(rank));
    }
    call.sent[static_cast<std::size_t>(rank)] = std::move(sent);
    ++call.begun;
}

// Asks the stream for one call: take() gives what is sent, give(sent, rank) takes what all ranks have sent.
using Take = std::function<Sent()>;
using Give = std::function<void(const std::vector<Sent>& sent, int rank)>;
NcclResult ask(Communicator communicator, cudaStream_t stream, const std::string& signature, const Take& take,
               const Give& give) {
    if (communicator->busy > 0 || communicator->is_finalizing) return NcclResult::kInvalidUsage;
    const std::shared_ptr<Clique> clique = communicator->clique;
    const std::uint64_t number = ++communicator->calls;
    const int rank = communicator->rank;
    std::shared_ptr<Call> call;
    {
        const std::scoped_lock lock(clique->mutex);
        auto& known = clique->calls[number];
        if (!known) known = std::make_shared<Call>();
        call = known;
        if (++call->asked == clique->size) clique->calls.erase(number);
    }
    shim::enqueue(stream, [=] { begin(*clique, *call, signature, number, rank, take()); });
    const auto has_begun_on_all = [=] {
        const std::scoped_lock lock(clique->mutex);
        return call->begun == clique->size;
    };
    // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDeleteLeaks): it loses sight of what std::function holds
    shim::enqueue_after_others(stream, has_begun_on_all, [=] { give(call->sent, rank); });
    communicator->busy = static_cast<int>(number % 3);
    return communicator->busy > 0 ? NcclResult::kInProgress : NcclResult::kSuccess;
}

template <class Number>
struct Format {
    static double load(const std::byte* from) {
        Number value{};
        std::memcpy(&value, from, sizeof(Number));
        return static_cast<double>(value);
    }
    static void store(double value, std::byte* to) {
        const auto rounded = static_cast<Number>(value);
        std::memcpy(to, &rounded, sizeof(Number));
    }
};
struct Bf16 {
    static double load(const std::byte* from) {
        std::uint16_t bits = 0;
        std::memcpy(&bits, from, sizeof bits);
        return numeric::widen_bf16(bits);
    }
    static void store(double value, std::byte* to) {
        const std::uint16_t bits = numeric::narrow_bf16(static_cast<float>(value));
        std::memcpy(to, &bits, sizeof bits);
    }
};

// Along the ring from rank `first`, of elements [begin, begin + count) of what each rank sent.
template <class As>
void add_up(const std::vector<Sent>& sent, std::size_t first, std::size_t begin, std::size_t count, std::size_t width,
            void* into) {
    const auto of = [&](std::size_t rank) { return sent[rank % sent.size()].at(kAll).data() + begin * width; };
    auto* const to = static_cast<std::byte*>(into);
    std::memcpy(to, of(first), count * width);
    for (std::size_t hop = 1; hop < sent.size(); ++hop) {
        const std::byte* const from = of(first + hop);
        for (std::size_t at = 0; at < count * width; at += width)
            As::store(As::load(to + at) + As::load(from + at), to + at);
    }
}

void add_up(const std::vector<Sent>& sent, std::size_t first, std::size_t begin, std::size_t count, NcclType type,
            void* into) {
    const std::size_t width = size_of(type);
    if (type == NcclType::kFloat32) return add_up<Format<float>>(sent, first, begin, count, width, into);
    if (type == NcclType::kFloat64) return add_up<Format<double>>(sent, first, begin, count, width, into);
    atl::check(type == NcclType::kBfloat16, "the shim adds up float32, float64 and bfloat16");
    add_up<Bf16>(sent, first, begin, count, width, into);
}

// What is sent and what is received lie apart, or the one in its place in the other: NCCL takes nothing between. `part`
// is the shorter one, this rank's of the `whole`.
bool is_apart_or_in_place(const void* part, std::size_t bytes, const void* whole, const Communicator& communicator) {
    const auto* const first = static_cast<const std::byte*>(part);
    const auto* const begin = static_cast<const std::byte*>(whole);
    const auto* const end = begin + bytes * static_cast<std::size_t>(communicator->clique->size);
    return first + bytes <= begin || end <= first ||
           first == begin + bytes * static_cast<std::size_t>(communicator->rank);
}

NcclResult get_version(int* version) {
    *version = 22809;
    return NcclResult::kSuccess;
}

NcclResult get_unique_id(NcclUniqueId* id) {
    const std::scoped_lock lock(cliques().mutex);
    const std::string text = "shim " + std::to_string(++cliques().ids);
    id->bytes = {};
    std::ranges::copy(text, id->bytes.begin());
    return NcclResult::kSuccess;
}

NcclResult comm_init_rank_config(Communicator* made, int ranks, NcclUniqueId id, int rank, NcclConfig* config) {
    if (config->size != sizeof(NcclConfig) || config->magic != 0xcafebeef || config->blocking != 0)
        return NcclResult::kInvalidArgument;
    std::shared_ptr<Clique> clique;
    {
        const std::scoped_lock lock(cliques().mutex);
        auto& known = cliques().all[id.bytes];
        clique = known.lock();
        if (!clique) known = clique = std::make_shared<Clique>(ranks);
    }
    std::array<char, 32> card{};
    static_cast<void>(cudaDeviceGetPCIBusId(card.data(), static_cast<int>(card.size()), 0));
    const std::scoped_lock lock(clique->mutex);
    const auto [other, is_new] = clique->cards.try_emplace(card.data(), rank);
    if (!is_new)
        clique->fail("Duplicate GPU detected : rank " + std::to_string(rank) + " and rank " +
                     std::to_string(other->second) + " both on CUDA device " + card.data());
    ++clique->joined;
    *made = new atl::comm::NcclCommunicator{.clique = clique, .rank = rank};
    return NcclResult::kInProgress;
}

NcclResult comm_finalize(Communicator communicator) {
    const std::scoped_lock lock(communicator->clique->mutex);
    communicator->is_finalizing = true;
    ++communicator->clique->finalized;
    return NcclResult::kInProgress;
}

NcclResult comm_destroy(Communicator communicator) {
    delete communicator;
    return NcclResult::kSuccess;
}

NcclResult comm_get_async_error(Communicator communicator, NcclResult* state) {
    shim::progress();  // NCCL's devices go on while a host asks
    if (planted) {
        *state = *std::exchange(planted, std::nullopt);
        return NcclResult::kSuccess;
    }
    Clique& clique = *communicator->clique;
    const std::scoped_lock lock(clique.mutex);
    const bool is_in_progress = clique.joined < clique.size || communicator->busy > 0 ||
                                (communicator->is_finalizing && clique.finalized < clique.size);
    communicator->busy = std::max(0, communicator->busy - 1);
    *state = clique.state != NcclResult::kSuccess ? clique.state
             : is_in_progress                     ? NcclResult::kInProgress
                                                  : NcclResult::kSuccess;
    return NcclResult::kSuccess;
}

const char* get_error_string(NcclResult result) {
    switch (result) {
        case NcclResult::kSuccess:
            return "no error";
        case NcclResult::kInvalidUsage:
            return "invalid usage (run with NCCL_DEBUG=WARN for details)";
        case NcclResult::kRemoteError:
            return "remote process exited or there was a network error";
        default:
            return "unknown result code";
    }
}

const char* get_last_error(Communicator communicator) {
    return communicator == nullptr ? "" : communicator->clique->trouble.c_str();
}

NcclResult all_gather(const void* from, void* to, std::size_t count, NcclType type, Communicator communicator,
                      void* stream) {
    const std::size_t bytes = count * size_of(type);
    if (!is_apart_or_in_place(from, bytes, to, communicator)) return NcclResult::kInvalidArgument;
    return ask(
        communicator, static_cast<cudaStream_t>(stream), signature_of("all-gather", count, type),
        [=] { return Sent{{kAll, copy_of(from, bytes)}}; },
        [=](const std::vector<Sent>& sent, int) {
            auto* part = static_cast<std::byte*>(to);
            for (const Sent& of : sent) part = std::ranges::copy(of.at(kAll), part).out;
        });
}

NcclResult reduce_scatter(const void* from, void* to, std::size_t count, NcclType type, NcclOperation,
                          Communicator communicator, void* stream) {
    const std::size_t bytes = count * static_cast<std::size_t>(communicator->clique->size) * size_of(type);
    if (!is_apart_or_in_place(to, count * size_of(type), from, communicator)) return NcclResult::kInvalidArgument;
    return ask(
        communicator, static_cast<cudaStream_t>(stream), signature_of("reduce-scatter", count, type),
        [=] { return Sent{{kAll, copy_of(from, bytes)}}; },
        [=](const std::vector<Sent>& sent, int rank) {
            const auto part = static_cast<std::size_t>(rank);
            add_up(sent, part + 1, part * count, count, type, to);
        });
}

NcclResult all_reduce(const void* from, void* to, std::size_t count, NcclType type, NcclOperation,
                      Communicator communicator, void* stream) {
    return ask(
        communicator, static_cast<cudaStream_t>(stream), signature_of("all-reduce", count, type),
        [=] { return Sent{{kAll, copy_of(from, count * size_of(type))}}; },
        [=](const std::vector<Sent>& sent, int) { add_up(sent, 1, 0, count, type, to); });
}

NcclResult send_to(const void* from, std::size_t count, NcclType type, int to_rank, Communicator communicator,
                   void* stream) {
    if (!group.is_open) return NcclResult::kInvalidUsage;  // we send in groups alone
    group.communicator = communicator;
    group.stream = static_cast<cudaStream_t>(stream);
    group.sends.push_back({to_rank, {from, count * size_of(type)}});
    return NcclResult::kSuccess;
}

NcclResult receive_from(void* to, std::size_t count, NcclType type, int from_rank, Communicator, void*) {
    if (!group.is_open) return NcclResult::kInvalidUsage;
    group.receives.push_back({from_rank, {to, count * size_of(type)}});
    return NcclResult::kSuccess;
}

NcclResult group_start() {
    group = {};
    group.is_open = true;
    return NcclResult::kSuccess;
}

NcclResult group_end() {
    const Group asked = std::exchange(group, {});
    const std::size_t bytes = asked.sends.empty() ? 0 : asked.sends.front().second.second;
    return ask(
        asked.communicator, asked.stream, signature_of("sends", bytes, NcclType::kUint8),
        [asked] {
            Sent sent;
            for (const auto& [rank, memory] : asked.sends) sent[rank] = copy_of(memory.first, memory.second);
            return sent;
        },
        [asked](const std::vector<Sent>& sent, int rank) {
            for (const auto& [from, memory] : asked.receives)
                std::memcpy(memory.first, sent[static_cast<std::size_t>(from)].at(rank).data(), memory.second);
        });
}

}  // namespace

namespace atl::kernels::gpu::shim {

void* find_nccl_symbol(const char* name) {
    static const std::map<std::string, void*> all = {
        {"ncclGetVersion", reinterpret_cast<void*>(&get_version)},
        {"ncclGetUniqueId", reinterpret_cast<void*>(&get_unique_id)},
        {"ncclCommInitRankConfig", reinterpret_cast<void*>(&comm_init_rank_config)},
        {"ncclCommFinalize", reinterpret_cast<void*>(&comm_finalize)},
        {"ncclCommDestroy", reinterpret_cast<void*>(&comm_destroy)},
        {"ncclCommAbort", reinterpret_cast<void*>(&comm_destroy)},
        {"ncclCommGetAsyncError", reinterpret_cast<void*>(&comm_get_async_error)},
        {"ncclGetErrorString", reinterpret_cast<void*>(&get_error_string)},
        {"ncclGetLastError", reinterpret_cast<void*>(&get_last_error)},
        {"ncclAllGather", reinterpret_cast<void*>(&all_gather)},
        {"ncclReduceScatter", reinterpret_cast<void*>(&reduce_scatter)},
        {"ncclAllReduce", reinterpret_cast<void*>(&all_reduce)},
        {"ncclSend", reinterpret_cast<void*>(&send_to)},
        {"ncclRecv", reinterpret_cast<void*>(&receive_from)},
        {"ncclGroupStart", reinterpret_cast<void*>(&group_start)},
        {"ncclGroupEnd", reinterpret_cast<void*>(&group_end)}};
    const auto found = all.find(name);
    return found == all.end() ? nullptr : found->second;
}

const comm::Nccl& nccl() {
    static const comm::Nccl loaded = comm::load_nccl("the shim", find_nccl_symbol).value();
    return loaded;
}

void fail_next_nccl(comm::NcclResult result) {
    planted = result;
}

}  // namespace atl::kernels::gpu::shim
