#include "trainer/comm/nccl.h"

#include <dlfcn.h>

#include <cstdlib>
#include <utility>

namespace atl::comm {
namespace {

constexpr const char* kLibrary = "libnccl.so.2";
constexpr int kOldest = 22600;  // 2.26.0: the first with NCCL_LAUNCH_ORDER_IMPLICIT
constexpr const char* kWhatToDo =
    "; install NCCL 2.26 or newer for CUDA 13 (PyPI: nvidia-nccl-cu13) and name its folder in LD_LIBRARY_PATH";

Error no_nccl(const std::string& why) {
    return unavailable(why + kWhatToDo);
}

std::string version_text(int version) {
    return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
           std::to_string(version % 100);
}

// Finds one function after another and remembers the first that is missing.
class Functions {
  public:
    explicit Functions(const FindSymbol& find) : find_(find) {}

    template <class Function>
    void find(Function*& function, const char* name) {
        function = reinterpret_cast<Function*>(find_(name));
        if (function == nullptr && missing_.empty()) missing_ = name;
    }
    const std::string& missing() const { return missing_; }

  private:
    const FindSymbol& find_;
    std::string missing_;
};

Result<Nccl> open_library() {
    // Several groups have transfers under way at once, each on a stream of its own: by this none of them can keep
    // another from ending. It is read when the library starts.
    static_cast<void>(::setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0));
    void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return no_nccl(::dlerror());
    void* const function = ::dlsym(library, "ncclGetVersion");
    Dl_info info{};
    const bool is_known = function != nullptr && ::dladdr(function, &info) != 0 && info.dli_fname != nullptr;
    return load_nccl(is_known ? info.dli_fname : kLibrary, [&](const char* name) { return ::dlsym(library, name); });
}

}  // namespace

std::string Nccl::name() const {
    return "NCCL " + version_text(version);
}

Result<Nccl> load_nccl(std::string path, const FindSymbol& find) {
    Nccl nccl;
    Functions functions(find);
    functions.find(nccl.get_version, "ncclGetVersion");
    functions.find(nccl.get_unique_id, "ncclGetUniqueId");
    functions.find(nccl.comm_init_rank_config, "ncclCommInitRankConfig");
    functions.find(nccl.comm_finalize, "ncclCommFinalize");
    functions.find(nccl.comm_destroy, "ncclCommDestroy");
    functions.find(nccl.comm_abort, "ncclCommAbort");
    functions.find(nccl.comm_get_async_error, "ncclCommGetAsyncError");
    functions.find(nccl.get_error_string, "ncclGetErrorString");
    functions.find(nccl.get_last_error, "ncclGetLastError");
    functions.find(nccl.all_gather, "ncclAllGather");
    functions.find(nccl.reduce_scatter, "ncclReduceScatter");
    functions.find(nccl.all_reduce, "ncclAllReduce");
    functions.find(nccl.send, "ncclSend");
    functions.find(nccl.recv, "ncclRecv");
    functions.find(nccl.group_start, "ncclGroupStart");
    functions.find(nccl.group_end, "ncclGroupEnd");
    if (!functions.missing().empty()) return no_nccl(path + " has no " + functions.missing());
    if (nccl.get_version(&nccl.version) != NcclResult::kSuccess) return no_nccl(path + " does not say its version");
    if (nccl.version < kOldest) return no_nccl(path + " is " + nccl.name());
    nccl.path = std::move(path);
    return nccl;
}

const Result<Nccl>& open_nccl() {
    static const Result<Nccl> opened = open_library();
    return opened;
}

}  // namespace atl::comm
