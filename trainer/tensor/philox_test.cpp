#include "trainer/tensor/philox.h"

#include <gtest/gtest.h>

namespace atl::tensor {
namespace {

struct Known {
    std::uint64_t block;
    std::uint64_t stream;
    std::uint64_t key;
    std::uint32_t words[4];
};

// From Random123's known answers (tests/kat_vectors).
constexpr Known kKnown[] = {
    {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {0xffffffffffffffff, 0xffffffffffffffff, 0xffffffffffffffff, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {0x85a308d3243f6a88, 0x0370734413198a2e, 0x299f31d0a4093822, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

TEST(PhiloxTest, GivesTheKnownAnswers) {
    for (const Known& known : kKnown) {
        std::uint32_t words[4];
        philox(known.block, known.stream, known.key, words);
        for (int i = 0; i < 4; ++i) EXPECT_EQ(words[i], known.words[i]) << i;
    }
}

}  // namespace
}  // namespace atl::tensor
