#include "trainer/quant/quantizer.h"

#include <algorithm>
#include <utility>

#include "shared/base/check.h"
#include "trainer/quant/int8.h"

namespace atl::quant {

Quantizer::Quantizer(Format format, std::int64_t rows, std::int64_t columns, TakeBytes take)
    : rows_(rows), columns_(columns), take_(std::move(take)) {
    if (format == Format::kNf4) nf4_.emplace(rows * columns, take_);
}

Quantizer::Quantizer(Format format, std::int64_t rows, std::int64_t columns)
    : Quantizer(format, rows, columns, [this](std::int64_t at, std::span<const std::byte> bytes) {
          std::ranges::copy(bytes, storage_.begin() + at);
      }) {
    storage_.resize(static_cast<std::size_t>(format == Format::kNf4 ? Nf4Layout(rows * columns).size
                                                                    : Int8Layout(rows, columns).size));
}

void Quantizer::append(std::span<const float> rows) {
    const std::int64_t count = std::ssize(rows) / columns_;
    check(done_ + count <= rows_, "a quantised matrix has too many rows");
    if (nf4_) {
        nf4_->append(rows);
    } else {
        const Int8Layout whole(rows_, columns_), piece(count, columns_);
        const auto factors = static_cast<std::size_t>(piece.codes);  // bytes
        std::vector<std::byte> bytes(static_cast<std::size_t>(piece.size));
        quantize_int8(columns_, rows, bytes);
        take_(4 * done_, std::span(bytes).first(factors));
        take_(whole.codes + done_ * columns_, std::span(bytes).subspan(factors, rows.size()));
    }
    done_ += count;
}

std::vector<std::byte> Quantizer::finish() {
    check(done_ == rows_, "a quantised matrix lacks rows");
    if (nf4_) {
        nf4_->finish();
    } else {
        const Int8Layout layout(rows_, columns_);
        const std::int64_t end = layout.codes + rows_ * columns_;
        take_(end, std::vector<std::byte>(static_cast<std::size_t>(layout.size - end)));  // the padding
    }
    return std::move(storage_);
}

void dequantize(Format format, std::span<const std::byte> storage, std::int64_t rows, std::int64_t columns,
                std::int64_t begin, std::span<float> out) {
    if (format == Format::kNf4) return dequantize_nf4(storage, rows * columns, begin, out);
    dequantize_int8(storage, rows, columns, begin, out);
}

}  // namespace atl::quant
