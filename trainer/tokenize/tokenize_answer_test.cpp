#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "shared/base/file.h"
#include "shared/safetensors/file.h"
#include "trainer/dataset/dataset.h"
#include "trainer/tensor/targets.h"
#include "trainer/tokenize/tokenize.h"
#include "trainer/tokenizer/tokenizer.h"

namespace atl::tokenize {
namespace {

using Ids = std::vector<std::int32_t>;

// What the loss counts and what is cut, for both batchings.
class TokenizeAnswerTest : public testing::Test {
  protected:
    TokenizeAnswerTest() {
        use_tokenizer("small");
        options_.inputs = {directory_.path() / "in.jsonl"};
        options_.out = directory_.path() / "out";
        options_.seq_len = 64;
        options_.text_template = "{{q}}\n{{#answer}}{{a}}{{/answer}}";
        write({{"Il treno parte", "alle sette"}, {"Vlak", "v sedm hodin, 1999"}});
    }

    void use_tokenizer(const char* name) {
        options_.tokenizer = std::filesystem::path(ATOLL_FIXTURES) / "tokenizers" / name;
        tokenizer_ = tokenizer::Tokenizer::open(options_.tokenizer).value();
    }
    void write(const std::vector<std::pair<std::string, std::string>>& rows) const {
        std::string text;
        for (const auto& [q, a] : rows) text += nlohmann::json{{"q", q}, {"a", a}}.dump() + "\n";
        check(write_file_atomic(options_.inputs[0], text).ok(), "cannot write a test's file");
    }
    TokenizeReport run() {
        auto report = tokenize(options_);
        check(report.ok(), report.ok() ? "" : report.error().message);
        return *report;
    }
    dataset::Batch batch() const {
        const dataset::Dataset dataset = dataset::Dataset::open(options_.out).value();
        dataset::Batch all;
        EXPECT_TRUE(dataset.read(dataset::RowOrder(dataset.rows(), false, 0), 0, dataset.rows(), all).ok());
        return all;
    }
    // Counted from the rows.
    std::int64_t targets() const {
        const dataset::Batch all = batch();
        std::int64_t count = 0;
        for (std::size_t i = 0; i < all.labels.size(); ++i) {
            const bool is_first = i % static_cast<std::size_t>(all.seq_len) == 0 ||
                                  (!all.segment_ids.empty() && all.segment_ids[i] != all.segment_ids[i - 1]);
            count += !is_first && all.labels[i] != tensor::kIgnoredLabel;
        }
        return count;
    }
    Ids document(const std::string& text) const {
        Ids ids;
        check(tokenizer_->encode_document(text, ids).ok(), "cannot encode");
        return ids;
    }
    // A document's labels when its first `uncounted` tokens do not count.
    static Ids labels_from(Ids ids, std::size_t uncounted) {
        std::fill_n(ids.begin(), uncounted, tensor::kIgnoredLabel);
        return ids;
    }

