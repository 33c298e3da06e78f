// Attention by cuDNN, through its C++ frontend. The library is opened at run time: a build has its headers alone.

#include <dlfcn.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <map>
#include <unordered_map>

#include "trainer/kernels/gpu/sdpa.h"

#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#include <cudnn_frontend.h>

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // where the frontend looks for cuDNN's functions
}

namespace atl::kernels::gpu {
namespace {

namespace fe = cudnn_frontend;
using tensor::DType;
using Graph = fe::graph::Graph;
using TensorAttributes = fe::graph::Tensor_attributes;
using TensorHandle = std::shared_ptr<TensorAttributes>;

constexpr std::size_t kOldest = 91900;  // 9.19.0: plans were checked with it
constexpr const char* kWhatToDo =
    "; install cuDNN 9.19 or newer for CUDA 13 (PyPI: nvidia-cudnn-cu13) with NVRTC and the CUDA runtime, and name "
    "their "
    "folders in LD_LIBRARY_PATH";

// What the graphs' tensors are known by.
enum Uid : std::int64_t {
    kQueries = 1,
    kKeys,
    kValues,
    kOut,
    kLogSums,
    kOutGradient,
    kQueryGradient,
    kKeyGradient,
    kValueGradient,
    kLengths,
    kFirstOfQkv,
    kFirstOfOut,
    kFirstOfKeys,
    kFirstOfLogSums
};

Error no_library(const std::string& why) {
    return unavailable(why + kWhatToDo);
}

// Opened once and never closed.
Status open_library() {
    if (fe::cudnn_dlhandle != nullptr) return {};
    void* const opened = ::dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    if (opened == nullptr) return no_library(::dlerror());
    fe::cudnn_dlhandle = opened;
    // The frontend takes an older runtime where it finds both. Now, before anything is computed, or it throws.
    static_cast<void>(::setenv("CUDNN_FRONTEND_CUDART_LIB_NAME", "libcudart.so.13", 0));
    static_cast<void>(fe::detail::get_cuda_symbol(fe::detail::CudaLibrary::CUDART, "cudaMemsetAsync"));
    if (fe::detail::get_backend_version() >= kOldest) return {};
    const std::string version = fe::detail::get_backend_version_string();
    fe::cudnn_dlhandle = nullptr;
    return no_library("libcudnn.so.9 is " + version);
}

// body(), whose exceptions the frontend throws where it does not find a function.
template <class Body>
auto without_exceptions(const Body& body) -> decltype(body()) {
    try {
        return body();
    } catch (const std::exception& error) {
        return no_library(error.what());
    }
}

// Describes a pass in a graph that knows its card.
class Description {
  public:
    Description(const Sdpa::Kind& kind, std::shared_ptr<Graph> graph)
        : kind_(kind),
          shape_(kind.shape),
          scale_(1.0F / std::sqrt(static_cast<float>(shape_.head_channels))),
          graph_(std::move(graph)) {
        graph_->set_io_data_type(shape_.format == DType::kBF16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF)
            .set_intermediate_data_type(fe::DataType_t::FLOAT)
            .set_compute_data_type(fe::DataType_t::FLOAT);
        if (is_of_documents()) {
            lengths_ = add_integers(kLengths, "lengths", kind_.places);
            first_of_qkv_ = add_integers(kFirstOfQkv, "first_of_qkv", kind_.places + 1);
            first_of_out_ = add_integers(kFirstOfOut, "first_of_out", kind_.places + 1);
            first_of_log_sums_ = add_integers(kFirstOfLogSums, "first_of_log_sums", kind_.places + 1);
            if (kind_.pass == Sdpa::Pass::kBackward)
                first_of_keys_ = add_integers(kFirstOfKeys, "first_of_keys", kind_.places + 1);
        }
        const std::int64_t row = shape_.qkv_columns();
        queries_ = add_matrix(kQueries, "queries", shape_.heads, row, first_of_qkv_);
        keys_ = add_matrix(kKeys, "keys", shape_.kv_heads, row, first_of_qkv_);
        values_ = add_matrix(kValues, "values", shape_.kv_heads, row, first_of_qkv_);
        if (kind_.pass == Sdpa::Pass::kForward) {
            add_forward();
        } else {
            add_backward();
        }
    }

