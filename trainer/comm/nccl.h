#pragma once

#include <array>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "shared/base/result.h"

// NCCL as it is found when the program runs: a build needs neither the library nor its header. Declared here is what is
// called of it, as nccl.h has it since 2.14 (NCCL's documentation: API). All calls come from one thread, whose GPU is
// the one that CUDA has for it.
namespace atl::comm {

enum class NcclResult : int {
    kSuccess = 0,
    kUnhandledCudaError,
    kSystemError,
    kInternalError,
    kInvalidArgument,
    kInvalidUsage,
    kRemoteError,
    kInProgress
};
enum class NcclType : int { kUint8 = 1, kFloat16 = 6, kFloat32, kFloat64, kBfloat16 };
enum class NcclOperation : int { kSum = 0 };

struct NcclUniqueId {
    std::array<char, 128> bytes{};
};
// The beginning of ncclConfig_t: of a version that says so, newer ones take their own values for the rest.
struct NcclConfig {
    std::size_t size = sizeof(NcclConfig);
    unsigned magic = 0xcafebeef;
    unsigned version = 21400;  // 2.14.0
    int blocking = 0;          // calls return at once; state() says what came of them
    int cga_cluster_size = INT_MIN;
};

// Its functions, without "nccl" in their names. A stream is a cudaStream_t.
struct Nccl {
    using Communicator = struct NcclCommunicator*;

    std::string path;          // "/usr/lib/x86_64-linux-gnu/libnccl.so.2"
    int version = 0;           // 22809 for 2.28.9
    std::string name() const;  // "NCCL 2.28.9"

    NcclResult (*get_version)(int* version) = nullptr;
    NcclResult (*get_unique_id)(NcclUniqueId* id) = nullptr;
    NcclResult (*comm_init_rank_config)(Communicator* made, int ranks, NcclUniqueId id, int rank,
                                        NcclConfig* config) = nullptr;
    NcclResult (*comm_finalize)(Communicator group) = nullptr;
    NcclResult (*comm_destroy)(Communicator group) = nullptr;
    NcclResult (*comm_abort)(Communicator group) = nullptr;
    NcclResult (*comm_get_async_error)(Communicator group, NcclResult* state) = nullptr;
    const char* (*get_error_string)(NcclResult result) = nullptr;
    const char* (*get_last_error)(Communicator group) = nullptr;
    NcclResult (*all_gather)(const void* from, void* to, std::size_t sent, NcclType type, Communicator group,
                             void* stream) = nullptr;
    NcclResult (*reduce_scatter)(const void* from, void* to, std::size_t received, NcclType type,
                                 NcclOperation operation, Communicator group, void* stream) = nullptr;
    NcclResult (*all_reduce)(const void* from, void* to, std::size_t count, NcclType type, NcclOperation operation,
                             Communicator group, void* stream) = nullptr;
    NcclResult (*send)(const void* from, std::size_t count, NcclType type, int to_rank, Communicator group,
                       void* stream) = nullptr;
    NcclResult (*recv)(void* to, std::size_t count, NcclType type, int from_rank, Communicator group,
                       void* stream) = nullptr;
    NcclResult (*group_start)() = nullptr;
    NcclResult (*group_end)() = nullptr;
};

// A function of a library by its name, as dlsym; null: it has none.
using FindSymbol = std::function<void*(const char* name)>;

// kUnavailable: a function is missing, or the library is too old.
Result<Nccl> load_nccl(std::string path, const FindSymbol& find);

// This machine's libnccl.so.2, opened once and never closed. kUnavailable: it is not found, or of no use; says what to
// install.
const Result<Nccl>& open_nccl();

}  // namespace atl::comm