    TemporaryDirectory directory_;
    TokenizeOptions options_;
    std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
};

TEST_F(TokenizeAnswerTest, OnlyTheAnswersTokensAndTheEndCount) {
    for (const char* name : {"small", "gpt2", "llama3"}) {
        use_tokenizer(name);
        for (const char* batching : {"packing", "padding"}) {
            options_.batching = parse_batching(batching).value();
            run();
            const dataset::Batch all = batch();
            Ids expected;
            for (const auto& [prompt, text] : {std::pair("Il treno parte\n", "Il treno parte\nalle sette"),
                                               std::pair("Vlak\n", "Vlak\nv sedm hodin, 1999")}) {
                const std::size_t uncounted = tokenizer_->encode_prompt(prompt).value().size();
                const Ids labels = labels_from(document(text), uncounted);
                ASSERT_GT(labels.size(), uncounted + 1);
                expected.insert(expected.end(), labels.begin(), labels.end());
                if (options_.batching == Batching::kPadding) expected.resize((expected.size() + 63) / 64 * 64, -100);
            }
            expected.resize(all.labels.size(), tensor::kIgnoredLabel);
            EXPECT_EQ(all.labels, expected) << name << ", " << batching;
            EXPECT_EQ(all.segment_ids.empty(), options_.batching == Batching::kPadding);
        }
    }
}

TEST_F(TokenizeAnswerTest, TargetsAreTheTokensThatCountBehindOneOfTheirDocument) {
    for (const char* batching : {"packing", "padding"}) {
        options_.batching = parse_batching(batching).value();
        for (const std::int64_t seq_len : {5, 64}) {
            options_.seq_len = seq_len;
            for (const LossOn loss_on : {LossOn::kAnswer, LossOn::kAll}) {
                options_.loss_on = loss_on;
                options_.truncate = false;
                const TokenizeReport report = run();
                EXPECT_EQ(report.targets, targets()) << batching << ", " << seq_len << ", " << to_string(loss_on);
                EXPECT_EQ(nlohmann::json::parse(read_file(options_.out / "data.json").value())["targets"], targets());
            }
        }
    }
}

TEST_F(TokenizeAnswerTest, WhereNoTokenCountsNothingIsWritten) {
    options_.batching = Batching::kPadding;
    options_.seq_len = 4;  // the questions are longer
    const auto report = tokenize(options_);
    ASSERT_FALSE(report.ok());
    EXPECT_EQ(report.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(report.error().field, "seq-len");
    EXPECT_NE(report.error().message.find("2 of 2 "), std::string::npos);
    EXPECT_FALSE(std::filesystem::exists(options_.out));
    options_.truncate = false;
    EXPECT_GT(run().targets, 0);
}

TEST_F(TokenizeAnswerTest, TextAfterAnAnswerDoesNotCountNorDoesTheEnd) {
    options_.text_template = "{{#answer}}{{a}}{{/answer}}\n{{q}}";
    run();
    const Ids ids = document("alle sette\nIl treno parte");
    Ids expected(ids.size(), tensor::kIgnoredLabel);
    const std::size_t begin = tokenizer_->encode_prompt("").value().size();
    const std::size_t end = tokenizer_->encode_prompt("alle sette").value().size();
    std::copy(ids.begin() + static_cast<std::ptrdiff_t>(begin), ids.begin() + static_cast<std::ptrdiff_t>(end),
              expected.begin() + static_cast<std::ptrdiff_t>(begin));
    Ids labels = batch().labels;
    labels.resize(ids.size());
    EXPECT_EQ(labels, expected);
}

// "A: " + "ciao" may be one token from the space on: it reaches into the answer and counts.
TEST_F(TokenizeAnswerTest, ATokenThatReachesIntoTheAnswerCounts) {
    options_.text_template = "{{q}}: {{#answer}}{{a}}{{/answer}}";
    write({{"A", "il treno"}});
    run();
    const Ids joined = document("A: il treno");
    const Ids alone = tokenizer_->encode_prompt("A: ").value();
    ASSERT_NE(alone.back(), joined[alone.size() - 1]) << "the space and the word are one token here";
    Ids labels = batch().labels;
    labels.resize(joined.size());
    EXPECT_EQ(labels, labels_from(joined, alone.size() - 1));
}

TEST_F(TokenizeAnswerTest, TheInputsAreTheSameWhateverTheLossIsOn) {
    run();
    const dataset::Batch answer = batch();
    options_.loss_on = LossOn::kAll;
    run();
    const dataset::Batch all = batch();
    EXPECT_EQ(all.input_ids, answer.input_ids);
    EXPECT_EQ(all.segment_ids, answer.segment_ids);
    EXPECT_NE(all.labels, answer.labels);
    const auto file = safetensors::File::open(options_.out / "data.safetensors");
    EXPECT_EQ(file->header().find("labels"), nullptr) << "packed rows need none when all tokens count";
}

TEST_F(TokenizeAnswerTest, LossOnAnswersNeedsATemplateThatMarksThem) {
    options_.text_template = "{{q}} {{a}}";
    options_.loss_on = LossOn::kAnswer;
    const auto report = tokenize(options_);
    ASSERT_FALSE(report.ok());
    EXPECT_EQ(report.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(report.error().field, "loss-on");
}

TEST_F(TokenizeAnswerTest, WithoutTruncationPaddedDocumentsGoOnInRowsOfTheirOwn) {
    options_.batching = Batching::kPadding;
    options_.truncate = false;
    options_.seq_len = 8;
    const TokenizeReport report = run();
    EXPECT_EQ(report.truncated, 0);
    EXPECT_EQ(report.tokens_truncated, 0);
    const dataset::Batch all = batch();
    Ids expected;
    for (const char* text : {"Il treno parte\nalle sette", "Vlak\nv sedm hodin, 1999"}) {
        const Ids ids = document(text);
        ASSERT_GT(ids.size(), 8U);
        expected.insert(expected.end(), ids.begin(), ids.end());
        expected.resize((expected.size() + 7) / 8 * 8, tokenizer_->eos().value());
    }
    EXPECT_EQ(all.input_ids, expected);
}

TEST_F(TokenizeAnswerTest, TruncationCutsPackedDocumentsAndCountsThem) {
    options_.truncate = true;
    options_.seq_len = 8;
    const TokenizeReport report = run();
    Ids expected;
    std::int64_t cut = 0;
    for (const char* text : {"Il treno parte\nalle sette", "Vlak\nv sedm hodin, 1999"}) {
        const Ids ids = document(text);
        expected.insert(expected.end(), ids.begin(), ids.begin() + 8);
        cut += std::ssize(ids) - 8;
    }
    EXPECT_EQ(batch().input_ids, expected);
    EXPECT_EQ(report.truncated, 2);
    EXPECT_EQ(report.tokens_truncated, cut);
    const auto info = nlohmann::json::parse(read_file(options_.out / "data.json").value());
    EXPECT_EQ(info["truncate"], true);
    EXPECT_EQ(info["truncated"], 2);
    EXPECT_EQ(info["loss_on"], "answer");
}

TEST_F(TokenizeAnswerTest, JoinedDocumentsAreOneForAttentionAndTheirPaddingStillDoesNotCount) {
    options_.loss_on = LossOn::kAll;
    run();
    dataset::Dataset dataset = dataset::Dataset::open(options_.out).value();
    const dataset::RowOrder order(dataset.rows(), false, 0);
    dataset::Batch apart;
    ASSERT_TRUE(dataset.read(order, 0, 1, apart).ok());
    dataset.join_documents();
    dataset::Batch joined;
    ASSERT_TRUE(dataset.read(order, 0, 1, joined).ok());
    EXPECT_FALSE(apart.segment_ids.empty());
    EXPECT_TRUE(joined.segment_ids.empty());
    EXPECT_EQ(joined.labels, apart.labels);
    EXPECT_EQ(joined.labels.back(), tensor::kIgnoredLabel);
}

}  // namespace
}  // namespace atl::tokenize
