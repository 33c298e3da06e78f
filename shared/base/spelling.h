#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace atl {

// The candidate that somebody who typed `word` most likely meant: a few letters wrong, missing, too many or swapped, or
// the only one that begins with it. Empty if none is near, and of a word of over 64 letters or over 10,000 candidates.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

// "; did you mean X?", the end of a message about a word that is not known; empty if none is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace atl
