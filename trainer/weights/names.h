#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Inside trainer/weights and trainer/importer only.
namespace atl::weights {

// Of the head that is in the files of a tied model.
inline constexpr char kDiffersFromTable[] =
    "differs from the embedding, to which config.json ties it: set \"tie_word_embeddings\" to false if the model has "
    "this "
    "head, or take the tensor out";

// "[2, 3]"
std::string shape_text(const std::vector<std::int64_t>& shape);

// Whether one of the patterns is the name, or "*suffix" of it.
bool is_ignorable(std::string_view name, std::span<const std::string> patterns);

}  // namespace atl::weights
