#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"
#include "shared/prompt/tokenizer_reader.h"

namespace atl::tokenizer {

// How this program reads the files of tokenizers, which the coordinator compares with how data were prepared.
constexpr int kReader = prompt::kTokenizerReader;

// Turns text into token ids and back, as the tokenizer of the same files does in transformers. Immutable after open():
// any number of threads may use one tokenizer.
//
//   ATOLL_TRY(const auto tokenizer, Tokenizer::open("/models/llama"));
//   std::vector<std::int32_t> ids;
//   ATOLL_RETURN_IF_ERROR(tokenizer->encode("Ciao", ids));
//   tokenizer->decode(ids);  // "Ciao"
class Tokenizer {
  public:
    virtual ~Tokenizer() = default;

    // Opens the tokenizer of a Hugging Face directory: tokenizer.model (SentencePiece), tokenizer.json (BPE) or
    // vocab.json with merges.txt (BPE in GPT-2's files), the first that is there; of the first two the tokenizer.json
    // where they differ. kNotFound when there is no
    // such directory, or none of them in it; kInvalidArgument names the file that is wrong, a file in the directory's
    // place too.
    static Result<std::unique_ptr<Tokenizer>> open(const std::filesystem::path& directory);

    // Appends the ids of `text` to `ids`, without any special token around it. Bytes that are not UTF-8 are taken as
    // U+FFFD, as the reference implementations take them. kInvalidArgument: the tokenizer's expression runs away on it,
    // or its steps make far too much of it.
    virtual Status encode(std::string_view text, std::vector<std::int32_t>& ids) const = 0;

    // As encode(), of what follows a special token. Where `legacy` of tokenizer_config.json is not true, a
    // tokenizer.model then puts no space before the text, as transformers does, and nor does a tokenizer.json whose
    // Metaspace does so at a document's beginning. kInvalidArgument also: a tokenizer.model that adds the space and is
    // not BPE of Llama's kind.
    virtual Status encode_behind(std::string_view text, std::vector<std::int32_t>& ids) const {
        return encode(text, ids);
    }

    // The text of `ids`; special tokens (beginning, end, padding) are left out. Decoder steps of a tokenizer.json that
    // make far too much of it are not applied (see decode_tokens()).
    virtual std::string decode(std::span<const std::int32_t> ids) const = 0;

    virtual std::int32_t vocab_size() const = 0;
    virtual std::optional<std::int32_t> bos() const = 0;
    virtual std::optional<std::int32_t> eos() const = 0;

    // The ids of a prompt to continue: the beginning token when the tokenizer adds one, then the text. No end token.
    // tokenizer.json decides by its post-processor, the others by tokenizer_config.json's add_bos_token; without
    // it they add none, but for a tokenizer.model of CodeLlamaTokenizer.
    Result<std::vector<std::int32_t>> encode_prompt(std::string_view text) const;

    // Appends the ids of one training document: as encode_prompt, then the end token, so that a model learns where a
    // text ends. (HF's Llama tokenizers leave the end token out unless add_eos_token is set; training needs it.)
    Status encode_document(std::string_view text, std::vector<std::int32_t>& ids) const;

    struct SpecialToken {
        std::int32_t id = 0;
        bool strips_spaces = false;  // lstrip or rstrip: takes the white space beside it with it
        bool stays_text = true;      // where it is written out in a text; else it is found there
    };
    // By their texts: the tokens that a chat template may hold (added ones, and of a tokenizer.model control and
    // user-defined pieces).
    const std::map<std::string, SpecialToken, std::less<>>& special_tokens() const { return special_tokens_; }
    // The text of a special token; empty: of none.
    std::string special_text(std::optional<std::int32_t> id) const;

    // The file that defines the tokenizer: tokenizer.model, tokenizer.json or vocab.json.
    const std::filesystem::path& file() const { return file_; }
    // By which data directories name their tokenizer: over the bytes of its files and the settings that decide the ids
    // as well, whichever files beside it they came from. Two directories whose tokenizers give the same ids for other
    // reasons than the same settings (another order of the vocabulary) differ.
    const std::string& sha256() const { return sha256_; }

  protected:
    std::filesystem::path file_;
    std::string settings_;  // of this kind of tokenizer, for sha256(): the same text for the same settings
    std::string sha256_;
    std::map<std::string, SpecialToken, std::less<>> special_tokens_;
    bool add_bos_ = true;
};

}  // namespace atl::tokenizer
