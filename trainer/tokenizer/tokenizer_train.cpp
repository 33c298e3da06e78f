#include "trainer/tokenizer/tokenizer_train.h"

#include <sentencepiece_trainer.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <string_view>
#include <unordered_map>

#include "shared/base/file.h"
#include "shared/base/staged_directory.h"
#include "shared/log/log.h"
#include "shared/prompt/template.h"
#include "trainer/text/record_reader.h"
#include "trainer/text/rows.h"

namespace atl::tokenizer {
namespace {

// unk, bos, eos, 256 bytes and one piece of text.
constexpr std::int64_t kVocabSizeMin = 260;
constexpr std::int64_t kVocabSizeMax = 1'000'000;
constexpr char kModelFile[] = "tokenizer.model";
// The library skips longer sentences; we cut them instead.
constexpr std::size_t kSentenceBytesMax = 4000;

// Appends the lines of `text`; a long one is cut at spaces.
void add_sentences(std::string_view text, std::vector<std::string>& sentences) {
    while (!text.empty()) {
        const auto newline = text.find('\n');
        std::string_view line = text.substr(0, newline);
        text.remove_prefix(newline == std::string_view::npos ? text.size() : newline + 1);
        while (line.size() > kSentenceBytesMax) {
            const auto space = line.rfind(' ', kSentenceBytesMax);
            if (space == std::string_view::npos || space == 0) break;  // one endless word: the library skips it
            sentences.emplace_back(line.substr(0, space));
            line.remove_prefix(space + 1);
        }
        if (!line.empty()) sentences.emplace_back(line);
    }
}

Status add_block(const text::RecordBlock& block, const std::filesystem::path& file,
                 const prompt::Template& text_template, std::vector<std::string>& sentences) {
    return text::for_each_row(block, file, true, [&](const nlohmann::json& row, const std::string& where) -> Status {
        if (block.format == text::InputFormat::kLines) {
            add_sentences(row.at("text").get_ref<const std::string&>(), sentences);
            return {};
        }
        ATOLL_TRY(const prompt::Document document, text_template.render(row, where));
        add_sentences(document.text, sentences);
        return {};
    });
}

// Text is read line by line, as sentences are no documents.
Result<std::vector<text::InputFile>> open_inputs(const TokenizerTrainOptions& options) {
    ATOLL_TRY(auto files, text::open_inputs(options.inputs,
                                            {.format = options.input_format, .fallback = text::InputFormat::kLines}));
    for (text::InputFile& file : files)
        if (file.format == text::InputFormat::kText) file.format = text::InputFormat::kLines;
    return files;
}

Result<std::vector<std::string>> read_sentences(const TokenizerTrainOptions& options) {
    ATOLL_TRY(const prompt::Template text_template, prompt::Template::parse(options.text_template));
    ATOLL_TRY(const std::vector<text::InputFile> files, open_inputs(options));
    std::vector<std::string> sentences;
    text::RecordReader reader(files);
    for (;;) {
        ATOLL_TRY(const std::optional<text::RecordBlock> block, reader.next());
        if (!block) break;
        ATOLL_RETURN_IF_ERROR(add_block(*block, files[block->file].path, text_template, sentences));
    }
    if (sentences.empty()) return invalid_argument("input", "the input holds no text to train a tokenizer on");
    return sentences;
}

class VectorIterator final : public sentencepiece::SentenceIterator {
  public:
    explicit VectorIterator(const std::vector<std::string>& sentences) : sentences_(sentences) {}
    bool done() const override { return index_ == sentences_.size(); }
    void Next() override { ++index_; }
    const std::string& value() const override { return sentences_[index_]; }
    sentencepiece::util::Status status() const override { return {}; }