  private:
    bool is_of_documents() const { return kind_.places > 0; }
    // Documents are sequences of lengths of their own, at most T.
    std::int64_t batch() const { return is_of_documents() ? kind_.places : shape_.batch; }
    std::int64_t out_row() const { return shape_.heads * shape_.head_channels; }

    TensorHandle add_integers(Uid uid, const char* name, std::int64_t count) {
        return graph_->tensor(TensorAttributes()
                                  .set_name(name)
                                  .set_uid(uid)
                                  .set_data_type(fe::DataType_t::INT32)
                                  .set_dim({count, 1, 1, 1})
                                  .set_stride({1, 1, 1, 1}));
    }

    // `heads` side by side in rows of so many elements.
    void lay_out(TensorAttributes& matrix, std::int64_t heads, std::int64_t row, const TensorHandle& first) const {
        matrix.set_dim({batch(), heads, shape_.length, shape_.head_channels})
            .set_stride({shape_.length * row, shape_.head_channels, row, 1});
        if (first != nullptr) matrix.set_ragged_offset(first);
    }
    TensorHandle add_matrix(Uid uid, const char* name, std::int64_t heads, std::int64_t row,
                            const TensorHandle& first) {
        TensorAttributes matrix;
        matrix.set_name(name).set_uid(uid);
        lay_out(matrix, heads, row, first);
        return graph_->tensor(matrix);
    }
    void lay_out_log_sums(TensorAttributes& log_sums) const {
        log_sums.set_uid(kLogSums)
            .set_data_type(fe::DataType_t::FLOAT)
            .set_dim({batch(), shape_.heads, shape_.length, 1});
        if (is_of_documents()) {
            log_sums.set_stride({shape_.heads * shape_.length, 1, shape_.heads, 1})
                .set_ragged_offset(first_of_log_sums_);
        } else {
            log_sums.set_stride({shape_.heads * shape_.length, shape_.length, 1, 1});
        }
    }
    template <class Options>
    void set_documents(Options& options) const {
        if (!is_of_documents()) return;
        const std::int64_t rows = shape_.batch * shape_.length;
        options.set_padding_mask(true)
            .set_seq_len_q(lengths_)
            .set_seq_len_kv(lengths_)
            .set_max_total_seq_len_q(rows)
            .set_max_total_seq_len_kv(rows);
    }

    void add_forward() {
        fe::graph::SDPA_attributes options;
        options.set_name("forward").set_generate_stats(true).set_attn_scale(scale_).set_causal_mask(true);
        set_documents(options);
        const auto [out, log_sums] = graph_->sdpa(queries_, keys_, values_, options);
        out->set_output(true).set_uid(kOut);
        lay_out(*out, shape_.heads, out_row(), first_of_out_);
        log_sums->set_output(true);
        lay_out_log_sums(*log_sums);
    }

    // Of whole sequences the gradients go where qkv_gradient has them, which costs no workspace. Of documents it would,
    // several times as much, by cuDNN's frontend 1.32: there each has a tensor of its own.
    void add_backward() {
        const TensorHandle out = add_matrix(kOut, "out", shape_.heads, out_row(), first_of_out_);
        const TensorHandle out_gradient =
            add_matrix(kOutGradient, "out_gradient", shape_.heads, out_row(), first_of_out_);
        TensorAttributes log_sums;
        log_sums.set_name("log_sums");
        lay_out_log_sums(log_sums);
        fe::graph::SDPA_backward_attributes options;
        options.set_name("backward").set_attn_scale(scale_).set_causal_mask(true);
        set_documents(options);
        const auto gradients =
            graph_->sdpa_backward(queries_, keys_, values_, out, out_gradient, graph_->tensor(log_sums), options);
        for (std::size_t i = 0; i < gradients.size(); ++i) {
            const std::int64_t heads = i == 0 ? shape_.heads : shape_.kv_heads;
            gradients[i]->set_output(true).set_uid(kQueryGradient + static_cast<std::int64_t>(i));
            lay_out(*gradients[i], heads, is_of_documents() ? heads * shape_.head_channels : shape_.qkv_columns(),
                    i == 0 ? first_of_out_ : first_of_keys_);
        }
    }

