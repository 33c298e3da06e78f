#include "trainer/train/self_check.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "trainer/model/initialize.h"
#include "trainer/parallel/run_memory.h"
#include "trainer/reference/reference_model.h"
#include "trainer/weights/storage.h"

namespace atl::train {
namespace {

using tensor::DType;

struct TinyModel {
    const char* prefix;  // of its checks' names
    const char* config;
    model::BatchShape rows = {2, 17};
    std::int64_t first_document = 6;  // tokens
    DType format = DType::kF32;       // of weights and of all that is computed
    // No document's end predicts the next one's begin.
    double targets() const { return static_cast<double>(rows.batch * (rows.length - 1) - 1); }
};
constexpr TinyModel kLlama = {"", R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 61,
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "hidden_act": "silu", "initializer_range": 0.2, "tie_word_embeddings": false})"};
// With what Llama lacks: norms of heads and biases.
constexpr TinyModel kQwen3 = {"qwen3: ", R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
    "vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 10, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
    "attention_bias": true, "rope_theta": 100.0, "hidden_act": "silu", "initializer_range": 0.2,
    "tie_word_embeddings": true})"};
// In what GPUs compute in, of sizes that kernels for tensor cores take: heads of 128 channels over many tokens.
constexpr TinyModel kBf16 = {.prefix = "bf16: ",
                             .config = R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
    "vocab_size": 61, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 128, "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "hidden_act": "silu", "initializer_range": 0.2, "tie_word_embeddings": false})",
                             .rows = {1, 256},
                             .first_document = 100,
                             .format = DType::kBF16};
constexpr double kLossTolerance = 1e-6, kGradientTolerance = 1e-5;  // relative, of each parameter
// In bf16 each error depends on where a device rounds, so it is held to that of the CPU's plainest kernels. The
// roundings of FlashAttention-2 make it up to 1.14 times as large.
constexpr double kBf16LossTolerance = 1e-3, kBf16WorseMax = 1.5, kBf16ErrorMax = 0.05;

std::vector<float> random_values(std::mt19937& random, std::int64_t count) {
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<std::size_t>(count));
    std::ranges::generate(values, [&] { return normal(random); });
    return values;
}

// What check_matmul multiplies: op(a) [m, k] · op(b) [k, n], added to what is there or not.
struct Product {
    std::int64_t m;
    std::int64_t n;
    std::int64_t k;
    bool transpose_a = false;
    bool transpose_b = false;
    bool accumulate = false;
    DType format = DType::kF32;  // of a and b; the sums are fp32

    // A GPU's instructions for bf16 add what a block of the depth gives with fewer digits than fp32 has.
    double tolerance() const { return format == DType::kF32 ? 1e-6 : 1e-5; }
    std::string name() const {
        return (format == DType::kF32 ? "matmul " : "bf16 matmul ") + std::to_string(m) + "x" + std::to_string(n) +
               "x" + std::to_string(k) + (transpose_a ? ", first transposed" : "") +
               (transpose_b ? ", second transposed" : "") + (accumulate ? ", added" : "");
    }
};

constexpr float kBefore = 3.0F;  // in every element of the output

// As the format keeps them.
std::vector<float> rounded(std::vector<float> values, DType format) {
    std::vector<std::byte> bytes(
        static_cast<std::size_t>(tensor::size_bytes(format, static_cast<std::int64_t>(values.size()))));
    const weights::DType kept = weights::file_dtype(format);
    check(weights::narrow(kept, values, bytes) && weights::widen(kept, bytes, values), "a value is beyond the format");
    return values;
}

void write_values(const std::vector<float>& values, const tensor::Tensor& to, kernels::Backend& backend) {
    check(weights::store_values(values, to, backend), "a value is beyond the format");
}

