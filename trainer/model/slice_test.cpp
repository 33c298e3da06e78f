#include "trainer/model/slice.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace atl::model {
namespace {

// Which element of a matrix each element of a slice is.
std::vector<std::int64_t> elements_of(const Slice& slice) {
    std::vector<std::int64_t> elements;
    for (std::int64_t row = slice.row; row < slice.row + slice.rows; ++row) {
        for (std::int64_t column = slice.column; column < slice.column + slice.columns; ++column)
            elements.push_back(row * slice.width + column);
    }
    return elements;
}

const Slice kSlices[] = {
    {.row = 0, .rows = 5, .column = 0, .columns = 7, .width = 7},  // all
    {.row = 2, .rows = 2, .column = 0, .columns = 7, .width = 7},
    {.row = 0, .rows = 5, .column = 3, .columns = 2, .width = 7},
    {.row = 1, .rows = 3, .column = 4, .columns = 3, .width = 7},
    {.row = 3, .rows = 4, .column = 0, .columns = 1, .width = 1},  // of a vector
};

TEST(SliceTest, AnyRangeIsMadeOfRunsOfTheMatrix) {
    for (const Slice& slice : kSlices) {
        const std::vector<std::int64_t> elements = elements_of(slice);
        for (std::size_t begin = 0; begin < elements.size(); ++begin) {
            for (std::size_t end = begin + 1; end <= elements.size(); ++end) {
                std::vector<std::int64_t> found;
                for (const SliceRun& run :
                     runs_of(slice, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end - begin))) {
                    EXPECT_EQ(run.at, std::ssize(found));
                    for (std::int64_t i = 0; i < run.count; ++i) found.push_back(run.in_matrix + i);
                }
                EXPECT_EQ(found, std::vector(elements.begin() + static_cast<std::ptrdiff_t>(begin),
                                             elements.begin() + static_cast<std::ptrdiff_t>(end)));
            }
        }
    }
}

TEST(SliceTest, RowsThatAreWholeAreOneRun) {
    EXPECT_EQ(runs_of(kSlices[1], 1, 13).size(), 1U);
    EXPECT_EQ(runs_of(kSlices[2], 1, 9).size(), 5U);
}

TEST(SliceTest, ElementsBeforeAnyOfTheMatrixAreCounted) {
    for (const Slice& slice : kSlices) {
        const std::vector<std::int64_t> elements = elements_of(slice);
        for (std::int64_t element = 0; element <= 70; ++element) {
            const auto before = std::ranges::count_if(elements, [&](std::int64_t one) { return one < element; });
            EXPECT_EQ(slice.elements_before(element), before) << element;
        }
    }
}

}  // namespace
}  // namespace atl::model
