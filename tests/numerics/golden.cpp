#include "tests/numerics/golden.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>

namespace atl::numerics {
namespace {

std::string folder(const std::string& name, const std::string& family) {
    return std::string(ATOLL_GOLDEN_DIR) + "/" + family + "/" + name;
}

template <class T>
std::vector<T> read(const safetensors::File& file, const std::string& name) {
    const safetensors::TensorInfo* const tensor = file.header().find(name);
    if (tensor == nullptr) return {};
    const auto bytes = file.bytes(*tensor);
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
}

// That of golden_tiles.py.
std::vector<float> formula_weight(std::string_view name, std::int64_t count) {
    std::vector<float> weight(static_cast<std::size_t>(count));
    const bool around_one = name.find("norm") != std::string_view::npos && name.ends_with("weight");
    const std::uint64_t seed = seed_of(name);
    for (std::size_t i = 0; i < weight.size(); ++i) {
        const auto value = static_cast<float>(mixed(seed, i) >> 48) / (1 << 19) - 0.0625F;
        weight[i] = around_one ? value + 1 : value;
    }
    return weight;
}

}  // namespace

Golden::Golden(const std::string& name, const std::string& family)
    : file_(safetensors::File::open(folder(name, family) + "/golden.safetensors").value()),
      config_(model_config::load_config(folder(name, family)).value()),
      input_ids_(integers("input_ids")),
      labels_(integers("labels")),
      segment_ids_(integers("segment_ids")) {
    const auto& shape = file_.header().find("input_ids")->shape;
    shape_ = {shape[0], shape[1]};
}

std::vector<float> Golden::floats(const std::string& tensor) const {
    return read<float>(file_, tensor);
}

std::vector<std::int32_t> Golden::integers(const std::string& tensor) const {
    return read<std::int32_t>(file_, tensor);
}

std::vector<std::string> Golden::names(const std::string& prefix) const {
    std::vector<std::string> names;
    for (const auto& tensor : file_.header().tensors) {
        if (tensor.name.starts_with(prefix)) names.push_back(tensor.name.substr(prefix.size()));
    }
    return names;
}

double Golden::gradient_error(const std::string& name, std::span<const float> gradient) const {
    const std::vector<float> golden = floats("gradient:" + name);
    if (golden.size() == gradient.size()) return relative_l2(gradient, golden);
    return relative_l2(sketch(name, gradient, golden.size()), golden);
}

model::HostBatch Golden::rows() const {
    return {.shape = shape_, .input_ids = input_ids_, .labels = labels_, .segment_ids = segment_ids_};
}

std::map<std::string, std::vector<float>> Golden::weights() const {
    std::map<std::string, std::vector<float>> weights;
    for (const std::string& name : names("weight:")) weights.emplace(name, floats("weight:" + name));
    if (!weights.empty()) return weights;
    for (const model::FsdpUnit& unit : model::make_model(config_).units) {
        for (const model::Parameter& parameter : unit.parameters)
            weights.emplace(parameter.name, formula_weight(parameter.name, parameter.element_count()));
    }
    return weights;
}

std::unique_ptr<EngineModel> Golden::load(kernels::Backend& backend, const LoadOptions& options) const {
    model::ModelConfig config = config_;
    if (options.change) options.change(config);
    auto loaded = std::make_unique<EngineModel>(model::make_model(config), shape_, backend, options.checkpointing);
    for (const auto& [name, values] : weights()) loaded->set_weight(name, values);
    return loaded;
}

bool has_tiles(std::string_view backend) {
    const std::vector<std::string> sets = kernels::cpu_instruction_sets();
    return std::ranges::find(sets, backend) != sets.end();
}

std::uint64_t mixed(std::uint64_t seed, std::uint64_t index) {
    std::uint64_t z = seed + (index + 1) * 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
}

std::uint64_t seed_of(std::string_view name) {
    std::uint64_t hash = 0xCBF29CE484222325;
    for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
    return hash;
}

std::vector<float> sketch(const std::string& name, std::span<const float> tensor, std::size_t buckets) {
    std::vector<double> sums(buckets);
    const std::uint64_t seed = seed_of("sketch of " + name);
    for (std::size_t i = 0; i < tensor.size(); ++i) {
        const std::uint64_t random = mixed(seed, i);
        const auto value = static_cast<double>(tensor[i]);
        sums[random % buckets] += random >> 63 != 0 ? -value : value;
    }
    return {sums.begin(), sums.end()};
}

double relative_l2(std::span<const float> a, std::span<const float> b) {
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < b.size(); ++i) {
        const double delta = static_cast<double>(a[i]) - static_cast<double>(b[i]);
        difference += delta * delta;
        size += static_cast<double>(b[i]) * static_cast<double>(b[i]);
    }
    return std::sqrt(difference / std::max(size, 1e-300));
}

}  // namespace atl::numerics
