#pragma once

#include <span>
#include <string>
#include <string_view>

// What other programs call our settings: transformers' TrainingArguments, DeepSpeed, accelerate, torchrun, peft,
// llama-recipes, Megatron-LM. Whoever uses one of their words is told ours.
namespace atl::run_settings {

struct OtherWord {
    std::string_view word;          // as a key: "learning_rate"
    std::string_view option;        // our setting, "lr"; empty: there is none, and the note says what to do
    std::string_view value = {};    // that says the same: "bf16"; empty: any
    std::string_view note = {};     // what is different; may be empty
    std::string_view command = {};  // of another command than `train`: "tokenize"
};

std::span<const OtherWord> other_words();
// `word` as a flag or a key, in any case. Null: nobody's word.
const OtherWord* find_other_word(std::string_view word);
// Whether it says how ranks are started, and how many.
bool is_of_launcher(const OtherWord& other);
// The end of an error about that word: "is --lr here". `is_of_command` tells whether the command at hand has the flag;
// else the text says which has it.
std::string our_word(const OtherWord& other, bool is_of_command = true);

}  // namespace atl::run_settings
