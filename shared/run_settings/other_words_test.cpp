#include "shared/run_settings/other_words.h"

#include <gtest/gtest.h>

#include <set>

#include "shared/base/file.h"
#include "shared/json/json.h"
#include "shared/run_settings/run_settings.h"

namespace atl::run_settings {
namespace {

std::string answer_to(const std::string& key, Commands command = kTrain) {
    RunConfig config;
    const Status status = assign_json(config, {{key, 1}}, command);
    return status.ok() ? "" : describe(status.error());
}

TEST(OtherWordsTest, WordsOfOthersAreAnsweredWithOurs) {
    EXPECT_EQ(answer_to("learning_rate"), "learning_rate: is lr here");
    EXPECT_EQ(answer_to("bf16"), "bf16: is precision bf16 here");
    EXPECT_EQ(answer_to("warmup_ratio"),
              "warmup_ratio: is warmup_steps here: a number of steps: the ratio times steps");
    EXPECT_EQ(answer_to("learning_rate", kEval), "learning_rate: is lr of `train` here");
    EXPECT_EQ(answer_to("max_seq_length"),
              "max_seq_length: is --seq-len of `tokenize` here: rows are as long as tokenize made them");
    EXPECT_EQ(answer_to("packing"), "packing: is --batching packing of `tokenize` here");
    EXPECT_EQ(answer_to("config_file"),
              "config_file: is --config of `train` here: `atoll-trainer config-from` translates an accelerate file");
    EXPECT_EQ(answer_to("nproc_per_node"),
              "nproc_per_node: is not a setting here: the launcher starts the ranks: mpirun -n N, or srun");
    EXPECT_EQ(answer_to("low_cpu_fsdp"),
              "low_cpu_fsdp: is not a setting here: each rank reads only its part of the model: leave it out");
    EXPECT_EQ(answer_to("quantization"), "quantization: is quantize here: 4bit is nf4, 8bit int8");
    EXPECT_EQ(answer_to("val_batch_size").find("val_batch_size: is batch_size here"), 0U)
        << answer_to("val_batch_size");
    for (const char* word : {"save_total_limit", "tf32", "run_validation", "use_rslora"})
        EXPECT_EQ(answer_to(word).find("no such setting"), std::string::npos) << answer_to(word);
    EXPECT_EQ(answer_to("stpes"), "stpes: there is no such setting; did you mean steps?");
    EXPECT_EQ(answer_to("prompt"), "prompt: is a setting of other commands");
    ASSERT_NE(find_other_word("--Learning-Rate"), nullptr);
    EXPECT_EQ(our_word(*find_other_word("--learning-rate")), "is --lr here");
    EXPECT_EQ(find_other_word("--"), nullptr);
    EXPECT_TRUE(is_of_launcher(*find_other_word("num_gpus")));
    EXPECT_FALSE(is_of_launcher(*find_other_word("logging_steps")));
}

TEST(OtherWordsTest, NoWordOfOthersIsOursAndEachLeadsToASettingThatTakesTheValue) {
    std::set<std::string_view> seen;
    for (const OtherWord& other : other_words()) {
        EXPECT_TRUE(seen.insert(other.word).second) << other.word << " is there twice";
        EXPECT_EQ(find_other_word(other.word), &other) << other.word;
        for (const Option& option : options()) EXPECT_NE(option.key(), other.word);
        EXPECT_FALSE(other.option.empty() && other.note.empty()) << other.word;
        // Flags of other commands are asked of those in trainer/program/bad_input_test.cpp.
        if (other.option.empty() || other.option == "config" || !other.command.empty()) continue;
        const Option* option = find_option(other.option, kEvery);
        ASSERT_NE(option, nullptr) << other.word;
        RunConfig config;
        EXPECT_TRUE(other.value.empty() || assign(config, *option, other.value).ok()) << other.word;
    }
}

}  // namespace
}  // namespace atl::run_settings
