// Compiled where NCCL's own header is, in a build for NVIDIA's GPUs: it says what nccl.h of ours declares.

#include <nccl.h>

#include <cstddef>
#include <type_traits>

#include "trainer/comm/nccl.h"

namespace atl::comm {
namespace {

// Our type in the place of one of NCCL's.
template <class Type>
struct Ours {
    using type = Type;
};
template <class Type>
struct Ours<Type*> {
    using type = typename Ours<Type>::type*;
};
template <class Result, class... Arguments>
struct Ours<Result(Arguments...)> {
    using type = typename Ours<Result>::type(typename Ours<Arguments>::type...);
};
template <>
struct Ours<ncclResult_t> {
    using type = NcclResult;
};
template <>
struct Ours<ncclDataType_t> {
    using type = NcclType;
};
template <>
struct Ours<ncclRedOp_t> {
    using type = NcclOperation;
};
template <>
struct Ours<ncclUniqueId> {
    using type = NcclUniqueId;
};
template <>
struct Ours<ncclConfig_t> {
    using type = NcclConfig;
};
template <>
struct Ours<ncclComm_t> {
    using type = Nccl::Communicator;
};
template <>
struct Ours<cudaStream_t> {
    using type = void*;
};

template <class Member, class Function>
constexpr bool is_declared = std::is_same_v<Member, typename Ours<Function>::type*>;

static_assert(is_declared<decltype(Nccl::get_version), decltype(ncclGetVersion)>);
static_assert(is_declared<decltype(Nccl::get_unique_id), decltype(ncclGetUniqueId)>);
static_assert(is_declared<decltype(Nccl::comm_init_rank_config), decltype(ncclCommInitRankConfig)>);
static_assert(is_declared<decltype(Nccl::comm_finalize), decltype(ncclCommFinalize)>);
static_assert(is_declared<decltype(Nccl::comm_destroy), decltype(ncclCommDestroy)>);
static_assert(is_declared<decltype(Nccl::comm_abort), decltype(ncclCommAbort)>);
static_assert(is_declared<decltype(Nccl::comm_get_async_error), decltype(ncclCommGetAsyncError)>);
static_assert(is_declared<decltype(Nccl::get_error_string), decltype(ncclGetErrorString)>);
static_assert(is_declared<decltype(Nccl::get_last_error), decltype(ncclGetLastError)>);
static_assert(is_declared<decltype(Nccl::all_gather), decltype(ncclAllGather)>);
static_assert(is_declared<decltype(Nccl::reduce_scatter), decltype(ncclReduceScatter)>);
static_assert(is_declared<decltype(Nccl::all_reduce), decltype(ncclAllReduce)>);
static_assert(is_declared<decltype(Nccl::send), decltype(ncclSend)>);
static_assert(is_declared<decltype(Nccl::recv), decltype(ncclRecv)>);
static_assert(is_declared<decltype(Nccl::group_start), decltype(ncclGroupStart)>);
static_assert(is_declared<decltype(Nccl::group_end), decltype(ncclGroupEnd)>);

template <class Mine, class Theirs>
constexpr bool is_number(Mine mine, Theirs theirs) {
    return sizeof(Mine) == sizeof(Theirs) && static_cast<int>(mine) == static_cast<int>(theirs);
}
static_assert(is_number(NcclResult::kSuccess, ncclSuccess));
static_assert(is_number(NcclResult::kUnhandledCudaError, ncclUnhandledCudaError));
static_assert(is_number(NcclResult::kSystemError, ncclSystemError));
static_assert(is_number(NcclResult::kInternalError, ncclInternalError));
static_assert(is_number(NcclResult::kInvalidArgument, ncclInvalidArgument));
static_assert(is_number(NcclResult::kInvalidUsage, ncclInvalidUsage));
static_assert(is_number(NcclResult::kRemoteError, ncclRemoteError));
static_assert(is_number(NcclResult::kInProgress, ncclInProgress));
static_assert(is_number(NcclType::kUint8, ncclUint8));
static_assert(is_number(NcclType::kFloat16, ncclFloat16));
static_assert(is_number(NcclType::kFloat32, ncclFloat32));
static_assert(is_number(NcclType::kFloat64, ncclFloat64));
static_assert(is_number(NcclType::kBfloat16, ncclBfloat16));
static_assert(is_number(NcclOperation::kSum, ncclSum));

static_assert(sizeof(NcclUniqueId) == sizeof(ncclUniqueId));
static_assert(offsetof(NcclConfig, size) == offsetof(ncclConfig_t, size));
static_assert(offsetof(NcclConfig, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(NcclConfig, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(NcclConfig, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(NcclConfig, cga_cluster_size) == offsetof(ncclConfig_t, cgaClusterSize));

}  // namespace
}  // namespace atl::comm
