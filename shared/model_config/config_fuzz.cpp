// libFuzzer target: any bytes as a config.json.
//   CC=clang-19 CXX=clang++-19 cmake -B build/fuzz -G Ninja -DATOLL_FUZZ=ON -DATOLL_SERVICES=OFF -DATOLL_TESTS=OFF
//   ninja -C build/fuzz config_fuzz && build/fuzz/bin/config_fuzz -max_total_time=60 -timeout=5 CORPUS
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "shared/model_config/model_config.h"
#include "shared/model_config/tensors.h"

// What is taken has tensors whose sizes can be told.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace atl::model_config;
    const auto config = parse_config({reinterpret_cast<const char*>(data), size});
    if (!config.ok()) return config.error().message.empty() ? std::abort(), 0 : 0;
    for (const TensorSpec& tensor : tensors_of(*config)) {
        if (tensor.name.empty() || tensor.shape.empty()) std::abort();
        for (const std::int64_t extent : tensor.shape)
            if (extent < 1) std::abort();
    }
    return 0;
}
