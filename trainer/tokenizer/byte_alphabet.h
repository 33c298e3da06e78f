#pragma once

#include <optional>
#include <string>
#include <string_view>

// The alphabet in which GPT-2 writes bytes, a character that prints for each: itself where the byte prints, else one
// of U+0100 and on (https://github.com/openai/gpt-2, encoder.py).
namespace atl::tokenizer {

// Appends the characters of `bytes`.
void append_in_alphabet(std::string_view bytes, std::string& text);

// The bytes that `text` stands for; nothing when a character is not of the alphabet.
std::optional<std::string> bytes_of_alphabet(std::string_view text);

}  // namespace atl::tokenizer
