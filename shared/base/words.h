#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace atl {

// The members of an enum with the word of each, in one table: who goes through all of them goes through it, and nobody
// counts up to the last one.
template <class Enum>
struct Word {
    Enum value;
    const char* text;
};

// Whether the table has the members of an enum from the first one on, without a gap.
template <class Enum, std::size_t count>
constexpr bool is_in_order(const Word<Enum> (&words)[count]) {
    for (std::size_t i = 0; i < count; ++i)
        if (static_cast<std::size_t>(words[i].value) != i) return false;
    return true;
}

// nullptr: the table has no such member.
template <class Enum, std::size_t count>
constexpr const char* find_word(const Word<Enum> (&words)[count], Enum value) {
    for (const Word<Enum>& word : words)
        if (word.value == value) return word.text;
    return nullptr;
}

template <class Enum, std::size_t count>
constexpr std::optional<Enum> find_value(const Word<Enum> (&words)[count], std::string_view text) {
    for (const Word<Enum>& word : words)
        if (word.text == text) return word.value;
    return std::nullopt;
}

}  // namespace atl
