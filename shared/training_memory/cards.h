#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "shared/base/result.h"

// NVIDIA's GPUs by name, as far as the memory of a training needs to know them. The trainer's `plan --card` and
// dispatch read this one table.
namespace atl::training_memory {

struct Card {
    std::string_view name;      // of --card and of a site's GPUs: "h100"
    std::string_view product;   // as its driver calls it
    int architecture;           // 90 for sm_90
    int multiprocessors;        // by its data sheet
    std::int64_t memory_bytes;  // all that CUDA says there is: less than its data sheet's
    bool
        has_planned_attention;  // cuDNN planned attention for it (trainer/kernels/gpu/cards); others are as the nearest
};

// What a process's context and the code of kernels take of a GPU: measured once, at the end of two runs on an H200
// (bench/README.md).
inline constexpr std::int64_t kDriverBytes = std::int64_t{536} << 20;

std::span<const Card> cards();
std::string card_names();  // "h100, h200, …"

// kInvalidArgument: none of these, with their names; or one that is too old, with the reason.
Result<Card> find_card(const std::string& name);

}  // namespace atl::training_memory