    Sdpa::Kind kind_;
    AttentionShape shape_;
    float scale_;
    std::shared_ptr<Graph> graph_;
    TensorHandle lengths_, first_of_qkv_, first_of_out_, first_of_keys_, first_of_log_sums_;  // null without documents
    TensorHandle queries_, keys_, values_;
};

// "deviceVer" of cuDNN's description of a card is 900 for sm_90.
Result<int> architecture_in(const std::string& description) {
    constexpr std::string_view kName = "\"deviceVer\":";
    const std::size_t name = description.find(kName);
    const std::size_t at = name == std::string::npos ? name : description.find_first_not_of(' ', name + kName.size());
    int version = 0;
    if (at != std::string::npos)
        std::from_chars(description.data() + at, description.data() + description.size(), version);
    if (version < 100) return invalid_argument("card", "the description of a card has no deviceVer");
    return version / 10;
}

struct Plan {
    std::shared_ptr<Graph> graph;
    std::int64_t workspace_bytes = 0;
};

using Key = std::array<std::int64_t, 8>;
Key key_of(const Sdpa::Kind& kind) {
    const AttentionShape& shape = kind.shape;
    return {shape.batch,
            shape.length,
            shape.heads,
            shape.kv_heads,
            shape.head_channels,
            shape.format == DType::kBF16,
            kind.pass == Sdpa::Pass::kBackward,
            kind.places};
}

}  // namespace

struct Sdpa::State {
    cudnnHandle_t handle = nullptr;                    // null: for a card that is not here
    std::shared_ptr<const fe::DeviceProperties> card;  // null: the current GPU
    int architecture = 0;                              // 90 for sm_90
    cudaStream_t current = nullptr;
    std::map<Key, Result<Plan>> plans;

    State() = default;
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    ~State() {
        if (handle != nullptr) static_cast<void>(fe::detail::destroy_handle(handle));
    }

    // Once: while a stream records a graph, the library is asked for its kernels alone.
    Status use(cudaStream_t stream) {
        if (stream == current) return {};
        if (const cudnnStatus_t status = fe::detail::set_stream(handle, stream); status != CUDNN_STATUS_SUCCESS)
            return unavailable(fe::detail::get_error_string(status));
        current = stream;
        return {};
    }

    // From a graph to a kernel, its code made for the card.
    fe::error_t compile(Graph& graph) const {
        if (auto error = graph.validate(); error.is_bad()) return error;
        if (auto error = card != nullptr ? graph.build_operation_graph() : graph.build_operation_graph(handle);
            error.is_bad())
            return error;
        if (auto error = graph.create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK}); error.is_bad())
            return error;
        if (auto error = graph.check_support(); error.is_bad()) return error;
        return graph.build_plans();
    }

    Result<Plan> make_plan(const Kind& kind) const {
        // What it keeps of documents, and its workspace, would be of another size there.
        if (kind.places > 0 && architecture < 90) return unavailable("documents are by cuDNN from sm_90 on");
        Plan plan{.graph = std::make_shared<Graph>()};
        plan.graph->set_sm_version(architecture);
        if (card != nullptr) plan.graph->set_device_properties(card);
        Description(kind, plan.graph);
        auto error = compile(*plan.graph);
        if (error.is_good()) error = plan.graph->get_workspace_size(plan.workspace_bytes);
        if (error.is_bad()) return unavailable("cuDNN has no plan for it: " + error.get_message());
        return plan;
    }

    const Result<Plan>& plan(const Kind& kind) {
        const auto [at, is_new] = plans.try_emplace(key_of(kind), Plan{});
        if (is_new) at->second = without_exceptions([&] { return make_plan(kind); });
        return at->second;
    }
};

Sdpa::Sdpa(std::unique_ptr<State> state) : state_(std::move(state)) {}
Sdpa::~Sdpa() = default;

