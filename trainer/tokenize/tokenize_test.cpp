#include "trainer/tokenize/tokenize.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "shared/base/file.h"
#include "shared/digest/digest.h"
#include "shared/safetensors/file.h"
#include "trainer/dataset/dataset.h"
#include "trainer/tensor/targets.h"
#include "trainer/tokenize/encoder.h"
#include "trainer/tokenizer/tokenizer.h"

namespace atl::tokenize {
namespace {

using Ids = std::vector<std::int32_t>;

// With mC4's fields.
std::string row(const std::string& text) {
    return nlohmann::json{{"text", text}, {"timestamp", "2019-04-25T12:57:54Z"}, {"url", "u"}}.dump() + "\n";
}

class TokenizeTest : public testing::Test {
  protected:
    TokenizeTest() {
        options_.tokenizer = std::filesystem::path(ATOLL_FIXTURES) / "tokenizers/small";
        options_.out = directory_.path() / "out";
        options_.seq_len = 16;
        options_.threads = 2;
    }

    void write_input(const std::string& text) {
        options_.inputs = {directory_.path() / "in.jsonl"};
        check(write_file_atomic(options_.inputs[0], text).ok(), "cannot write a test's file");
    }
    // Documents that fill several blocks.
    void write_large_input() {
        std::string text;
        for (int i = 0; i < 40000; ++i)
            text +=
                row("documento numero " + std::to_string(i * 7919 % 10007) + " sul treno per Ostrava, però già letto");
        ASSERT_GT(text.size(), 3U << 20);
        write_input(text);
    }
    TokenizeReport run() {
        auto report = tokenize(options_);
        check(report.ok(), report.ok() ? "" : report.error().message);
        return *report;
    }
    std::string error() {
        const auto report = tokenize(options_);
        EXPECT_FALSE(report.ok());
        EXPECT_FALSE(std::filesystem::exists(options_.out)) << "a failed run left something";
        EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_.path()), {}), 1);
        return report.ok() ? "" : report.error().message;
    }
    std::string bytes() { return read_file(options_.out / "data.safetensors").value(); }
    nlohmann::json info() { return nlohmann::json::parse(read_file(options_.out / "data.json").value()); }
    Ids document(const std::string& text) {
        Ids ids;
        check(tokenizer::Tokenizer::open(options_.tokenizer).value()->encode_document(text, ids).ok(), "cannot encode");
        return ids;
    }
    // All rows in file order.
    dataset::Batch batch() {
        const auto dataset = dataset::Dataset::open(options_.out);
        check(dataset.ok(), dataset.ok() ? "" : dataset.error().message);
        dataset::Batch all;
        EXPECT_TRUE(dataset->read(dataset::RowOrder(dataset->rows(), false, 0), 0, dataset->rows(), all).ok());
        return all;
    }

    TemporaryDirectory directory_;
    TokenizeOptions options_;
};

// Lines of megabytes make blocks of megabytes: their bytes bound what is in flight.
TEST_F(TokenizeTest, ThePoolCountsTheBytesInFlight) {
    const auto tokenizer = tokenizer::Tokenizer::open(options_.tokenizer).value();
    const auto text_template = prompt::Template::parse("{{text}}").value();
    EncoderPool pool({tokenizer.get(), &text_template, {{"in"}}}, 2);
    const std::string text = row("uno");
    text::RecordBlock block;
    block.text = text;
    for (int i = 0; i < 3; ++i) pool.submit(block);
    EXPECT_EQ(pool.bytes_in_flight(), 3 * text.size());
    for (std::size_t left = 3; left-- > 0;) {
        ASSERT_TRUE(pool.next().ok());
        EXPECT_EQ(pool.bytes_in_flight(), left * text.size());
    }
}

TEST_F(TokenizeTest, DocumentsWithoutAnEndTokenAreCounted) {
    write_input(row("a") + row("b"));
    EXPECT_EQ(run().without_end, 0);
    EXPECT_EQ(info()["without_end"], 0);
    EXPECT_EQ(info()["tokenizer_reader"], tokenizer::kReader);
    const auto tokenizer = directory_.path() / "tokenizer";
    std::filesystem::copy(options_.tokenizer, tokenizer);
    check(write_file_atomic(tokenizer / "tokenizer_config.json", R"({"eos_token":null,"add_bos_token":true})").ok(),
          "cannot write");
    options_.tokenizer = tokenizer;
    testing::internal::CaptureStderr();
    EXPECT_EQ(run().without_end, 2);
    const std::string told = testing::internal::GetCapturedStderr();
    EXPECT_NE(told.find("names no eos_token: 2 of 2 documents have no end token"), std::string::npos) << told;
    EXPECT_EQ(info()["without_end"], 2);
}

