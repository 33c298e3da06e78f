// libFuzzer target: any bytes as an adapter_config.json.
//   CC=clang-19 CXX=clang++-19 cmake -B build/fuzz -G Ninja -DATOLL_FUZZ=ON -DATOLL_SERVICES=OFF -DATOLL_TESTS=OFF
//   ninja -C build/fuzz adapter_config_fuzz && build/fuzz/bin/adapter_config_fuzz -max_total_time=60 -timeout=5 CORPUS
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "shared/adapter/adapter.h"
#include "shared/json/bounded.h"

// What is taken says of the linears of a model which it covers, and is the same when it is written and read again.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace atl;
    const auto config = json::parse_bounded({reinterpret_cast<const char*>(data), size}, 50'000);
    if (!config.ok() || !config->is_object()) return 0;
    const auto options = adapter::parse_config(*config);
    if (!options.ok()) return options.error().message.empty() ? std::abort(), 0 : 0;
    static const std::vector<model_config::TensorSpec> kModel = {{"model.layers.0.self_attn.q_proj.weight", {8, 8}},
                                                                 {"model.layers.1.mlp.down_proj.weight", {8, 16}}};
    const auto tensors = adapter::tensors_on(*options, kModel);
    if (tensors.ok() && tensors->size() % 2 != 0) std::abort();
    const auto again = adapter::parse_config(json::parse(adapter::config_text(*options, "model")).value());
    if (!again.ok() || !adapter::differing_key(*options, *again).empty()) std::abort();
    return 0;
}
