#pragma once

#include <cstdint>
#include <vector>

namespace atl::model {

// A part of a matrix in a checkpoint: rows [row, row + rows) and, of each, columns [column, column + columns) of its
// `width`. A vector is a matrix of one column. Elements are counted row by row, in the part and in the matrix.
struct Slice {
    std::int64_t row = 0;
    std::int64_t rows = 0;
    std::int64_t column = 0;
    std::int64_t columns = 0;
    std::int64_t width = 0;

    // Elements of the part that come before element `element` of the matrix.
    std::int64_t elements_before(std::int64_t element) const;
};

// Neighbours in a slice that are neighbours in the matrix too.
struct SliceRun {
    std::int64_t in_matrix = 0;  // where they begin
    std::int64_t at = 0;         // the same, counted from the first element that was asked for
    std::int64_t count = 0;
};

// Elements [begin, begin + count) of a slice, in order.
std::vector<SliceRun> runs_of(const Slice& slice, std::int64_t begin, std::int64_t count);

}  // namespace atl::model
