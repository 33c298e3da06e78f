#pragma once

namespace atl::tokenizer {

// Classes of characters as the tokenizers library 0.23 has them, whose tables are of different versions of Unicode.

// Numbers of every kind (categories Nd, Nl, No) of Unicode 17: what its pre-tokenizer "Digits" finds.
bool is_numeric(char32_t code);

// Punctuation (categories P…) of Unicode 8 and ASCII's symbols: what its pre-tokenizer "Punctuation" finds.
bool is_punctuation(char32_t code);

}  // namespace atl::tokenizer
