#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"
#include "trainer/text/input_format.h"

namespace atl::tokenizer {

// The command `tokenizer-train`: a SentencePiece BPE tokenizer in Llama's manner (byte fallback, digits apart, no
// normalisation, unk 0, bos 1, eos 2).
struct TokenizerTrainOptions {
    std::vector<std::filesystem::path> inputs;      // rows are rendered by the template, text is read line by line
    std::optional<text::InputFormat> input_format;  // of all of them; not given: as each one tells, else text
    std::string text_template = "{{text}}";
    std::filesystem::path out;    // gets tokenizer.model, tokenizer_config.json and special_tokens_map.json
    std::int64_t vocab_size = 0;  // at least 260: three special tokens, 256 bytes and the text's own pieces
    double character_coverage = 0.9998;
};

// Whether it makes a file of this name.
bool is_trained_tokenizer_file(std::string_view name);

// The same input and options give the same bytes. An error, a full disk too, leaves what was at `out`.
// kInvalidArgument: the text is too small for vocab_size, a bad row. kConflict: another process is writing into `out`.
Status train_tokenizer(const TokenizerTrainOptions& options);

}  // namespace atl::tokenizer
