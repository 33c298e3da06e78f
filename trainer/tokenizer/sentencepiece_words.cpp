#include "trainer/tokenizer/sentencepiece_words.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>
#include <map>
#include <optional>

#include "trainer/tokenizer/utf8.h"

namespace atl::tokenizer {
namespace {

// One field of a protocol buffer message (https://protobuf.dev/programming-guides/encoding).
struct Field {
    std::uint64_t number = 0;
    std::uint64_t value = 0;  // varint and fixed32
    std::string_view bytes;   // length-delimited
};

// Reads the fields of a message one after another; `ok` turns false at what is no message.
class FieldReader {
  public:
    explicit FieldReader(std::string_view message) : rest_(message) {}
    bool ok() const { return ok_; }

    bool next(Field& field) {
        if (rest_.empty() || !ok_) return false;
        const std::uint64_t tag = varint();
        field = {tag >> 3, 0, {}};
        switch (tag & 7) {
            case 0:
                field.value = varint();
                break;
            case 1:
                take(8);
                break;
            case 2:
                field.bytes = take(varint());
                break;
            case 5:
                for (std::size_t i = 0; const char c : take(4))
                    field.value |= std::uint64_t{static_cast<unsigned char>(c)} << (8 * i++);
                break;
            default:
                ok_ = false;
        }
        return ok_;
    }

