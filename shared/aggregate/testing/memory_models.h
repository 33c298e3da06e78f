#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shared/aggregate/aggregator.h"
#include "shared/numeric/conversions.h"

// Small models in memory, for this module's tests.
namespace atl::aggregate {

using safetensors::DType;
using safetensors::TensorInfo;

class MemoryFile : public ByteSource {
  public:
    explicit MemoryFile(std::string bytes) : bytes_(std::move(bytes)) {}
    std::uint64_t size() const override { return bytes_.size(); }
    Status read(std::uint64_t offset, std::span<std::byte> into) const override {
        if (offset + into.size() > bytes_.size()) return internal_error("read beyond the end");
        std::memcpy(into.data(), bytes_.data() + offset, into.size());
        largest_read_ = std::max(largest_read_.load(), into.size());
        return {};
    }
    std::size_t largest_read() const { return largest_read_; }

  private:
    std::string bytes_;
    mutable std::atomic<std::size_t> largest_read_ = 0;
};

struct TestTensor {
    std::string name;
    DType dtype;
    std::vector<std::int64_t> shape;
    std::string bytes;
};

template <class T>
std::string bytes_of(const std::vector<T>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

inline TestTensor f32(const std::string& name, std::vector<float> values) {
    return {name, DType::kF32, {static_cast<std::int64_t>(values.size())}, bytes_of(values)};
}

inline TestTensor i64(const std::string& name, std::vector<std::int64_t> values) {
    return {name, DType::kI64, {static_cast<std::int64_t>(values.size())}, bytes_of(values)};
}

inline TestTensor f16(const std::string& name, const std::vector<float>& values) {
    std::string bytes(values.size() * 2, '\0');
    numeric::conversions().narrow_f16(reinterpret_cast<std::byte*>(bytes.data()), values.data(), values.size());
    return {name, DType::kF16, {static_cast<std::int64_t>(values.size())}, bytes};
}

inline std::string file_of(const std::vector<TestTensor>& tensors,
                           const std::map<std::string, std::string>& metadata = {{"format", "pt"}}) {
    std::vector<TensorInfo> infos;
    std::string data;
    for (const TestTensor& tensor : tensors) {
        infos.push_back({tensor.name, tensor.dtype, tensor.shape, 0, 0});
        data += tensor.bytes;
    }
    return safetensors::make_header(infos, metadata) + data;
}

inline Input input_of(const std::string& name, const std::vector<std::vector<TestTensor>>& files) {
    Input input{name, {}};
    for (std::size_t i = 0; i < files.size(); ++i)
        input.files.push_back(
            {"part" + std::to_string(i) + ".safetensors", std::make_shared<MemoryFile>(file_of(files[i]))});
    return input;
}

// An adapter whose metadata say what it was trained on.
inline Input adapter_on(const std::string& name, const std::map<std::string, std::string>& base) {
    return {name, {{"adapter_model.safetensors", std::make_shared<MemoryFile>(file_of({f32("w", {1, 2})}, base))}}};
}

inline Result<std::string> whole_file(const Aggregator& aggregator, std::size_t file) {
    Aggregator::Workspace workspace(aggregator);
    std::string bytes(aggregator.files()[file].size, '\0');
    ATOLL_RETURN_IF_ERROR(aggregator.read(file, 0, std::as_writable_bytes(std::span(bytes)), workspace));
    return bytes;
}

// kInvalidArgument of this field, with a message that says all the values.
inline void expect_invalid(const std::optional<Error>& error, const std::string& field,
                           const std::vector<std::string>& values = {}) {
    ASSERT_TRUE(error) << "no error";
    EXPECT_EQ(error->code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(error->field, field) << error->message;
    for (const std::string& value : values)
        EXPECT_NE(error->message.find(value), std::string::npos) << value << "\n" << error->message;
}

// The sums of what is measured of the first file, so many bytes at a time.
inline std::vector<double> totals_of(const Aggregator& aggregator, std::uint64_t part = 1 << 20) {
    std::vector<ExactSum> sums(aggregator.statistics_count());
    Aggregator::Workspace workspace(aggregator);
    const std::uint64_t size = aggregator.files()[0].size;
    for (std::uint64_t at = 0; at < size; at += part)
        EXPECT_TRUE(aggregator.measure(0, at, std::min(part, size - at), sums, workspace).ok());
    std::vector<double> totals;
    for (const ExactSum& sum : sums) totals.push_back(sum.value());
    return totals;
}

}  // namespace atl::aggregate