TEST_F(TokenizeTest, RowsOfConversationsWithoutAChatTemplateNameTheOption) {
    const auto error = [&](const std::string& line) {
        write_input(line + "\n");
        const auto report = tokenize(options_);
        const auto checked = check_input(options_);
        check(!report.ok() && !checked.ok(), "a row without the template's field");
        EXPECT_EQ(report.error().message, checked.error().message);
        return report.error().message;
    };
    const std::string hint = "; --chat-template reads rows of conversations";
    for (const char* line : {R"({"messages": [{"role": "user", "content": "q"}]})", R"({"conversations": [], "id": 1})",
                             R"({"prompt": "q", "completion": "a"})"}) {
        const std::string said = error(line);
        EXPECT_NE(said.find("the row has no field \"text\""), std::string::npos) << said;
        EXPECT_TRUE(said.ends_with(hint)) << said;
    }
    EXPECT_TRUE(
        error(R"({"data": [{"text": "a"}]})").ends_with("; `jq -c '.data[]' FILE` writes the rows of its list"));
    for (const char* line : {R"({"prompt": "q"})", R"({"messages": null})", R"({"messages": 3})", "3"})
        EXPECT_EQ(error(line).find("--chat-template"), std::string::npos) << line;
}

TEST_F(TokenizeTest, ALargeShareOfTokensThatIsCutIsToldOf) {
    options_.batching = Batching::kPadding;
    options_.seq_len = 4;
    const auto told = [&](const std::string& text) {
        write_input(text);
        testing::internal::CaptureStderr();
        run();
        return testing::internal::GetCapturedStderr();
    };
    const std::string many = row("uno due tre quattro cinque sei sette otto nove dieci");
    const std::string said = told(many + row("a"));
    const std::int64_t cut = info()["tokens_truncated"];
    const std::string counts =
        std::to_string(cut) + " of " + std::to_string(cut + info()["tokens"].get<std::int64_t>()) + " tokens";
    EXPECT_NE(said.find(counts), std::string::npos) << said << counts;
    EXPECT_NE(said.find("1 of 2 documents"), std::string::npos) << said;
    EXPECT_NE(said.find("--seq-len"), std::string::npos) << said;
    std::string most = many;
    for (int i = 0; i < 400; ++i) most += row("a");
    EXPECT_EQ(told(most).find("cut"), std::string::npos) << "a small share";
    EXPECT_GT(info()["tokens_truncated"], 0);
    options_.truncate = false;
    EXPECT_EQ(told(many).find("cut"), std::string::npos);
}

TEST_F(TokenizeTest, IntegersOfAnySizeAreWrittenOutAsTheyAre) {
    options_.text_template = "{{n}}";
    options_.batching = Batching::kPadding;
    options_.seq_len = 64;
    const std::string numbers[] = {"18446744073709551616", "18446744073709551615", "-9223372036854775809"};
    std::string text;
    for (const std::string& number : numbers) text += "{\"n\":" + number + "}\n";
    write_input(text);
    run();
    const dataset::Batch all = batch();
    for (std::size_t i = 0; i < 3; ++i) {
        const Ids expected = document(numbers[i]);
        const Ids got(all.input_ids.begin() + static_cast<std::ptrdiff_t>(64 * i),
                      all.input_ids.begin() + static_cast<std::ptrdiff_t>(64 * i + expected.size()));
        EXPECT_EQ(got, expected) << numbers[i];
    }
}

TEST_F(TokenizeTest, DocumentsLongerThanARowAreCountedWhereNothingIsCutOffToo) {
    const std::string sixteen_and_more = "Il treno parte alle sette e arriva a mezzogiorno";
    ASSERT_GT(document(sixteen_and_more).size(), 16U);
    ASSERT_LE(document("a").size(), 16U);
    write_input(row(sixteen_and_more) + row("a"));
    const TokenizeReport report = run();
    EXPECT_EQ(report.longer, 1);
    EXPECT_EQ(report.truncated, 0);
    EXPECT_EQ(info()["longer"], 1);
    EXPECT_EQ(info()["tokens_truncated"], 0);
}

