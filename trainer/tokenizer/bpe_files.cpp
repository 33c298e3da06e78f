#include "trainer/tokenizer/bpe_files.h"

#include <algorithm>
#include <utility>

#include "trainer/tokenizer/pre_tokenizer.h"
#include "trainer/tokenizer/tokenizer_fields.h"

namespace atl::tokenizer {
namespace {

constexpr std::string_view kEndOfText = "<|endoftext|>";

Status check_class(const std::string& name) {
    if (name.empty() || name == "GPT2Tokenizer" || name == "GPT2TokenizerFast") return {};
    return fields::bad("tokenizer_class", "\"" + name + "\" with vocab.json and merges.txt is not supported");
}

// A line a merge, "left right", best first; lines that begin with "#version" say nothing.
Status read_merges(std::string_view text, ByteLevelParts& parts) {
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

// A special token of the vocabulary is one, and so is what was added behind the vocabulary.
Status add_tokens(const TokenizerConfig& config, ByteLevelParts& parts) {
    for (const auto& token : config.added_tokens) {
        const auto found = parts.vocab.find(token.content);
        if (found != parts.vocab.end() && found->second != token.id)
            return fields::bad("vocab.json", "\"" + token.content + "\" has another id than as an added token");
        parts.added_tokens.push_back(token);
    }
    const auto is_added = [&](const std::string& content) {
        return std::any_of(parts.added_tokens.begin(), parts.added_tokens.end(),
                           [&](const auto& token) { return token.content == content; });
    };
    for (const std::string& content : config.specials) {
        const auto found = parts.vocab.find(content);
        if (found != parts.vocab.end() && !is_added(content))
            parts.added_tokens.push_back({found->second, content, true, false});
    }
    return {};
}

}  // namespace

Result<ByteLevelParts> parse_bpe_files(std::string_view vocab_json, std::string_view merges_text,
                                       TokenizerConfig& config) {
    ATOLL_RETURN_IF_ERROR(check_class(config.tokenizer_class));
    const auto vocab = json::parse(vocab_json);
    if (!vocab.ok()) return fields::bad("vocab.json", vocab.error().message);
    if (!vocab->is_object()) return fields::bad("vocab.json", "is no JSON object");
    ByteLevelParts parts;
    parts.vocab_field = "vocab.json";
    parts.merges_field = "merges.txt";
    parts.add_prefix_space = config.add_prefix_space;
    parts.split_expressions.emplace_back(kGpt2Expression);
    ATOLL_RETURN_IF_ERROR(fields::read_vocab(*vocab, parts.vocab_field, parts));
    ATOLL_RETURN_IF_ERROR(read_merges(merges_text, parts));
    for (std::string* token : {&config.bos, &config.eos}) {
        if (!token->empty() || !parts.vocab.contains(std::string(kEndOfText))) continue;
        *token = kEndOfText;
        config.specials.push_back(*token);
    }
    ATOLL_RETURN_IF_ERROR(add_tokens(config, parts));
    return parts;
}

}  // namespace atl::tokenizer