Result<std::unique_ptr<Sdpa>> Sdpa::open() {
    return without_exceptions([]() -> Result<std::unique_ptr<Sdpa>> {
        ATOLL_RETURN_IF_ERROR(open_library());
        auto state = std::make_unique<State>();
        int device = 0, major = 0, minor = 0;
        must(cudaGetDevice(&device), "the current device");
        must(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "a device's attribute");
        must(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "a device's attribute");
        state->architecture = 10 * major + minor;
        if (const cudnnStatus_t status = fe::detail::create_handle(&state->handle); status != CUDNN_STATUS_SUCCESS)
            return no_library(std::string("cuDNN does not start: ") + fe::detail::get_error_string(status));
        std::unique_ptr<Sdpa> sdpa(new Sdpa(std::move(state)));
        // What lacks NVRTC, or is too old a card, has no plan for anything.
        constexpr AttentionShape kSmall{
            .batch = 1, .length = 128, .heads = 1, .kv_heads = 1, .head_channels = 64, .format = DType::kBF16};
        if (const auto bytes = sdpa->workspace_bytes({kSmall, Pass::kForward}); !bytes.ok())
            return no_library(bytes.error().message);
        return sdpa;
    });
}

Result<std::unique_ptr<Sdpa>> Sdpa::open_for_card(const std::string& description) {
    return without_exceptions([&]() -> Result<std::unique_ptr<Sdpa>> {
        ATOLL_RETURN_IF_ERROR(open_library());
        auto state = std::make_unique<State>();
        ATOLL_TRY(state->architecture, architecture_in(description));
        auto card = std::make_shared<fe::DeviceProperties>();
        if (auto error = card->deserialize({description.begin(), description.end()}); error.is_bad())
            return invalid_argument("card", "cuDNN does not take the description: " + error.get_message());
        state->card = std::move(card);
        return std::unique_ptr<Sdpa>(new Sdpa(std::move(state)));
    });
}

std::string Sdpa::library() const {
    return "cuDNN " + fe::detail::get_backend_version_string();
}

Result<std::int64_t> Sdpa::workspace_bytes(const Kind& kind) {
    const Result<Plan>& plan = state_->plan(kind);
    if (!plan.ok()) return plan.error();
    return plan->workspace_bytes;
}

void Sdpa::run(cudaStream_t stream, const Kind& kind, const Tensors& tensors, std::byte* workspace) {
    const Result<Plan>& plan = state_->plan(kind);
    check(plan.ok() && state_->handle != nullptr, "cuDNN has no attention kernel for this pass");
    const AttentionShape& shape = kind.shape;
    const std::int64_t keys = shape.heads * shape.head_channels, values = keys + shape.kv_heads * shape.head_channels;
    std::unordered_map<std::int64_t, void*> pointers = {{kQueries, tensors.qkv.data()},
                                                        {kKeys, tensors.qkv.at(keys)},
                                                        {kValues, tensors.qkv.at(values)},
                                                        {kOut, tensors.out.data()},
                                                        {kLogSums, tensors.log_sums.data()}};
    if (kind.pass == Pass::kBackward) {
        pointers.insert({{kOutGradient, tensors.out_gradient.data()},
                         {kQueryGradient, tensors.query_gradient.data()},
                         {kKeyGradient, tensors.key_gradient.data()},
                         {kValueGradient, tensors.value_gradient.data()}});
    }
    if (kind.places > 0) {
        pointers.insert({{kLengths, tensors.lengths.data()},
                         {kFirstOfQkv, tensors.first_of_qkv.data()},
                         {kFirstOfOut, tensors.first_of_out.data()},
                         {kFirstOfLogSums, tensors.first_of_log_sums.data()}});
        if (kind.pass == Pass::kBackward) pointers.insert({kFirstOfKeys, tensors.first_of_keys.data()});
    }
    const Status asked = without_exceptions([&]() -> Status {
        ATOLL_RETURN_IF_ERROR(state_->use(stream));
        if (auto error = plan->graph->execute(state_->handle, pointers, workspace); error.is_bad())
            return unavailable(error.get_message());
        return {};
    });
    if (!asked.ok()) check(false, "cuDNN failed: attention: " + asked.error().message);
}

}  // namespace atl::kernels::gpu
