#include "trainer/tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "trainer/tokenizer/utf8.h"

namespace atl::tokenizer {
namespace {

// Bytes of the white space (Unicode's White_Space) that `text` begins with.
std::size_t space_at_front(std::string_view text) {
    std::size_t bytes = 0;
    while (const std::size_t length = space_length(text.substr(bytes))) bytes += length;
    return bytes;
}

// Bytes of the white space that `text` ends with.
std::size_t space_at_back(std::string_view text) {
    std::size_t end = text.size();
    while (end > 0) {
        std::size_t at = end - 1;
        while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
        if (space_length(text.substr(at)) != end - at) break;
        end = at;
    }
    return text.size() - end;
}

}  // namespace

void AddedTokens::add(AddedToken token) {
    std::vector<std::size_t>& lengths = lengths_[static_cast<unsigned char>(token.content[0])];
    const auto place = std::lower_bound(lengths.begin(), lengths.end(), token.content.size(), std::greater<>());
    if (place == lengths.end() || *place != token.content.size()) lengths.insert(place, token.content.size());
    begins_[static_cast<unsigned char>(token.content[0])] = true;
    finds_any_ |= !token.special;
    std::string content = token.content;
    tokens_.insert_or_assign(std::move(content), std::move(token));
}

const AddedToken* AddedTokens::longest_at(std::string_view text) const {
    for (const std::size_t length : lengths_[static_cast<unsigned char>(text[0])]) {
        if (length > text.size()) continue;
        if (const auto found = tokens_.find(text.substr(0, length)); found != tokens_.end()) return &found->second;
    }
    return nullptr;
}

std::optional<AddedTokens::Match> AddedTokens::next_match(std::string_view text, std::size_t begin,
                                                          std::size_t& position) const {
    if (!finds_any_) return std::nullopt;
    while (position < text.size()) {
        const bool may_begin = begins_[static_cast<unsigned char>(text[position])];
        const AddedToken* token = may_begin ? longest_at(text.substr(position)) : nullptr;
        if (token == nullptr) {
            ++position;
            continue;
        }
        Match match{token->id, position, position + token->content.size()};
        position = match.end;
        if (token->special) continue;  // and nothing is found within it
        // Two tokens may want the white space between them: the first one has it.
        if (token->lstrip) match.begin -= space_at_back(text.substr(begin, match.begin - begin));
        if (token->rstrip) match.end += space_at_front(text.substr(match.end));
        position = std::max(position, match.end);
        return match;
    }
    return std::nullopt;
}

}  // namespace atl::tokenizer
