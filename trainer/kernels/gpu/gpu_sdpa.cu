// Attention of GpuBackend by a library's kernels, where it has them and their results may vary (sdpa.h). The other path
// is by products (gpu_attention.cu). Where each sequence is one document both keep the same for the backward pass, so
// that each pass takes either; of documents the library keeps another layout, and both passes take the same path.

#include <algorithm>

#include "trainer/kernels/gpu/gpu_backend.h"
#include "trainer/kernels/gpu/packs.h"

namespace atl::kernels::gpu {
namespace {

using tensor::Arena;
using tensor::Category;

std::byte* align(std::byte* memory) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    constexpr auto kUnit = static_cast<std::uintptr_t>(kSdpaWorkspaceAlignment);
    return memory + ((address + kUnit - 1) / kUnit * kUnit - address);
}

// Rows of documents as elements of the tensors that the library reads and writes.
struct FirstElements {
    const std::int32_t* first_rows;
    std::int32_t* at[4];
    std::int32_t widths[4];
    __device__ void operator()(std::int64_t place) const {
        ATOLL_UNROLL
        for (int tensor = 0; tensor < 4; ++tensor) at[tensor][place] = first_rows[place] * widths[tensor];
    }
};

// Gradients of queries, keys and values side by side.
template <class P>
struct JoinGradients {
    P queries, keys, values, joined;
    std::int64_t of_queries, of_keys;  // columns
    __device__ void operator()(std::int64_t row, std::int64_t column) const {
        const std::int64_t after = column - of_queries, at = row * (of_queries + 2 * of_keys) + column;
        if (after < 0) {
            joined.store_pack(at, queries.load_pack(row * of_queries + column));
        } else if (after < of_keys) {
            joined.store_pack(at, keys.load_pack(row * of_keys + after));
        } else {
            joined.store_pack(at, values.load_pack(row * of_keys + after - of_keys));
        }
    }
};

}  // namespace

void GpuBackend::open_sdpa() {
    if (options_.deterministic) return;
    auto opened = Sdpa::open();
    if (!opened.ok()) {
        warning_ = "attention is by matrix products, which is slower than by cuDNN: " + opened.error().message;
        return;
    }
    sdpa_ = std::move(opened).value();
    if (sdpa_ != nullptr) name_.insert(name_.size() - 1, ", " + sdpa_->library());  // before the bracket
}

SdpaLibrary GpuBackend::sdpa_library() const {
    if (sdpa_ == nullptr) return {};
    return [this](const SdpaKind& kind) -> std::optional<std::int64_t> {
        const auto bytes = sdpa_->workspace_bytes(kind);
        return bytes.ok() ? std::optional(*bytes) : std::nullopt;
    };
}

std::optional<std::int64_t> GpuBackend::sdpa_bytes(const SdpaKind& kind) const {
    return gpu::sdpa_bytes(kind, sdpa_library());
}

// Of sequences that are one document each: a workspace is for the largest batch, and a smaller one may have a kernel
// that takes more. Of documents: what a list of another length takes was not asked for beforehand.
bool GpuBackend::has_sdpa(const Sdpa::Kind& kind, const Documents& documents, std::int64_t free_bytes) const {
    if (documents.empty()) {
        const auto bytes = sdpa_bytes(kind);
        return bytes && *bytes <= free_bytes;
    }
    if (kind.places == 0) return false;
    const std::int64_t most = sdpa_workspace_bytes(kind.shape, sdpa_library());
    return std::ranges::all_of(std::array{Sdpa::Pass::kForward, Sdpa::Pass::kBackward}, [&](Sdpa::Pass pass) {
        const auto bytes = sdpa_bytes({kind.shape, pass, kind.places});
        return bytes && *bytes <= most;
    });
}

bool GpuBackend::attends_by_sdpa(const AttentionShape& shape, Sdpa::Pass pass, const Documents& documents,
                                 Sdpa::Tensors tensors, const Tensor& qkv_gradient, Arena& workspace) {
    const Sdpa::Kind kind{shape, pass, documents.places()};
    if (!has_sdpa(kind, documents, workspace.free_bytes())) return false;
    const Arena::Scope scope(workspace);
    const std::int64_t queries = shape.heads * shape.head_channels, keys = shape.kv_heads * shape.head_channels;
    if (kind.places > 0) {
        allocate_of_documents(workspace, kind, tensors);
        tensors.lengths = documents.lengths;
        const auto width = [](std::int64_t columns) { return static_cast<std::int32_t>(columns); };
        launch_for_each(compute(), kind.places + 1,
                        FirstElements{documents.first_rows.i32(),
                                      {tensors.first_of_qkv.i32(), tensors.first_of_out.i32(),
                                       tensors.first_of_keys.i32(), tensors.first_of_log_sums.i32()},
                                      {width(shape.qkv_columns()), width(queries), width(keys), width(shape.heads)}});
    } else if (pass == Sdpa::Pass::kBackward) {
        tensors.query_gradient = qkv_gradient.column_range(0, queries);
        tensors.key_gradient = qkv_gradient.column_range(queries, keys);
        tensors.value_gradient = qkv_gradient.column_range(queries + keys, keys);
    }
    const std::int64_t bytes = sdpa_->workspace_bytes(kind).value();
    sdpa_->run(
        compute(), kind, tensors,
        bytes == 0 ? nullptr : align(workspace.allocate_bytes(Category::kWorkspace, bytes + kSdpaWorkspaceMore)));
    if (kind.places == 0 || pass == Sdpa::Pass::kForward) return true;
    with_packs(shape.head_channels,
               {tensors.query_gradient, tensors.key_gradient, tensors.value_gradient, qkv_gradient}, [&]<class P>() {
                   launch_in_rows<P>(compute(), shape.batch * shape.length, shape.qkv_columns(),
                                     JoinGradients<P>{P(tensors.query_gradient), P(tensors.key_gradient),
                                                      P(tensors.value_gradient), P(qkv_gradient), queries, keys});
               });
    return true;
}

}  // namespace atl::kernels::gpu
