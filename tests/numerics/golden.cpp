#include "tests/numerics/golden.h"

#include <algorithm>
#include <cmath>
#include <cstring>

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

}  // namespace

Golden::Golden(const std::string& name, const std::string& family)
    : file_(safetensors::File::open(folder(name, family) + "/golden.safetensors").value()),
      config_(model::load_config(folder(name, family)).value()),
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

model::BatchRows Golden::rows() const {
    return {.shape = shape_, .input_ids = input_ids_, .labels = labels_, .segment_ids = segment_ids_};
}

model::ResidentModel Golden::load(kernels::Backend& backend,
                                  const std::function<void(model::ModelConfig&)>& change) const {
    model::ModelConfig config = config_;
    if (change) change(config);
    model::ResidentModel resident(model::make_model(config).value(), backend);
    for (const std::string& name : names("weight:")) {
        const std::vector<float> values = floats("weight:" + name);
        const auto weight = resident.weight(name);
        check(weight.size() == values.size(), "the golden's parameter " + name + " is not the model's");
        std::copy(values.begin(), values.end(), weight.begin());
    }
    return resident;
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
