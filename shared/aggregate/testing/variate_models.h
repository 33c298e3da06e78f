#pragma once

#include "shared/aggregate/testing/memory_models.h"
#include "shared/delta/control_variate.h"
#include "shared/delta/delta.h"

// Control variates in memory, for this module's tests.
namespace atl::aggregate {

inline constexpr const char* kVariateBase = "0123abcd";  // what they call the model

// A tensor of a control variate: int8 blocks of these values.
inline TestTensor variate_tensor(const std::string& name, const std::vector<std::int64_t>& shape,
                                 std::vector<float> values, delta::Format format = delta::Format::kInt8) {
    const TensorInfo info = delta::packed_tensor(format, {name, DType::kF32, shape, 0, 0});
    const std::size_t width = delta::block_bytes(format);
    std::string bytes(static_cast<std::size_t>(info.element_count()), '\0');
    for (std::size_t at = 0, block = 0; at < values.size(); at += delta::kBlockElements, ++block) {
        const auto own = std::span(values).subspan(at, std::min(delta::kBlockElements, values.size() - at));
        EXPECT_TRUE(
            delta::encode_block(format, own, std::as_writable_bytes(std::span(bytes)).subspan(block * width, width)));
    }
    return {name, DType::kU8, info.shape, bytes};
}

inline std::shared_ptr<const ByteSource> variate_file(const std::vector<TestTensor>& tensors,
                                                      const std::string& base = kVariateBase,
                                                      const std::string& format = "int8") {
    return std::make_shared<MemoryFile>(file_of(tensors, {{delta::kFormatKey, format}, {delta::kBaseKey, base}}));
}

inline TestTensor bf16(const std::string& name, const std::vector<std::int64_t>& shape,
                       const std::vector<float>& values) {
    std::string bytes(values.size() * 2, '\0');
    numeric::conversions().narrow_finite_bf16(reinterpret_cast<std::byte*>(bytes.data()), values.data(), values.size());
    return {name, DType::kBF16, shape, bytes};
}

// The numbers of a BF16 tensor that ends so many bytes before the file does.
inline std::vector<float> bf16_at_end(const std::string& file, std::size_t count, std::size_t behind = 0) {
    std::vector<float> values(count);
    numeric::conversions().widen_bf16(
        values.data(), reinterpret_cast<const std::byte*>(file.data() + file.size() - behind - 2 * count), count);
    return values;
}

// The sums of what is measured of all files, so many bytes at a time.
inline std::vector<double> all_totals(const Aggregator& aggregator, std::uint64_t part = 1 << 20) {
    std::vector<ExactSum> sums(aggregator.statistics_count());
    for (std::size_t file = 0; file < aggregator.files().size(); ++file) {
        Aggregator::Workspace workspace(aggregator);
        for (std::uint64_t at = 0, size = aggregator.files()[file].size; at < size; at += part) {
            const Status measured = aggregator.measure(file, at, std::min(part, size - at), sums, workspace);
            EXPECT_TRUE(measured.ok()) << measured.error().message;
        }
    }
    std::vector<double> totals;
    for (const ExactSum& sum : sums) totals.push_back(sum.value());
    return totals;
}

}  // namespace atl::aggregate
