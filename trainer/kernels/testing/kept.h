#pragma once

#include "trainer/kernels/testing/on_device.h"

namespace atl::kernels {

// Random values that fp16 or bf16 holds exactly, kept in it and in fp32.
struct Kept {
    OnDevice<> wide;
    OnDevice<std::uint16_t> narrow;

    Kept(Backend& backend, tensor::DType dtype, std::int64_t rows, std::int64_t columns, unsigned seed,
         float deviation = 1.0F)
        : wide(random(backend, {rows, columns}, seed, deviation)),
          narrow(halves(backend, dtype, {rows, columns}, std::vector<std::uint16_t>(wide.given.size()))) {
        keep(backend);
    }
    // Other values, rounded to the format.
    void write(Backend& backend, std::vector<float> values) {
        wide.write(std::move(values));
        keep(backend);
    }
    // What the narrow one holds now; the wide one holds it afterwards.
    std::vector<float> read(Backend& backend) const {
        backend.convert(narrow.tensor, wide.tensor);
        return wide.read();
    }

  private:
    void keep(Backend& backend) {
        backend.convert(wide.tensor, narrow.tensor);
        wide.write(read(backend));
    }
};

}  // namespace atl::kernels
