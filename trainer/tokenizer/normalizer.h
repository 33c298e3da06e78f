#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace atl::tokenizer {

// The normalization forms of Unicode (UAX #15).
enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// "NFC", …; nothing for another name.
std::optional<NormalForm> parse_normal_form(std::string_view name);

// `text`, which must be UTF-8, in that form, as the tokenizers library has it: its tables are those of Unicode 9, and
// the marks and compatibility characters of later versions stay as and where they are.
std::string normalized(std::string_view text, NormalForm form);

}  // namespace atl::tokenizer
