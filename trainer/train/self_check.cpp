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

namespace atl::train {
namespace {

struct TinyModel {
    const char* prefix;  // of its checks' names
    const char* config;
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
constexpr std::int64_t kRows = 2;
constexpr std::int64_t kLength = 17;
constexpr double kGradientTolerance = 1e-5;  // relative, of each parameter

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

    std::string name() const {
        return "matmul " + std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) +
               (transpose_a ? ", first transposed" : "") + (transpose_b ? ", second transposed" : "") +
               (accumulate ? ", added" : "");
    }
};

constexpr float kBefore = 3.0F;  // in every element of the output

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
    const auto& [m, n, k, transpose_a, transpose_b, accumulate] = product;
    std::mt19937 random(7);
    const std::vector<float> a = random_values(random, m * k);
    const std::vector<float> b = random_values(random, k * n);
    ATOLL_TRY(tensor::Memory memory, backend.allocate((m * k + k * n + m * n) * 4 + 3 * tensor::kAlignmentBytes));
    tensor::Arena arena(std::move(memory));
    const auto matrix = [&](std::int64_t rows, std::int64_t columns) {
        return arena.allocate(tensor::Category::kWorkspace, tensor::DType::kF32, {rows, columns});
    };
    const tensor::Tensor device_a = transpose_a ? matrix(k, m) : matrix(m, k);
    const tensor::Tensor device_b = transpose_b ? matrix(n, k) : matrix(k, n);
    const tensor::Tensor device_c = matrix(m, n);
    std::vector<float> c(static_cast<std::size_t>(m * n), kBefore);
    backend.copy_from_host((transpose_a ? transposed(a, m, k) : a).data(), device_a);
    backend.copy_from_host((transpose_b ? transposed(b, k, n) : b).data(), device_b);
    backend.copy_from_host(c.data(), device_c);
    backend.synchronize();
    backend.matmul(device_a, transpose_a, device_b, transpose_b, device_c, accumulate);
    backend.copy_to_host(device_c, c.data());
    return CheckResult{product.name(), product_error(product, a, b, c), 1e-6};
}

// Products of one tile, and one of several tiles and blocks of the depth, in every transposition.
std::vector<Product> products() {
    std::vector<Product> all;
    for (const std::int64_t side : {1, 17, 64, 129}) all.push_back({side, side + 2, 2 * side + 1});
    for (const int way : {0, 1, 2, 3, 4, 5, 6, 7}) {
        all.push_back({301, 290, 523, (way & 1) != 0, (way & 2) != 0, (way & 4) != 0});
    }
    return all;
}

std::span<const float> part(const std::vector<float>& unit, const model::Parameter& parameter) {
    return std::span(unit).subspan(static_cast<std::size_t>(parameter.offset),
                                   static_cast<std::size_t>(parameter.element_count()));
}

// A tiny model with random weights and one batch of random tokens, of whose rows the first has two documents.
class TinyRun {
  public:
    static Result<std::unique_ptr<TinyRun>> make(kernels::Backend& backend, const char* config_text) {
        ATOLL_TRY(const model::ModelConfig config, model::parse_config(config_text));
        std::unique_ptr<TinyRun> run(new TinyRun(backend, model::make_model(config)));
        parallel::RunMemoryOptions options;
        options.engine.largest = {kRows, kLength};
        options.optimizer = &run->optimizer_;
        ATOLL_TRY(run->memory_, parallel::RunMemory::allocate(backend, run->model_, options));
        run->fill();
        return run;
    }

    const model::Model& model() const { return model_; }
    model::HostBatch rows() const { return {{kRows, kLength}, ids_, {}, documents_}; }
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
        memory_->engine().train(backend_, ranks_, memory_->batch().batch(),
                                {.gradient_scale = 1.0F / kTargets, .loss_sum = sum});
        return parallel::read_scalar(backend_, sum) / kTargets;
    }
    std::vector<float> gradients(std::size_t unit) {
        std::vector<float> values(static_cast<std::size_t>(model_.units[unit].element_count));
        backend_.copy_to_host(parallel::flat_range(memory_->store().gradients(unit), 0, count(unit)), values.data());
        return values;
    }

  private:
    static constexpr std::int64_t kFirstDocument = 6;              // tokens
    static constexpr double kTargets = kRows * (kLength - 1) - 1;  // no document's end predicts the next one's begin

    TinyRun(kernels::Backend& backend, model::Model model) : backend_(backend), model_(std::move(model)) {}

    std::int64_t count(std::size_t unit) const { return model_.units[unit].element_count; }

    void fill() {
        for (std::size_t unit = 0; unit < model_.units.size(); ++unit) {
            std::vector<float>& values = weights_.emplace_back(static_cast<std::size_t>(count(unit)));
            for (const model::Parameter& parameter : model_.units[unit].parameters) {
                model::initialize(parameter, 1, 0,
                                  std::span(values).subspan(static_cast<std::size_t>(parameter.offset),
                                                            static_cast<std::size_t>(parameter.element_count())));
            }
            backend_.copy_from_host(values.data(),
                                    parallel::flat_range(memory_->store().weights(unit), 0, count(unit)));
        }
        std::mt19937 random(3);
        for (std::int32_t& id : ids_) id = static_cast<std::int32_t>(random() % 61);
        std::fill_n(documents_.begin(), kFirstDocument, 1);
        const auto loaded = memory_->batch().load(backend_, rows());
        check(loaded.ok(), "the tiny batch does not load");
    }

    kernels::Backend& backend_;
    model::Model model_;
    std::vector<std::vector<float>> weights_;  // of each unit
    std::vector<std::int32_t> ids_ = std::vector<std::int32_t>(kRows * kLength);
    std::vector<std::int32_t> documents_ = std::vector<std::int32_t>(kRows * kLength);
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

// The loss, and each parameter's gradient, which an error in it of any direction moves by its own size.
std::vector<CheckResult> check_gradients(TinyRun& run, const std::string& prefix) {
    const double loss = run.loss();
    reference::ReferenceModel reference(run.model().config, run.parameters());
    const double wanted = reference.loss_and_gradients(run.rows());
    std::vector<CheckResult> results = {{prefix + "loss", std::abs(loss - wanted) / wanted, 1e-6}};
    for (std::size_t unit = 0; unit < run.model().units.size(); ++unit) {
        const std::vector<float> gradients = run.gradients(unit);
        for (const model::Parameter& parameter : run.model().units[unit].parameters)
            results.push_back(
                {prefix + "gradient of " + parameter.name,
                 relative_error(part(gradients, parameter), reference.gradients().at(parameter.name).values),
                 kGradientTolerance});
    }
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
    for (const TinyModel& tiny : {kLlama, kQwen3}) {
        ATOLL_TRY(const auto run, TinyRun::make(backend, tiny.config));
        for (const CheckResult& result : check_gradients(*run, tiny.prefix)) tell(result);
    }
    if (failures == 0) return {};
    return internal_error(std::to_string(failures) + " checks of " + backend.name() +
                          " failed: this machine computes wrong numbers");
}

}  // namespace atl::train