TEST_F(TokenizeTest, PackedRowsAreTheDocumentsOneAfterAnother) {
    write_input(row("Il treno parte alle sette") + "\n" + row("a") + row("Vlak odjíždí v sedm hodin"));
    const TokenizeReport report = run();
    Ids expected;
    Ids owners;
    int number = 0;
    for (const char* text : {"Il treno parte alle sette", "a", "Vlak odjíždí v sedm hodin"}) {
        const Ids ids = document(text);
        expected.insert(expected.end(), ids.begin(), ids.end());
        owners.insert(owners.end(), ids.size(), ++number);
    }
    const dataset::Batch all = batch();
    EXPECT_EQ(report.documents, 3);
    EXPECT_EQ(report.tokens, static_cast<std::int64_t>(expected.size()));
    EXPECT_EQ(report.rows, (report.tokens + 15) / 16);
    ASSERT_EQ(all.rows, report.rows);
    for (std::size_t i = 0; i < all.input_ids.size(); ++i) {
        const bool padding = i >= expected.size();
        EXPECT_EQ(all.input_ids[i], padding ? 2 : expected[i]) << i;
        EXPECT_EQ(all.labels[i], padding ? tensor::kIgnoredLabel : expected[i]) << i;
        EXPECT_EQ(all.segment_ids[i] == 0, padding) << i;
        if (i % 16 == 0) {
            EXPECT_EQ(all.segment_ids[i], 1) << "segments begin anew in each row";
        } else if (!padding) {
            EXPECT_EQ(all.segment_ids[i] - all.segment_ids[i - 1], owners[i] - owners[i - 1]) << i;
        }
    }
}

TEST_F(TokenizeTest, PaddedRowsHoldOneDocumentEachAndCountWhatTheyCut) {
    options_.batching = Batching::kPadding;
    options_.seq_len = 6;
    write_input(row("a") + row("Il treno parte alle sette"));
    const TokenizeReport report = run();
    const Ids first = document("a");
    const Ids second = document("Il treno parte alle sette");
    ASSERT_LT(first.size(), 6U);
    ASSERT_GT(second.size(), 6U);
    const dataset::Batch all = batch();
    ASSERT_EQ(all.rows, 2);
    EXPECT_TRUE(all.segment_ids.empty());
    Ids ids = first;
    ids.resize(6, 2);
    ids.insert(ids.end(), second.begin(), second.begin() + 6);
    Ids labels = first;
    labels.resize(6, tensor::kIgnoredLabel);
    labels.insert(labels.end(), second.begin(), second.begin() + 6);
    EXPECT_EQ(all.input_ids, ids);
    EXPECT_EQ(all.labels, labels);
    EXPECT_EQ(report.longer, 1);
    EXPECT_EQ(report.truncated, 1);
    EXPECT_EQ(report.tokens_truncated, static_cast<std::int64_t>(second.size()) - 6);
    EXPECT_EQ(report.tokens, static_cast<std::int64_t>(first.size()) + 6);
}

TEST_F(TokenizeTest, TheBytesDoNotDependOnTheNumberOfThreads) {
    write_large_input();
    options_.threads = 1;
    const TokenizeReport one = run();
    const std::string expected = bytes();
    const std::string expected_info = info().dump();
    for (const int threads : {2, 5}) {
        options_.threads = threads;
        EXPECT_EQ(run().fingerprint, one.fingerprint);
        EXPECT_EQ(bytes(), expected) << threads;
        EXPECT_EQ(info().dump(), expected_info) << threads;
    }
    EXPECT_EQ(one.documents, 40000);
    EXPECT_EQ(digest::sha256(expected), one.fingerprint);
}

TEST_F(TokenizeTest, TheSplitsPartTheDocumentsByTheHashOfTheirText) {
    options_.batching = Batching::kPadding;
    std::string text;
    std::int64_t validation = 0;
    for (int i = 0; i < 500; ++i) {
        text += row("n " + std::to_string(i));
        validation += is_validation("doc:: n " + std::to_string(i), 20) ? 1 : 0;
    }
    write_input(text);
    options_.text_template = "doc:: {{text}}";
    options_.validation_percent = 20;
    options_.split = Split::kValidation;
    EXPECT_EQ(run().documents, validation);
    EXPECT_GT(validation, 60);
    EXPECT_LT(validation, 140);
    options_.split = Split::kTrain;
    EXPECT_EQ(run().documents, 500 - validation);
    EXPECT_EQ(info()["split"], "train");
    options_.split = Split::kAll;
    EXPECT_EQ(run().documents, 500);
}

TEST_F(TokenizeTest, WhatCameToBeMeanwhileIsNotReplaced) {
    write_large_input();
    options_.part_bytes = 1 << 20;
    options_.on_part = [&] {
        std::filesystem::create_directories(options_.out);
        check(write_file_atomic(options_.out / "notes.txt", "mine").ok(), "cannot write a test's file");
    };
    const auto report = tokenize(options_);
    ASSERT_FALSE(report.ok());
    EXPECT_EQ(report.error().field, "out");
    EXPECT_EQ(read_file(options_.out / "notes.txt").value(), "mine");
}

// sha256("abc") begins with ba7816bf8f01cfea, which is 13436514500253700074: 74 modulo 100.
TEST_F(TokenizeTest, TheHashRuleIsTheDocumentedOne) {
    EXPECT_TRUE(is_validation("abc", 75));
    EXPECT_FALSE(is_validation("abc", 74));
    EXPECT_FALSE(is_validation("abc", 0));
    EXPECT_TRUE(is_validation("abc", 100));
}

