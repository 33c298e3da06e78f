#pragma once

#include <bit>
#include <optional>

#include "trainer/kernels/testing/on_device.h"

namespace atl::kernels {

// Documents of a batch as a device has them, with their list.
class OnDeviceDocuments {
  public:
    // `starts`: of sequences of so many tokens, where each token's document begins.
    OnDeviceDocuments(Backend& backend, const std::vector<std::int32_t>& starts, std::int64_t length)
        : starts_(integers(backend, starts)),
          first_rows_(integers(backend, list_rows(starts, length))),
          lengths_(integers(backend, differences(first_rows_.given))) {}
    Documents get() const { return {starts_.tensor, first_rows_.tensor, lengths_.tensor}; }

  private:
    static std::vector<std::int32_t> list_rows(const std::vector<std::int32_t>& starts, std::int64_t length) {
        std::vector<std::int32_t> rows;
        for (std::size_t row = 0; row < starts.size(); ++row)
            if (static_cast<std::int64_t>(row) % length == starts[row]) rows.push_back(static_cast<std::int32_t>(row));
        rows.resize(std::bit_ceil(rows.size()) + 1, static_cast<std::int32_t>(starts.size()));
        return rows;
    }
    static std::vector<std::int32_t> differences(const std::vector<std::int32_t>& rows) {
        std::vector<std::int32_t> lengths;
        for (std::size_t i = 1; i < rows.size(); ++i) lengths.push_back(rows[i] - rows[i - 1]);
        return lengths;
    }
    OnDevice<std::int32_t> starts_, first_rows_, lengths_;
};

}  // namespace atl::kernels