  private:
    const std::vector<std::string>& sentences_;
    std::size_t index_ = 0;
};

// As Llama's tokenizer was trained. The model records these settings, so none may name a path or the machine.
std::unordered_map<std::string, std::string> trainer_settings(const TokenizerTrainOptions& options) {
    return {
        {"model_type", "bpe"},
        {"vocab_size", std::to_string(options.vocab_size)},
        {"character_coverage", std::to_string(options.character_coverage)},
        {"byte_fallback", "true"},
        {"split_digits", "true"},
        {"allow_whitespace_only_pieces", "true"},
        {"remove_extra_whitespaces", "false"},
        {"normalization_rule_name", "identity"},
        {"max_sentence_length", std::to_string(kSentenceBytesMax + 1)},
        {"unk_id", "0"},
        {"bos_id", "1"},
        {"eos_id", "2"},
        {"pad_id", "-1"},
        {"minloglevel", "2"},
    };
}

// SentencePiece's own words, put for people: it fails when the characters alone need more pieces than there may be, or
// when the text has not so many.
Error cannot_train(const TokenizerTrainOptions& options, const std::string& words) {
    static const std::regex too_few(R"(required_chars\. \d+ vs (\d+))"), too_many(R"(value <= (\d+))");
    const std::string pieces = "--vocab-size " + std::to_string(options.vocab_size);
    std::smatch number;
    if (std::regex_search(words, number, too_few))
        return invalid_argument("vocab-size", pieces +
                                                  " is too small: bytes, special tokens and the characters of this " +
                                                  "text alone are " + number[1].str() +
                                                  " pieces; give at least that, or a lower " + "--character-coverage");
    if (std::regex_search(words, number, too_many))
        return invalid_argument("vocab-size", pieces + " is too large: this text has only " + number[1].str() +
                                                  " pieces; give at most that, or more text");
    return invalid_argument("vocab-size", pieces + ": no tokenizer can be trained on this text: " + words);
}

// The library is silent while it works, for minutes with much text and many pieces.
void say_what_is_trained(const TokenizerTrainOptions& options, const std::vector<std::string>& sentences) {
    std::size_t bytes = 0;
    for (const std::string& sentence : sentences) bytes += sentence.size();
    const bool is_small = bytes < 1'000'000;
    spdlog::info("tokenizer-train: looks for {} pieces in {:.1f} {} of text, {} lines of at most {} bytes",
                 options.vocab_size, static_cast<double>(bytes) / (is_small ? 1e3 : 1e6), is_small ? "kB" : "MB",
                 sentences.size(), kSentenceBytesMax);
}

Result<std::string> train_model(const TokenizerTrainOptions& options, const std::vector<std::string>& sentences) {
    say_what_is_trained(options, sentences);
    VectorIterator iterator(sentences);
    std::string model;
    const auto status = sentencepiece::SentencePieceTrainer::Train(trainer_settings(options), &iterator, &model);
    if (!status.ok()) return cannot_train(options, status.ToString());
    return model;
}

std::string tokenizer_config() {
    const nlohmann::ordered_json config = {
        {"tokenizer_class", "LlamaTokenizer"},
        {"bos_token", "<s>"},
        {"eos_token", "</s>"},
        {"unk_token", "<unk>"},
        {"pad_token", nullptr},
        {"add_bos_token", true},
        {"add_eos_token", false},
        {"legacy", false},
        {"clean_up_tokenization_spaces", false},
    };
    return config.dump(2) + "\n";
}

}  // namespace

bool is_trained_tokenizer_file(std::string_view name) {
    return name == kModelFile || name == "tokenizer_config.json" || name == "special_tokens_map.json";
}

Status train_tokenizer(const TokenizerTrainOptions& options) {
    if (options.vocab_size < kVocabSizeMin || options.vocab_size > kVocabSizeMax)
        return invalid_argument(
            "vocab-size", "must be between " + std::to_string(kVocabSizeMin) + " and " + std::to_string(kVocabSizeMax));
    if (!(options.character_coverage > 0.0 && options.character_coverage <= 1.0))
        return invalid_argument("character-coverage", "must be above 0 and at most 1");
    if (options.inputs.empty()) return invalid_argument("input", "names no file");
    // From the start: whoever comes second is refused at once and does not replace what the first one makes.
    ATOLL_TRY(StagedDirectory staged, StagedDirectory::create(options.out));
    ATOLL_TRY(const std::vector<std::string> sentences, read_sentences(options));
    ATOLL_TRY(const std::string model, train_model(options, sentences));
    const nlohmann::ordered_json special = {{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}};
    ATOLL_RETURN_IF_ERROR(write_file_atomic(staged.path() / "tokenizer_config.json", tokenizer_config()));
    ATOLL_RETURN_IF_ERROR(write_file_atomic(staged.path() / "special_tokens_map.json", special.dump(2) + "\n"));
    ATOLL_RETURN_IF_ERROR(write_file_atomic(staged.path() / kModelFile, model));
    return staged.commit(kModelFile, [](const std::string& name) { return is_trained_tokenizer_file(name); });
}

}  // namespace atl::tokenizer
