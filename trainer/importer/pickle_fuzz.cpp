// libFuzzer target: any bytes as the data.pkl of a PyTorch file. pickle_test runs it on changed pickles as well.
//   CC=clang-19 CXX=clang++-19 cmake -B build/fuzz -G Ninja -DATOLL_FUZZ=ON -DATOLL_SERVICES=OFF -DATOLL_TESTS=OFF
//   ninja -C build/fuzz pickle_fuzz && unzip -p tests/fixtures/torch/single/pytorch_model.bin '*/data.pkl' > SEEDS/1
//   build/fuzz/bin/pickle_fuzz -max_total_time=60 CORPUS SEEDS
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "trainer/importer/state_dict.h"

// What a tensor promises: it has the elements of its shape, and they are in its storage.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace atl::importer;
    const auto tensors = read_state_dict(std::as_bytes(std::span(data, size)));
    if (!tensors.ok()) return 0;
    for (const StoredTensor& tensor : *tensors) {
        const bool empty = std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end();
        std::int64_t count = empty ? 0 : 1;
        for (const std::int64_t extent : tensor.shape) {
            if (extent < 0) std::abort();
            if (!empty && __builtin_mul_overflow(count, extent, &count)) std::abort();
        }
        if (count != tensor.element_count || tensor.begin < 0 || tensor.begin > tensor.storage_elements) std::abort();
        if (count > tensor.storage_elements - tensor.begin) std::abort();
    }
    return 0;
}
