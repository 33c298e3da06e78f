#include "shared/training_memory/cards.h"

#include <algorithm>
#include <array>
#include <vector>

#include "shared/base/text.h"

namespace atl::training_memory {
namespace {

constexpr std::int64_t kMib = std::int64_t{1} << 20;

// Memory is the least that cudaMemGetInfo() was seen to say, in public messages of PyTorch ("has a total capacity of
// 79.10 GiB"), rounded down; drivers differ by 0.2 GiB. No card has confirmed them for this table.
constexpr std::array kCards = {
    Card{"h100", "H100 80GB", 90, 132, 80'993 * kMib, true},
    Card{"h100-94", "H100 94GB or 96GB", 90, 132, 95'247 * kMib, false},
    Card{"h200", "H200", 90, 132, 143'068 * kMib, false},
    Card{"gh200", "GH200 96GB", 90, 132, 96'762 * kMib, false},
    Card{"a100-40", "A100 40GB", 80, 108, 40'320 * kMib, true},
    Card{"a100-64", "A100 64GB (Leonardo)", 80, 124, 64'936 * kMib, false},
    Card{"a100-80", "A100 80GB", 80, 108, 81'034 * kMib, true},
    Card{"a10", "A10", 86, 72, 22'553 * kMib, false},
    Card{"a40", "A40", 86, 84, 45'399 * kMib, false},
    Card{"l4", "L4", 89, 58, 22'553 * kMib, false},
    Card{"l40", "L40", 89, 142, 45'399 * kMib, false},
    Card{"l40s", "L40S", 89, 142, 45'399 * kMib, true},
};

// What sites still have and this trainer does not run on.
struct TooOld {
    std::string_view name, why;
};
constexpr std::array kTooOld = {
    TooOld{"v100", "it is sm_70, which CUDA 13 no longer compiles for"},
    TooOld{"p100", "it is sm_60, which CUDA 13 no longer compiles for"},
    TooOld{"t4", "it is sm_75, and the trainer's kernels are compiled for sm_80 and newer"},
};

}  // namespace

std::span<const Card> cards() {
    return kCards;
}

std::string card_names() {
    std::vector<std::string> names;
    for (const Card& card : kCards) names.emplace_back(card.name);
    return join(names, ", ");
}

Result<Card> find_card(const std::string& name) {
    if (const auto found = std::ranges::find(kCards, name, &Card::name); found != kCards.end()) return *found;
    for (const TooOld& old : kTooOld) {
        if (name == old.name || name.starts_with(std::string(old.name) + "-"))
            return invalid_argument("card", "'" + name + "' cannot run this trainer: " + std::string(old.why) +
                                                "; cards that can: " + card_names());
    }
    return invalid_argument("card", "'" + name + "' is not known; known are " + card_names());
}

}  // namespace atl::training_memory