  private:
    std::uint64_t varint() {
        std::uint64_t value = 0;
        for (unsigned shift = 0; shift < 64; shift += 7) {
            const std::string_view byte = take(1);
            if (!ok_) return 0;
            value |= std::uint64_t{static_cast<unsigned char>(byte[0]) & 0x7fU} << shift;
            if ((static_cast<unsigned char>(byte[0]) & 0x80) == 0) return value;
        }
        ok_ = false;
        return 0;
    }
    std::string_view take(std::uint64_t count) {
        if (count > rest_.size()) ok_ = false;
        if (!ok_) return {};
        const std::string_view taken = rest_.substr(0, count);
        rest_.remove_prefix(count);
        return taken;
    }
    std::string_view rest_;
    bool ok_ = true;
};

enum PieceType : std::uint64_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

struct Piece {
    std::string text;
    float score = 0;
    std::uint64_t type = kNormal;
};

// What of sentencepiece_model.proto matters here, with its defaults.
struct ModelProto {
    std::vector<Piece> pieces;
    std::uint64_t model_type = 1;
    bool byte_fallback = false;
    bool whitespace_as_suffix = false;
    bool has_normalizer_map = false;
    bool add_dummy_prefix = true;
    bool remove_extra_whitespaces = true;
    bool escape_whitespaces = true;
};

bool read_piece(std::string_view message, Piece& piece) {
    FieldReader reader(message);
    for (Field field; reader.next(field);) {
        if (field.number == 1) piece.text = field.bytes;
        if (field.number == 3) piece.type = field.value;
        if (field.number != 2) continue;
        const auto bits = static_cast<std::uint32_t>(field.value);
        std::memcpy(&piece.score, &bits, sizeof bits);
    }
    return reader.ok();
}

std::optional<ModelProto> read_model(std::string_view message) {
    ModelProto model;
    FieldReader reader(message);
    bool ok = true;
    for (Field field; reader.next(field);) {
        FieldReader inner(field.bytes);
        if (field.number == 1) ok &= read_piece(field.bytes, model.pieces.emplace_back());
        for (Field spec; field.number == 2 && inner.next(spec);) {
            if (spec.number == 3) model.model_type = spec.value;
            if (spec.number == 24) model.whitespace_as_suffix = spec.value != 0;
            if (spec.number == 35) model.byte_fallback = spec.value != 0;
        }
        for (Field spec; field.number == 3 && inner.next(spec);) {
            if (spec.number == 2) model.has_normalizer_map = !spec.bytes.empty();
            if (spec.number == 3) model.add_dummy_prefix = spec.value != 0;
            if (spec.number == 4) model.remove_extra_whitespaces = spec.value != 0;
            if (spec.number == 5) model.escape_whitespaces = spec.value != 0;
        }
        ok &= inner.ok();
    }
    return ok && reader.ok() ? std::optional(std::move(model)) : std::nullopt;
}

// Calls use(character) for each character; false when the text is not UTF-8.
template <class Use>
bool for_each_character(std::string_view text, Use&& use) {
    while (!text.empty()) {
        const auto length = static_cast<std::size_t>(utf8_length(text));
        if (length == 0) return false;
        use(text.substr(0, length));
        text.remove_prefix(length);
    }
    return true;
}

// No piece may hold a space after something else: then words are merged independently of one another.
bool stays_in_word(const std::string& piece) {
    bool other = false;
    bool crosses = false;
    const bool valid = for_each_character(piece, [&](std::string_view character) {
        crosses |= other && character == kSpaceMark;
        other |= character != kSpaceMark;
    });
    return valid && !crosses;
}

bool fits(const ModelProto& model) {
    constexpr std::uint64_t kBpe = 2;
    if (model.model_type != kBpe || !model.byte_fallback || model.whitespace_as_suffix || model.has_normalizer_map ||
        !model.add_dummy_prefix || model.remove_extra_whitespaces || !model.escape_whitespaces)
        return false;
    return std::all_of(model.pieces.begin(), model.pieces.end(), [](const Piece& piece) {
        return piece.type == kNormal ? !piece.text.empty() && stays_in_word(piece.text)
                                     : piece.type != kUserDefined && piece.type != kUnused;
    });
}

std::string with_spaces_escaped(std::string_view text) {
    std::string escaped;
    escaped.reserve(text.size() + text.size() / 2);
    for (;;) {
        const std::size_t space = text.find(' ');
        escaped += text.substr(0, space);
        if (space == std::string_view::npos) return escaped;
        escaped += kSpaceMark;
        text.remove_prefix(space + 1);
    }
}

// Where the word at the start of `text` ends: before the next space that follows something else.
std::size_t word_end(std::string_view text) {
    std::size_t at = 0;
    while (text.substr(at).starts_with(kSpaceMark)) at += kSpaceMark.size();
    const std::size_t end = text.find(kSpaceMark, at);
    return end == std::string_view::npos ? text.size() : end;
}

}  // namespace

std::unique_ptr<SentencePieceWords> SentencePieceWords::make(std::string_view model) {
    const auto proto = read_model(model);
    if (!proto || !fits(*proto)) return nullptr;
    std::unique_ptr<SentencePieceWords> words(new SentencePieceWords());
    words->owner_ = WordCache::next_owner();
    std::unordered_map<std::string_view, std::int32_t> ids;  // of normal pieces
    std::map<float, std::int32_t, std::greater<>> ranks;     // of scores: the best first, equal ones alike
    int byte_pieces = 0;
    for (std::size_t i = 0; i < proto->pieces.size(); ++i) {
        const Piece& piece = proto->pieces[i];
        const auto id = static_cast<std::int32_t>(i);
        unsigned byte = 0;
        if (piece.type == kByte && std::sscanf(piece.text.c_str(), "<0x%2X>", &byte) == 1) {
            words->bytes_[byte] = id;
            ++byte_pieces;
        }
        if (piece.type != kNormal) continue;
        if (!ids.emplace(piece.text, id).second) return nullptr;
        ranks.emplace(piece.score, 0);
        if (static_cast<std::size_t>(utf8_length(piece.text)) == piece.text.size()) words->characters_[piece.text] = id;
    }
    if (byte_pieces != 256) return nullptr;
    for (std::int32_t rank = 0; auto& [score, value] : ranks) value = rank++;
    for (const auto& [text, id] : ids) {
        const std::int32_t rank = ranks.at(proto->pieces[static_cast<std::size_t>(id)].score);
        // The library looks merged texts up, so every way to halve a piece makes it. A half that is no piece itself
        // could only be an unknown character: then the model is not of our kind.
        bool known = true;
        known &=
            for_each_character(text, [&](std::string_view c) { known &= words->characters_.contains(std::string(c)); });
        if (!known) return nullptr;
        for (std::size_t cut = 1; cut < text.size(); ++cut) {
            const auto left = ids.find(text.substr(0, cut));
            const auto right = ids.find(text.substr(cut));
            if (left != ids.end() && right != ids.end()) words->merges_.add(left->second, right->second, rank, id);
        }
    }
    return words;
}

std::vector<std::string> SentencePieceWords::special_pieces(std::string_view model) {
    std::vector<std::string> texts;
    const auto proto = read_model(model);
    if (!proto) return texts;
    for (const Piece& piece : proto->pieces)
        if (piece.type == kControl || piece.type == kUserDefined) texts.push_back(piece.text);
    return texts;
}

bool SentencePieceWords::are_of(std::string_view model, const BpeParts& json) {
    const auto proto = read_model(model);
    if (!proto || proto->pieces.size() != json.vocab.size()) return false;
    const auto find = [&](const std::string& text) {
        const auto found = json.vocab.find(text);
        return found == json.vocab.end() ? nullptr : &proto->pieces[static_cast<std::size_t>(found->second)];
    };
    const auto is_word = [](const Piece* piece) { return piece != nullptr && piece->type == kNormal; };
    std::size_t merges = 0;
    for (const Piece& piece : proto->pieces) {
        const auto id = json.vocab.find(piece.text);
        if (id == json.vocab.end() || id->second != &piece - proto->pieces.data()) return false;
        for (std::size_t cut = 1; is_word(&piece) && cut < piece.text.size(); ++cut)
            merges += is_word(find(piece.text.substr(0, cut))) && is_word(find(piece.text.substr(cut))) ? 1U : 0U;
    }
    float before = std::numeric_limits<float>::infinity();
    for (const auto& [left, right] : json.merges) {
        const Piece* const piece = find(left + right);
        if (!is_word(piece)) continue;
        if (piece->score > before || merges-- == 0) return false;
        before = piece->score;
    }
    return merges == 0;
}

bool SentencePieceWords::encode(std::string_view text, std::vector<std::int32_t>& ids, bool space_before) const {
    if (text.empty()) return true;
    if (!is_utf8(text)) return false;
    const std::string escaped = (space_before ? std::string(kSpaceMark) : std::string()) + with_spaces_escaped(text);
    WordCache& cache = WordCache::of_this_thread(owner_);
    for (std::string_view rest = escaped; !rest.empty();) {
        const std::size_t end = word_end(rest);
        cache.append(rest.substr(0, end), ids,
                     [this](std::string_view word, std::vector<std::int32_t>& out) { encode_word(word, out); });
        rest.remove_prefix(end);
    }
    return true;
}

void SentencePieceWords::encode_word(std::string_view word, std::vector<std::int32_t>& ids) const {
    std::vector<std::int32_t> symbols;
    std::vector<std::string_view> unknown;  // symbol -1 - i is unknown[i]
    for_each_character(word, [&](std::string_view character) {
        const auto found = characters_.find(std::string(character));
        if (found == characters_.end()) unknown.push_back(character);
        symbols.push_back(found == characters_.end() ? -static_cast<std::int32_t>(unknown.size()) : found->second);
    });
    merges_.apply(symbols);
    for (const std::int32_t symbol : symbols) {
        if (symbol >= 0) {
            ids.push_back(symbol);
            continue;
        }
        for (const char c : unknown[static_cast<std::size_t>(-symbol - 1)])
            ids.push_back(bytes_[static_cast<unsigned char>(c)]);
    }
}

}  // namespace atl::tokenizer