std::vector<float> transposed(const std::vector<float>& matrix, std::int64_t rows, std::int64_t columns) {
    std::vector<float> out(matrix.size());
    for (std::int64_t i = 0; i < rows * columns; ++i) {
        out[static_cast<std::size_t>(i % columns * rows + i / columns)] = matrix[static_cast<std::size_t>(i)];
    }
    return out;
}

// ‖c − exact‖ / ‖exact‖ in fp64, for a [m, k] and b [k, n].
double product_error(const Product& product, const std::vector<float>& a, const std::vector<float>& b,
                     const std::vector<float>& c) {
    double error = 0;
    double size = 0;
    std::vector<double> row(static_cast<std::size_t>(product.n));
    for (std::int64_t i = 0; i < product.m; ++i) {
        std::ranges::fill(row, product.accumulate ? static_cast<double>(kBefore) : 0.0);
        for (std::int64_t j = 0; j < product.k; ++j) {
            const double factor = a[static_cast<std::size_t>(i * product.k + j)];
            const float* const from = b.data() + j * product.n;
            for (std::size_t l = 0; l < row.size(); ++l) row[l] += factor * from[l];
        }
        for (std::size_t l = 0; l < row.size(); ++l) {
            error += std::pow(c[static_cast<std::size_t>(i * product.n) + l] - row[l], 2);
            size += row[l] * row[l];
        }
    }
    return std::sqrt(error / size);
}

Result<CheckResult> check_matmul(kernels::Backend& backend, const Product& product) {
    const auto& [m, n, k, transpose_a, transpose_b, accumulate, format] = product;
    std::mt19937 random(7);
    const std::vector<float> a = rounded(random_values(random, m * k), format);
    const std::vector<float> b = rounded(random_values(random, k * n), format);
    ATOLL_TRY(tensor::Memory memory, backend.allocate((m * k + k * n + m * n) * 4 + 3 * tensor::kAlignmentBytes));
    tensor::Arena arena(std::move(memory));
    const auto matrix = [&](DType dtype, std::int64_t rows, std::int64_t columns) {
        return arena.allocate(tensor::Category::kWorkspace, dtype, {rows, columns});
    };
    const tensor::Tensor device_a = transpose_a ? matrix(format, k, m) : matrix(format, m, k);
    const tensor::Tensor device_b = transpose_b ? matrix(format, n, k) : matrix(format, k, n);
    const tensor::Tensor device_c = matrix(DType::kF32, m, n);
    std::vector<float> c(static_cast<std::size_t>(m * n), kBefore);
    write_values(transpose_a ? transposed(a, m, k) : a, device_a, backend);
    write_values(transpose_b ? transposed(b, k, n) : b, device_b, backend);
    backend.copy_from_host(c.data(), device_c);
    backend.synchronize();
    backend.matmul(device_a, transpose_a, device_b, transpose_b, device_c, accumulate);
    backend.copy_to_host(device_c, c.data());
    return CheckResult{product.name(), product_error(product, a, b, c), product.tolerance()};
}

// Products of one tile, and one of several tiles and blocks of the depth, in every transposition; in bf16 those of a
// linear's forward pass and of its gradients, and one of odd sizes.
std::vector<Product> products() {
    std::vector<Product> all;
    for (const std::int64_t side : {1, 17, 64, 129}) all.push_back({side, side + 2, 2 * side + 1});
    for (const int way : {0, 1, 2, 3, 4, 5, 6, 7}) {
        all.push_back({301, 290, 523, (way & 1) != 0, (way & 2) != 0, (way & 4) != 0});
    }
    all.push_back({256, 192, 512, false, true, false, DType::kBF16});
    all.push_back({256, 192, 512, false, false, false, DType::kBF16});
    all.push_back({256, 192, 512, true, false, true, DType::kBF16});
    all.push_back({301, 290, 523, false, true, false, DType::kBF16});
    return all;
}

std::span<const float> part(const std::vector<float>& unit, const model::Parameter& parameter) {
    return std::span(unit).subspan(static_cast<std::size_t>(parameter.offset),
                                   static_cast<std::size_t>(parameter.element_count()));
}

