#include "trainer/tokenizer/byte_level_tokenizer.h"

#include <algorithm>
#include <utility>

#include "trainer/tokenizer/byte_alphabet.h"
#include "trainer/tokenizer/tokenizer_fields.h"
#include "trainer/tokenizer/utf8.h"

namespace atl::tokenizer {
namespace {

bool decodes_bytes(const BpeParts& parts) {
    return !parts.decoder ||
           (parts.decoder->size() == 1 && parts.decoder->front().kind == DecoderStep::Kind::kByteLevel);
}

}  // namespace

Status ByteLevelTokenizer::add_vocab(const BpeParts& parts) {
    if (!decodes_bytes(parts)) return fields::bad("decoder", "another than ByteLevel is not supported with ByteLevel");
    bytes_of_ = added_texts_;
    byte_ids_.fill(-1);
    for (const auto& [token, id] : parts.vocab) {
        auto bytes = bytes_of_alphabet(token);
        // Tokens of another alphabet can only be whole: added ones, which stand in added_tokens too.
        if (!bytes) continue;
        if (bytes->size() == 1) byte_ids_[static_cast<unsigned char>((*bytes)[0])] = id;
        if (added_texts_[static_cast<std::size_t>(id)].empty()) bytes_of_[static_cast<std::size_t>(id)] = *bytes;
        ids_of_.emplace(std::move(*bytes), id);
    }
    const auto* missing = std::find(byte_ids_.begin(), byte_ids_.end(), -1);
    if (missing == byte_ids_.end()) return {};
    return fields::bad(parts.vocab_field, "the byte " + std::to_string(missing - byte_ids_.begin()) + " has no token");
}

void ByteLevelTokenizer::encode_words(const std::vector<std::string_view>& words,
                                      std::vector<std::int32_t>& ids) const {
    WordCache& cache = WordCache::of_this_thread(owner_);
    for (const std::string_view word : words)
        cache.append(word, ids, [this](std::string_view text_of_word, std::vector<std::int32_t>& out) {
            encode_word(text_of_word, out);
        });
}

void ByteLevelTokenizer::encode_word(std::string_view word, std::vector<std::int32_t>& ids) const {
    if (ignore_merges_) {
        if (const auto found = ids_of_.find(std::string(word)); found != ids_of_.end())
            return ids.push_back(found->second);
    }
    std::vector<std::int32_t> symbols;
    for (const char c : word) symbols.push_back(byte_ids_[static_cast<unsigned char>(c)]);
    merges_.apply(symbols);
    ids.insert(ids.end(), symbols.begin(), symbols.end());
}

std::string ByteLevelTokenizer::decode(std::span<const std::int32_t> ids) const {
    std::string bytes;
    for (const std::int32_t id : ids)
        if (id >= 0 && id < vocab_size_ && !is_special(id)) bytes += bytes_of_[static_cast<std::size_t>(id)];
    return with_utf8_replaced(bytes);
}

}  // namespace atl::tokenizer
