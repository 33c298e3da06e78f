// libFuzzer target: any bytes as a delta of a model with a few small tensors.
//   CC=clang-19 CXX=clang++-19 cmake -B build/fuzz -G Ninja -DATOLL_FUZZ=ON -DATOLL_SERVICES=OFF -DATOLL_TRAINER=OFF
//   ninja -C build/fuzz delta_fuzz && build/fuzz/bin/delta_fuzz -max_total_time=60 CORPUS
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "shared/delta/delta.h"

// Whatever check_tensor() lets through can be decoded whole.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace atl;
    using safetensors::DType;
    const std::string_view file(reinterpret_cast<const char*>(data), size);
    const auto length = safetensors::header_length(file, size);
    if (!length.ok()) return 0;
    const auto header = safetensors::parse_header(file.substr(8, *length), size);
    if (!header.ok()) return 0;
    const auto said = delta::describe(*header);
    if (!said.ok()) return 0;
    const std::array<safetensors::TensorInfo, 3> base = {
        {{"w", DType::kF32, {3, 100}, 0, 1200}, {"b", DType::kBF16, {5}, 0, 10}, {"n", DType::kI64, {2}, 0, 16}}};
    for (const auto& of_base : base) {
        const auto* packed = header->find(of_base.name);
        if (packed == nullptr || !delta::check_tensor(said->format, of_base, *packed).ok()) continue;
        std::vector<float> values(static_cast<std::size_t>(of_base.element_count()));
        const auto bytes = std::as_bytes(std::span(data, size)).subspan(header->data_begin + packed->begin);
        delta::add_changes(said->format, bytes.first(packed->end - packed->begin), 0, values);
    }
    return 0;
}
