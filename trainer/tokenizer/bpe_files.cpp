#include "trainer/tokenizer/bpe_files.h"

#include <algorithm>
#include <utility>

#include "trainer/tokenizer/tokenizer_fields.h"

namespace atl::tokenizer {
namespace {

constexpr const char* kClass = "GPT2Tokenizer";

Status check_class(const std::string& name) {
    if (name.empty() || name == kClass) return {};
    return fields::bad("tokenizer_class", "\"" + name + "\" with vocab.json and merges.txt is not supported");
}

// A line a merge, "left right", best first; lines that begin with "#version" say nothing.
Status read_merges(std::string_view text, BpeParts& parts) {
    for (std::size_t number = 1; !text.empty(); ++number) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (line.ends_with('\r')) line.remove_suffix(1);
        if (line.starts_with("#version")) continue;
        const std::size_t space = line.find(' ');
        if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos)
            return fields::bad("merges.txt", "line " + std::to_string(number) + " is no pair of tokens");
        parts.merges.emplace_back(line.substr(0, space), line.substr(space + 1));
    }
    return {};
}

}  // namespace

Result<BpeParts> parse_bpe_files(std::string_view vocab_json, std::string_view merges_text, TokenizerConfig config) {
    ATOLL_RETURN_IF_ERROR(check_class(config.tokenizer_class));
    config.tokenizer_class = kClass;
    const auto vocab = json::parse(vocab_json);
    if (!vocab.ok()) return fields::bad("vocab.json", vocab.error().message);
    if (!vocab->is_object()) return fields::bad("vocab.json", "is no JSON object");
    BpeParts parts;
    parts.vocab_field = "vocab.json";
    parts.merges_field = "merges.txt";
    parts.pre_tokenizer.push_back({.kind = PreTokenizerStep::Kind::kByteLevel});
    parts.decoder = {DecoderStep{.kind = DecoderStep::Kind::kByteLevel}};
    ATOLL_RETURN_IF_ERROR(fields::read_vocab(*vocab, parts.vocab_field, parts));
    ATOLL_RETURN_IF_ERROR(read_merges(merges_text, parts));
    ATOLL_RETURN_IF_ERROR(apply_config(config, parts));
    return parts;
}

}  // namespace atl::tokenizer
