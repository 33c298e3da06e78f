#include "trainer/tokenizer/byte_level_parts.h"

#include "trainer/tokenizer/tokenizer_fields.h"

namespace atl::tokenizer {
namespace {

constexpr const char* kEndOfText = "<|endoftext|>";

// Classes of transformers 5 that take no more than vocabulary and merges from tokenizer.json: the pre-tokenizer has the
// config's add_prefix_space, an added_tokens_decoder replaces the added tokens, and <|endoftext|> has the roles that
// the config does not name. Other classes take all of it from tokenizer.json.
bool takes_merges_only(const TokenizerConfig& config) {
    return config.tokenizer_class == "GPT2Tokenizer" || config.tokenizer_class == "Qwen2Tokenizer";
}

}  // namespace

Status apply_config(const TokenizerConfig& config, ByteLevelParts& parts) {
    const Vocabulary vocabulary{[&](const std::string& token) {
                                    const auto found = parts.vocab.find(token);
                                    return found == parts.vocab.end() ? std::nullopt : std::optional(found->second);
                                },
                                static_cast<std::int32_t>(parts.vocab.size())};
    const bool is_own_class = takes_merges_only(config);
    if (is_own_class && config.has_decoder) parts.added_tokens.clear();
    ATOLL_RETURN_IF_ERROR(add_configured_tokens(config, vocabulary, parts.added_tokens));
    if (is_own_class) parts.add_prefix_space = config.add_prefix_space.value_or(false);
    const bool has_default = is_own_class && parts.vocab.contains(kEndOfText);
    const bool is_gpt2 = config.tokenizer_class == "GPT2Tokenizer";
    parts.bos = config.token_of("bos_token", has_default && is_gpt2 ? kEndOfText : "");
    parts.eos = config.token_of("eos_token", has_default ? kEndOfText : "");
    return {};
}

}  // namespace atl::tokenizer