TEST_F(TokenizeTest, AnEmptySplitIsRefusedWithTheWayToADocument) {
    write_input(row("abc"));
    options_.split = Split::kValidation;
    options_.validation_percent = 74;
    EXPECT_NE(tokenize(options_).error().message.find("a larger --validation-percent than 74"), std::string::npos);
    options_.split = Split::kTrain;
    options_.validation_percent = 75;
    EXPECT_NE(tokenize(options_).error().message.find("a smaller --validation-percent than 75"), std::string::npos);
    EXPECT_NE(tokenize(options_).error().message.find("one document cannot be in both"), std::string::npos);
    write_input(row("abc") + row("abc"));
    const std::string two = tokenize(options_).error().message;
    EXPECT_NE(two.find("a smaller --validation-percent than 75 gives it some"), std::string::npos) << two;
}

TEST_F(TokenizeTest, AnEmptyInputIsNoMatterOfSplits) {
    for (const Split split : {Split::kAll, Split::kTrain, Split::kValidation}) {
        write_input("\n");
        options_.split = split;
        const Error error = tokenize(options_).error();
        EXPECT_NE(error.message.find("there is no row"), std::string::npos) << error.message;
        EXPECT_EQ(error.message.find("percent"), std::string::npos) << error.message;
    }
}

TEST_F(TokenizeTest, TheInfoSaysHowTheDataWasMade) {
    write_input(row("Il treno"));
    options_.text_template = "scrivi:: {{text}}";
    const TokenizeReport report = run();
    const auto json = info();
    EXPECT_EQ(json["schema"], 1);
    EXPECT_EQ(json["tokenizer_sha256"], tokenizer::Tokenizer::open(options_.tokenizer).value()->sha256());
    EXPECT_EQ(json["template"], "scrivi:: {{text}}");
    EXPECT_EQ(json["batching"], "packing");
    EXPECT_EQ(json["seq_len"], 16);
    EXPECT_EQ(json["documents"], 1);
    EXPECT_EQ(json["fingerprint"], report.fingerprint);
    EXPECT_EQ(json["tokens"], report.tokens);
}

TEST_F(TokenizeTest, ABadRowIsNamedByFileAndLineAndLeavesNothing) {
    const std::string where = (directory_.path() / "in.jsonl").string();
    write_input(row("a") + "\n" + row("b") + "{\"text\": \n" + row("c"));
    EXPECT_EQ(error().rfind(where + ":4: ", 0), 0U);
    write_input(row("a") + "{\"txt\":\"b\"}\n");
    EXPECT_TRUE(error().starts_with(where + ":2: ")) << error();
    write_input(row("a") + "{\"text\":\"\xff\"}\n");
    EXPECT_EQ(error().rfind(where + ":2: ", 0), 0U);
    for (const char* bad :
         {"{\"text\": \"secret\tword\"}", "{\"secret\": 1, \"secret\": 2}", "{\"text\": [\"secret\"]}"}) {
        write_input(row("a") + bad + "\n");
        const std::string said = error();
        EXPECT_EQ(said.rfind(where + ":2: ", 0), 0U) << said;
        EXPECT_EQ(said.find("secret"), std::string::npos) << "an error travels: " << said;
    }
    write_large_input();
    std::string text = read_file(options_.inputs[0]).value();
    write_input(text + "x\n" + text + "y\n");
    EXPECT_EQ(error().rfind(where + ":40001: ", 0), 0U) << "the first bad line, however the threads run";
}

TEST_F(TokenizeTest, OptionsThatCannotWorkAreRefused) {
    write_input("\n\n");
    EXPECT_NE(error().find(options_.inputs[0].string()), std::string::npos);
    write_input(row("a"));
    options_.seq_len = 1;
    EXPECT_EQ(tokenize(options_).error().field, "seq-len");
    options_.seq_len = 16;
    options_.split = Split::kValidation;
    EXPECT_EQ(tokenize(options_).error().field, "input");
    EXPECT_NE(error().find("validation"), std::string::npos);
    options_.split = Split::kAll;
    options_.tokenizer = directory_.path();
    EXPECT_NE(error().find("tokenizer.model"), std::string::npos);
}

TEST_F(TokenizeTest, DataThatIsThereIsReplaced) {
    write_input(row("a"));
    const TokenizeReport first = run();
    write_input(row("b"));
    EXPECT_NE(run().fingerprint, first.fingerprint);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_.path()), {}), 2) << "out and in.jsonl";
}

TEST_F(TokenizeTest, TheFileIsSoundSafetensors) {
    write_input(row("Il treno"));
    run();
    const auto file = safetensors::File::open(options_.out / "data.safetensors");
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(file->header().tensors.size(), 2U);
    EXPECT_NE(file->header().find("segment_ids"), nullptr);
}

}  // namespace
}  // namespace atl::tokenize
