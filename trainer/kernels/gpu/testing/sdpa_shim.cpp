// The stand-in for attention's library: the definition in fp64, of what lies in device memory. It takes what cuDNN
// takes, and spoils all of its workspace.

#include "trainer/kernels/gpu/testing/sdpa_shim.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "shared/numeric/float16.h"
#include "trainer/kernels/gpu/sdpa.h"

namespace atl::kernels::gpu {
namespace {

bool has_library = true, has_documents = true;
std::int64_t passes = 0;
std::int64_t bytes_of_one_sequence = 0;

constexpr std::int64_t kChannelsMax = 128;

// A half format's elements by their numbers.
class Halves {
  public:
    explicit Halves(const Tensor& tensor)
        : data_(static_cast<std::uint16_t*>(tensor.data())), is_bf16_(tensor.dtype() == tensor::DType::kBF16) {}
    double operator[](std::int64_t at) const {
        return static_cast<double>(is_bf16_ ? numeric::widen_bf16(data_[at]) : numeric::widen_f16(data_[at]));
    }
    void store(std::int64_t at, double value) const {
        const auto narrow = static_cast<float>(value);
        data_[at] = is_bf16_ ? numeric::narrow_bf16(narrow) : numeric::narrow_f16(narrow);
    }

  private:
    std::uint16_t* data_;
    bool is_bf16_;
};

// A query of a head: where it, the first key and value that it sees, its row of out and its log-sum are.
struct Query {
    std::int64_t at, keys_at, values_at, out_at, log_sum_at, keys;
};

class Definition {
  public:
    Definition(const Sdpa::Kind& kind, const Sdpa::Tensors& tensors)
        : s_(kind.shape), places_(kind.places), t_(tensors), qkv_(tensors.qkv), out_(tensors.out) {}

    void forward() const {
        for_each_query([&](const Query& query) {
            std::vector<double> weights = scores(query);
            const double largest = *std::ranges::max_element(weights);
            double total = 0;
            for (double& weight : weights) total += weight = std::exp(weight - largest);
            for (std::int64_t c = 0; c < s_.head_channels; ++c) {
                double sum = 0;
                for (std::int64_t key = 0; key < query.keys; ++key)
                    sum += weights[static_cast<std::size_t>(key)] * qkv_[query.values_at + key * row() + c];
                out_.store(query.out_at + c, sum / total);
            }
            t_.log_sums.f32()[query.log_sum_at] = static_cast<float>(largest + std::log(total));
        });
    }

    void backward() const {
        std::vector<double> sums(static_cast<std::size_t>(s_.batch * s_.length * row()));
        for_each_query([&](const Query& query) { add_gradients(query, sums.data()); });
        const std::int64_t queries = s_.heads * s_.head_channels, keys = s_.kv_heads * s_.head_channels;
        store(sums, 0, queries, t_.query_gradient);
        store(sums, queries, keys, t_.key_gradient);
        store(sums, queries + keys, keys, t_.value_gradient);
    }

  private:
    std::int64_t row() const { return s_.qkv_columns(); }
    double factor() const { return 1 / std::sqrt(static_cast<double>(s_.head_channels)); }

    // The sums of some columns into a matrix of as many, which may be part of a wider one.
    void store(const std::vector<double>& sums, std::int64_t first, std::int64_t columns, const Tensor& into) const {
        const Halves to(into);
        for (std::int64_t r = 0; r < s_.batch * s_.length; ++r) {
            for (std::int64_t c = 0; c < columns; ++c)
                to.store(r * into.row_stride() + c, sums[static_cast<std::size_t>(r * row() + first + c)]);
        }
    }