// A tiny model with random weights and one batch of random tokens, of whose rows the first has two documents.
class TinyRun {
  public:
    static Result<std::unique_ptr<TinyRun>> make(kernels::Backend& backend, const TinyModel& tiny) {
        ATOLL_TRY(const model::ModelConfig config, model_config::parse_config(tiny.config));
        model::Model model = model::make_model(config);
        model.use_formats({.weights = tiny.format, .activations = tiny.format, .residual = tiny.format, .masters = {}});
        std::unique_ptr<TinyRun> run(new TinyRun(backend, std::move(model), tiny));
        parallel::RunMemoryOptions options;
        options.engine.largest = tiny.rows;
        options.optimizer = &run->optimizer_;
        ATOLL_TRY(run->memory_, parallel::RunMemory::allocate(backend, run->model_, options));
        run->fill();
        return run;
    }

    const model::Model& model() const { return model_; }
    model::HostBatch rows() const { return {tiny_.rows, ids_, {}, documents_}; }
    // In fp64, by name.
    std::map<std::string, reference::Matrix> parameters() const {
        std::map<std::string, reference::Matrix> all;
        for (std::size_t unit = 0; unit < weights_.size(); ++unit)
            for (const model::Parameter& parameter : model_.units[unit].parameters) {
                const bool is_vector = parameter.shape.size() == 1;
                reference::Matrix value(is_vector ? 1 : parameter.shape[0], parameter.shape.back());
                std::ranges::copy(part(weights_[unit], parameter), value.values.begin());
                all.emplace(parameter.name, std::move(value));
            }
        return all;
    }

    // The mean loss of the batch; with its gradient in gradients().
    double loss() {
        memory_->engine().weights_changed();
        const tensor::Tensor sum = memory_->scalars().loss();
        const double targets = tiny_.targets();
        memory_->engine().train(backend_, ranks_, memory_->batch().batch(),
                                {.gradient_scale = static_cast<float>(1.0 / targets), .loss_sum = sum});
        return parallel::read_scalar(backend_, sum) / targets;
    }
    std::vector<float> gradients(std::size_t unit) {
        std::vector<float> values(static_cast<std::size_t>(model_.units[unit].element_count));
        backend_.copy_to_host(parallel::flat_range(memory_->store().gradients(unit), 0, count(unit)), values.data());
        return values;
    }

  private:
    TinyRun(kernels::Backend& backend, model::Model model, const TinyModel& tiny)
        : backend_(backend), model_(std::move(model)), tiny_(tiny) {}

    std::int64_t count(std::size_t unit) const { return model_.units[unit].element_count; }

    void fill() {
        for (std::size_t unit = 0; unit < model_.units.size(); ++unit) {
            std::vector<float>& values = weights_.emplace_back(static_cast<std::size_t>(count(unit)));
            for (const model::Parameter& parameter : model_.units[unit].parameters) {
                model::initialize(parameter, 1, 0,
                                  std::span(values).subspan(static_cast<std::size_t>(parameter.offset),
                                                            static_cast<std::size_t>(parameter.element_count())));
            }
            values = rounded(std::move(values), tiny_.format);
            write_values(values, parallel::flat_range(memory_->store().weights(unit), 0, count(unit)), backend_);
        }
        std::mt19937 random(3);
        for (std::int32_t& id : ids_) id = static_cast<std::int32_t>(random() % 61);
        std::fill_n(documents_.begin(), tiny_.first_document, 1);
        const auto loaded = memory_->batch().load(backend_, rows());
        check(loaded.ok(), "the tiny batch does not load");
    }

