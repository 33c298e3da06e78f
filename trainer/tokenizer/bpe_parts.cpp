#include "trainer/tokenizer/bpe_parts.h"

#include <algorithm>

#include "trainer/tokenizer/bpe.h"
#include "trainer/tokenizer/tokenizer_fields.h"

namespace atl::tokenizer {
namespace {

constexpr const char* kEndOfText = "<|endoftext|>";

// Classes of transformers 5 that take no more than vocabulary and merges from tokenizer.json: the pre-tokenizer has the
// config's add_prefix_space, and <|endoftext|> has the roles that the config does not name. Other classes take all of
// it from tokenizer.json.
bool takes_merges_only(const TokenizerConfig& config) {
    return config.tokenizer_class == "GPT2Tokenizer" || config.tokenizer_class == "Qwen2Tokenizer";
}

// Classes of transformers 5 to which an added_tokens_decoder is all added tokens that there are. Others, as the general
// ones, add them to those of tokenizer.json.
bool replaces_added_tokens(const TokenizerConfig& config) {
    return takes_merges_only(config) || config.is_llama() || config.tokenizer_class == "CodeGenTokenizer" ||
           config.tokenizer_class == "GPTNeoXTokenizer" || config.tokenizer_class == "CohereTokenizer";
}

// The token that a class gives a role which the config does not name; empty: none.
std::string default_token(const TokenizerConfig& config, const BpeParts& parts, const std::string& role) {
    std::string token;
    if (takes_merges_only(config) && (role == "eos_token" || config.tokenizer_class == "GPT2Tokenizer"))
        token = kEndOfText;
    if (config.tokenizer_class == "LlamaTokenizer" && !parts.is_byte_level())
        token = role == "eos_token" ? "</s>" : "<s>";
    if (config.tokenizer_class == "GemmaTokenizer") token = role == "eos_token" ? "<eos>" : "<bos>";
    return parts.vocab.contains(token) ? token : std::string();
}

// Takes away what puts a space before texts, and what takes it from the front of decoded ones.
void drop_prefix_space(BpeParts& parts) {
    parts.drops_prefix_space = true;
    std::erase_if(parts.normalizer,
                  [](const NormalizerStep& step) { return step.kind == NormalizerStep::Kind::kPrepend; });
    for (PreTokenizerStep& step : parts.pre_tokenizer) step.prepend = PrependScheme::kNever;
    if (!parts.decoder) return;
    std::erase_if(*parts.decoder, [](const DecoderStep& step) { return step.kind == DecoderStep::Kind::kStrip; });
    for (DecoderStep& step : *parts.decoder) step.drops_first = false;
}

}  // namespace

bool BpeParts::is_byte_level() const {
    return std::any_of(pre_tokenizer.begin(), pre_tokenizer.end(),
                       [](const PreTokenizerStep& step) { return step.kind == PreTokenizerStep::Kind::kByteLevel; });
}

bool BpeParts::has_llama_steps(bool legacy) const {
    if (!normalizer.empty() || pre_tokenizer.size() != 1) return false;
    const PreTokenizerStep& step = pre_tokenizer.front();
    return step.kind == PreTokenizerStep::Kind::kMetaspace && !step.splits && step.replacement == kSpaceMark &&
           step.prepend == (legacy ? PrependScheme::kAlways : PrependScheme::kFirst);
}

Status apply_config(const TokenizerConfig& config, BpeParts& parts) {
    const Vocabulary vocabulary{[&](const std::string& token) {
                                    const auto found = parts.vocab.find(token);
                                    return found == parts.vocab.end() ? std::nullopt : std::optional(found->second);
                                },
                                static_cast<std::int32_t>(parts.vocab.size())};
    const bool is_own_class = takes_merges_only(config);
    if (config.has_decoder && replaces_added_tokens(config)) parts.added_tokens.clear();
    ATOLL_RETURN_IF_ERROR(add_configured_tokens(config, vocabulary, parts.added_tokens));
    if (is_own_class) parts.add_prefix_space = config.add_prefix_space.value_or(false);
    if (config.drops_prefix_space() && !parts.is_byte_level()) drop_prefix_space(parts);
    parts.bos = config.token_of("bos_token", default_token(config, parts, "bos_token"));
    parts.eos = config.token_of("eos_token", default_token(config, parts, "eos_token"));
    return {};
}

}  // namespace atl::tokenizer