    // A sequence or a document, and where it begins in each tensor.
    struct Span {
        std::int64_t length, qkv, out, log_sums, log_sums_a_head, log_sums_a_query;
    };
    Span span(std::int64_t number) const {
        if (places_ == 0)
            return {s_.length,
                    number * s_.length * row(),
                    number * s_.length * s_.heads * s_.head_channels,
                    number * s_.heads * s_.length,
                    s_.length,
                    1};
        const std::int64_t keys = s_.kv_heads * s_.head_channels;
        check(t_.first_of_keys.i32()[number] * row() == t_.first_of_qkv.i32()[number] * keys,
              "a document begins at different rows");
        return {t_.lengths.i32()[number],
                t_.first_of_qkv.i32()[number],
                t_.first_of_out.i32()[number],
                t_.first_of_log_sums.i32()[number],
                1,
                s_.heads};
    }
    void for_each_query(const auto& body) const {
        for (std::int64_t number = 0; number < (places_ == 0 ? s_.batch : places_); ++number) {
            const Span in = span(number);
            for (std::int64_t h = 0; h < s_.heads; ++h) {
                const std::int64_t keys_at = in.qkv + (s_.heads + h / (s_.heads / s_.kv_heads)) * s_.head_channels;
                for (std::int64_t t = 0; t < in.length; ++t) {
                    body(Query{.at = in.qkv + t * row() + h * s_.head_channels,
                               .keys_at = keys_at,
                               .values_at = keys_at + s_.kv_heads * s_.head_channels,
                               .out_at = in.out + (t * s_.heads + h) * s_.head_channels,
                               .log_sum_at = in.log_sums + h * in.log_sums_a_head + t * in.log_sums_a_query,
                               .keys = t + 1});
                }
            }
        }
    }
    std::vector<double> scores(const Query& query) const {
        std::vector<double> scores;
        for (std::int64_t key = 0; key < query.keys; ++key) {
            double sum = 0;
            for (std::int64_t c = 0; c < s_.head_channels; ++c)
                sum += qkv_[query.at + c] * qkv_[query.keys_at + key * row() + c];
            scores.push_back(sum * factor());
        }
        return scores;
    }
    void add_gradients(const Query& query, double* sums) const {
        const Halves out_gradient(t_.out_gradient);
        const double log_sum = static_cast<double>(t_.log_sums.f32()[query.log_sum_at]);
        double common = 0;
        for (std::int64_t c = 0; c < s_.head_channels; ++c)
            common += out_gradient[query.out_at + c] * out_[query.out_at + c];
        const std::vector<double> of_query = scores(query);
        for (std::int64_t key = 0; key < query.keys; ++key) {
            const std::int64_t key_at = query.keys_at + key * row(), value_at = query.values_at + key * row();
            const double p = std::exp(of_query[static_cast<std::size_t>(key)] - log_sum);
            double of_p = 0;
            for (std::int64_t c = 0; c < s_.head_channels; ++c) {
                of_p += out_gradient[query.out_at + c] * qkv_[value_at + c];
                sums[value_at + c] += p * out_gradient[query.out_at + c];
            }
            const double of_score = p * (of_p - common) * factor();
            for (std::int64_t c = 0; c < s_.head_channels; ++c) {
                sums[query.at + c] += of_score * qkv_[key_at + c];
                sums[key_at + c] += of_score * qkv_[query.at + c];
            }
        }
    }

    AttentionShape s_;
    std::int64_t places_;
    Sdpa::Tensors t_;
    Halves qkv_, out_;
};

}  // namespace

struct Sdpa::State {};

Sdpa::Sdpa(std::unique_ptr<State> state) : state_(std::move(state)) {}
Sdpa::~Sdpa() = default;

Result<std::unique_ptr<Sdpa>> Sdpa::open() {
    if (!has_library) return unavailable("libattention.so is not here; install it");
    return std::unique_ptr<Sdpa>(new Sdpa(nullptr));
}

std::string Sdpa::library() const {
    return "attention in fp64";
}

// Sums in fp32 for the gradients of queries.
Result<std::int64_t> Sdpa::workspace_bytes(const Kind& kind) {
    const AttentionShape& shape = kind.shape;
    check(shape.format != tensor::DType::kF32 && shape.head_channels % 8 == 0,
          "the library is asked for what none has");
    if (shape.head_channels > kChannelsMax) return unavailable("heads have at most 128 channels");
    if (kind.places > 0 && !has_documents) return unavailable("documents have no kernel");
    if (kind.pass == Pass::kForward) return 0;
    return tensor::size_bytes(tensor::DType::kF32, shape.batch * shape.length * shape.heads * shape.head_channels) +
           (shape.batch == 1 ? bytes_of_one_sequence : 0);
}

void Sdpa::run(cudaStream_t stream, const Kind& kind, const Tensors& tensors, std::byte* workspace) {
    const std::int64_t bytes = workspace_bytes(kind).value();
    check(reinterpret_cast<std::uintptr_t>(workspace) % kSdpaWorkspaceAlignment == 0, "the workspace is not aligned");
    must(shim::enqueue(stream,
                       [=] {
                           ++passes;
                           if (bytes > 0) std::memset(workspace, 0xFF, static_cast<std::size_t>(bytes));
                           const Definition definition(kind, tensors);
                           kind.pass == Pass::kForward ? definition.forward() : definition.backward();
                       }),
         "attention");
}

namespace shim {

void set_has_sdpa(bool has) {
    has_library = has;
}

void set_has_sdpa_of_documents(bool has) {
    has_documents = has;
}

std::int64_t sdpa_passes() {
    return passes;
}

void set_sdpa_bytes_of_one_sequence(std::int64_t more) {
    bytes_of_one_sequence = more;
}

}  // namespace shim
}  // namespace atl::kernels::gpu
