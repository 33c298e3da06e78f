#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "shared/base/result.h"

namespace atl::tokenizer {

// A token beside the vocabulary that the model's merges make: it is found in a text before they are.
struct AddedToken {
    std::int32_t id = 0;
    std::string content;
    bool special = false;    // stays text where it is written out
    bool normalized = true;  // found in the normalized text, else in the text as it is, before
    bool lstrip = false;     // takes the white space before it with it
    bool rstrip = false;     // takes the white space behind it with it
};

// Added tokens, to find them in texts as the tokenizers library does with encode_special_tokens. Immutable once filled.
class AddedTokens {
  public:
    void add(AddedToken token);

    // Appends the ids of the tokens in `text`, and has `encode_rest(rest, offset)` append those of what lies between.
    // Tokens do not overlap: the leftmost wins, of those that begin at one place the longest.
    template <class EncodeRest>
    Status encode(std::string_view text, std::vector<std::int32_t>& ids, EncodeRest&& encode_rest) const {
        std::size_t begin = 0;  // of what no token has taken
        std::size_t position = 0;
        while (const std::optional<Match> match = next_match(text, begin, position)) {
            if (match->begin > begin)
                ATOLL_RETURN_IF_ERROR(encode_rest(text.substr(begin, match->begin - begin), begin));
            ids.push_back(match->id);
            begin = match->end;
        }
        return begin < text.size() ? encode_rest(text.substr(begin), begin) : Status();
    }

  private:
    struct Match {
        std::int32_t id = 0;
        std::size_t begin = 0;  // with the white space that the token takes
        std::size_t end = 0;
    };
    struct Hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
    };
    // The next token that does not stay text, from `position` on, which moves behind it.
    std::optional<Match> next_match(std::string_view text, std::size_t begin, std::size_t& position) const;
    // The longest token that `text` begins with; null: none.
    const AddedToken* longest_at(std::string_view text) const;

    std::unordered_map<std::string, AddedToken, Hash, std::equal_to<>> tokens_;
    std::array<bool, 256> begins_{};                     // whether a token begins with the byte
    std::array<std::vector<std::size_t>, 256> lengths_;  // of the tokens by their first byte, the longest first
    bool finds_any_ = false;                             // a token that does not stay text
};

}  // namespace atl::tokenizer
