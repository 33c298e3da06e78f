// libFuzzer target: any bytes as a safetensors file. Seeds: tests/fixtures/safetensors (and any other model file).
//   CC=clang-19 CXX=clang++-19 cmake -B build/fuzz -G Ninja -DATOLL_FUZZ=ON -DATOLL_SERVICES=OFF -DATOLL_TRAINER=OFF
//   ninja -C build/fuzz safetensors_fuzz && build/fuzz/bin/safetensors_fuzz -max_total_time=60 CORPUS SEEDS
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "shared/safetensors/safetensors.h"

// What a parsed header promises: the tensors tile the data section, and each has the bytes that its shape needs.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace atl::safetensors;
    const std::string_view file(reinterpret_cast<const char*>(data), size);
    const auto length = header_length(file, size);
    if (!length.ok()) return 0;
    const auto header = parse_header(file.substr(8, *length), size);
    if (!header.ok()) return 0;
    std::uint64_t position = 0;
    for (const TensorInfo& tensor : header->tensors) {
        const auto width = static_cast<std::uint64_t>(size_bytes(tensor.dtype));
        if (tensor.begin != position || tensor.end < tensor.begin) std::abort();
        if (tensor.end - tensor.begin != static_cast<std::uint64_t>(tensor.element_count()) * width) std::abort();
        if (header->find(tensor.name) == nullptr) std::abort();
        position = tensor.end;
    }
    if (header->data_begin + position != size) std::abort();
    return 0;
}
