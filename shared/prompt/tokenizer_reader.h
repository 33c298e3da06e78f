#pragma once

namespace atl::prompt {

// How the trainer reads the files of tokenizers: one more wherever the same files give other ids than before, so that
// data which an older program prepared cannot pass for data of this one. data.json of tokenised data has it as
// "tokenizer_reader", and the registry keeps it with each version.
constexpr int kTokenizerReader = 4;

}  // namespace atl::prompt
