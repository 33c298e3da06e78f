#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shared/safetensors/file.h"
#include "tests/numerics/engine_model.h"
#include "trainer/kernels/testing/worse.h"

namespace atl::numerics {

using kernels::worse;

struct LoadOptions {
    std::function<void(model::ModelConfig&)> change = {};  // by a control, of the configuration
    parallel::Checkpointing checkpointing = {};
};

// One case of goldens/FAMILY, as tests/numerics/make_FAMILY_goldens.py wrote it.
class Golden {
  public:
    explicit Golden(const std::string& name, const std::string& family = "llama");

    const model::ModelConfig& config() const { return config_; }
    std::vector<float> floats(const std::string& tensor) const;
    std::vector<std::int32_t> integers(const std::string& tensor) const;  // empty if absent
    std::vector<std::string> names(const std::string& prefix) const;      // of tensors, without the prefix
    // The relative_l2() of a parameter's gradient to the golden one, or of their sketches (golden_tiles.py).
    double gradient_error(const std::string& name, std::span<const float> gradient) const;

    // The batch; spans point into this object.
    model::HostBatch rows() const;
    // The model with the golden weights, or those of golden_tiles.py's formula, for rows().
    std::unique_ptr<EngineModel> load(kernels::Backend& backend, const LoadOptions& options = {}) const;
    // All weights of such a model, by name.
    std::map<std::string, std::vector<float>> weights() const;

  private:
    safetensors::File file_;
    model::ModelConfig config_;
    std::vector<std::int32_t> input_ids_, labels_, segment_ids_;
    model::BatchShape shape_;
};

// Whether the goldens named tiles are for a backend of kernels/testing/backends.h: their every product has several of
// the tiles that an instruction set's products come in.
bool has_tiles(std::string_view backend);

// As in golden_tiles.py: random number `index` of those that begin at a seed, and a name's seed.
std::uint64_t mixed(std::uint64_t seed, std::uint64_t index);
std::uint64_t seed_of(std::string_view name);
// That of golden_tiles.py, whose distance to another sketch of that name is that of the tensors.
std::vector<float> sketch(const std::string& name, std::span<const float> tensor, std::size_t buckets);

// |a − b| / |b| over all elements, in fp64.
double relative_l2(std::span<const float> a, std::span<const float> b);

}  // namespace atl::numerics