    kernels::Backend& backend_;
    model::Model model_;
    TinyModel tiny_;
    std::vector<std::vector<float>> weights_;  // of each unit
    std::vector<std::int32_t> ids_ = std::vector<std::int32_t>(static_cast<std::size_t>(tiny_.rows.tokens()));
    std::vector<std::int32_t> documents_ = ids_;
    optim::Optimizer optimizer_{optim::OptimizerKind::kSgd};
    std::unique_ptr<comm::Comm> self_ = comm::make_self();
    parallel::ProcessGroups ranks_{*self_, {}, backend_};
    std::unique_ptr<parallel::RunMemory> memory_;
};

// ‖ours − wanted‖ / ‖wanted‖.
double relative_error(std::span<const float> ours, const std::vector<double>& wanted) {
    double error = 0;
    double size = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        error += std::pow(static_cast<double>(ours[i]) - wanted[i], 2);
        size += wanted[i] * wanted[i];
    }
    return std::sqrt(error / size);
}

// The loss and each parameter's gradient in fp64.
struct Exact {
    double loss = 0;
    std::map<std::string, reference::Matrix> gradients;

    explicit Exact(const TinyRun& run) {
        reference::ReferenceModel reference(run.model().config, run.parameters());
        loss = reference.loss_and_gradients(run.rows());
        gradients = reference.gradients();
    }
};

// The loss, and each parameter's gradient, which an error in it of any direction moves by its own size.
std::vector<CheckResult> check_gradients(TinyRun& run, const Exact& exact, const std::string& prefix) {
    std::vector<CheckResult> results = {
        {prefix + "loss", std::abs(run.loss() - exact.loss) / exact.loss, kLossTolerance}};
    for (std::size_t unit = 0; unit < run.model().units.size(); ++unit) {
        const std::vector<float> gradients = run.gradients(unit);
        for (const model::Parameter& parameter : run.model().units[unit].parameters)
            results.push_back({prefix + "gradient of " + parameter.name,
                               relative_error(part(gradients, parameter), exact.gradients.at(parameter.name).values),
                               kGradientTolerance});
    }
    return results;
}

Result<std::vector<CheckResult>> check_in_fp32(kernels::Backend& backend, const TinyModel& tiny) {
    ATOLL_TRY(const auto run, TinyRun::make(backend, tiny));
    return check_gradients(*run, Exact(*run), tiny.prefix);
}

Result<std::vector<CheckResult>> check_in_bf16(kernels::Backend& backend) {
    ATOLL_TRY(const auto cpu, kernels::make_cpu_backend(1, kernels::cpu_instruction_sets().back()));
    ATOLL_TRY(const auto plain, TinyRun::make(*cpu, kBf16));
    ATOLL_TRY(const auto run, TinyRun::make(backend, kBf16));
    const Exact exact(*run);
    const std::vector<CheckResult> of_cpu = check_gradients(*plain, exact, kBf16.prefix);
    std::vector<CheckResult> results = check_gradients(*run, exact, kBf16.prefix);
    results[0].tolerance = kBf16LossTolerance;
    for (std::size_t i = 1; i < results.size(); ++i)
        results[i].tolerance = std::min(kBf16WorseMax * of_cpu[i].error, kBf16ErrorMax);
    return results;
}

}  // namespace

Status check_backend(kernels::Backend& backend, const std::function<void(const CheckResult&)>& report) {
    int failures = 0;
    const auto tell = [&](const CheckResult& result) {
        failures += result.ok() ? 0 : 1;
        report(result);
    };
    for (const Product& product : products()) {
        ATOLL_TRY(const CheckResult result, check_matmul(backend, product));
        tell(result);
    }
    for (const TinyModel& tiny : {kLlama, kQwen3, kBf16}) {
        ATOLL_TRY(const auto results,
                  tiny.format == DType::kF32 ? check_in_fp32(backend, tiny) : check_in_bf16(backend));
        for (const CheckResult& result : results) tell(result);
    }
    if (failures == 0) return {};
    return internal_error(std::to_string(failures) + " checks of " + backend.name() +
                          " failed: this machine computes wrong numbers");
}

}  // namespace atl::train
