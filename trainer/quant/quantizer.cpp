#include "trainer/quant/quantizer.h"

#include <utility>

#include "shared/base/check.h"
#include "trainer/quant/int8.h"

namespace atl::quant {

Quantizer::Quantizer(Format format, std::int64_t rows, std::int64_t columns)
    : rows_(rows),
      columns_(columns),
      storage_(static_cast<std::size_t>(format == Format::kNf4 ? Nf4Layout(rows * columns).size
                                                               : Int8Layout(rows, columns).size)) {
    if (format == Format::kNf4) nf4_.emplace(rows * columns, storage_);
}

void Quantizer::append(std::span<const float> rows) {
    if (nf4_) {
        nf4_->append(rows);
    } else {
        quantize_int8(rows_, columns_, done_, rows, storage_);
    }
    done_ += static_cast<std::int64_t>(rows.size()) / columns_;
}

std::vector<std::byte> Quantizer::finish() {
    check(done_ == rows_, "a quantised matrix lacks rows");
    if (nf4_) nf4_->finish();
    return std::move(storage_);
}

void dequantize(Format format, std::span<const std::byte> storage, std::int64_t rows, std::int64_t columns,
                std::int64_t begin, std::span<float> out) {
    if (format == Format::kNf4) return dequantize_nf4(storage, rows * columns, begin, out);
    dequantize_int8(storage, rows, columns, begin, out);
}

}  // namespace atl::quant
