#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "shared/digest/digest.h"
#include "trainer/program/testing/program_fixture.h"

namespace atl::program {
namespace {

// What the program does with the data: which rows it takes, and what of a row sees what.
class DataProgramTest : public ProgramTest {
  protected:
    using Ids = std::vector<std::int32_t>;
    static constexpr std::int64_t kDocuments = 4 * 3;  // in 4 packed rows

    // Three documents of 5, 7 and 4 tokens to a row of 16, packed; and each in a row of its own.
    void write_packed_and_separate() const {
        Ids packed, segments, separate, labels;
        for (std::int32_t document = 0; document < kDocuments; ++document) {
            const std::int32_t length = std::array{5, 7, 4}[document % 3];
            for (std::int32_t t = 0; t < 16; ++t) {
                const std::int32_t id = (document * 13 + t * (document % 4 + 1)) % 90;
                separate.push_back(t < length ? id : 2);
                labels.push_back(t < length ? id : -100);
                if (t >= length) continue;
                packed.push_back(id);
                segments.push_back(document % 3 + 1);
            }
        }
        write_data("packed.safetensors", 16, {{"input_ids", packed}, {"segment_ids", segments}});
        write_data("separate.safetensors", 16, {{"input_ids", separate}, {"labels", labels}});
    }
    std::vector<double> losses(const std::string& data, std::vector<std::string> flags) const {
        flags.insert(flags.begin(),
                     {"train", "--model", path("model"), "--data", path(data), "--out", path("out"), "--overwrite",
                      "--threads", "1", "--shuffle", "off", "--steps", "4", "--lr", "1e-2"});
        const auto result = run(flags);
        EXPECT_EQ(result.exit_code, 0) << result.err;
        return member(result.out, "loss");
    }
    double evaluated(const std::string& data, const std::vector<std::string>& flags = {}, int ranks = 1) const {
        std::vector<std::string> arguments = {"eval", "--model", path("model"), "--data", path(data)};
        arguments.insert(arguments.end(), flags.begin(), flags.end());
        const auto result = run(arguments, ranks);
        EXPECT_EQ(result.exit_code, 0) << result.err;
        const auto loss = member(result.out, "loss");
        return loss.empty() ? 0 : loss[0];
    }
};

TEST_F(DataProgramTest, PackedDocumentsTrainAndEvaluateAsSeparateOnesDo) {
    write_packed_and_separate();
    EXPECT_NEAR(evaluated("packed.safetensors") / evaluated("separate.safetensors"), 1.0, 1e-6);
    const auto packed = losses("packed.safetensors", {"--global-batch-size", "2"});
    const auto separate = losses("separate.safetensors", {"--global-batch-size", "6"});
    ASSERT_EQ(packed.size(), 4U);
    ASSERT_EQ(separate.size(), 4U);
    for (std::size_t step = 0; step < 4; ++step) EXPECT_NEAR(packed[step] / separate[step], 1.0, 1e-6) << step;
    EXPECT_GT(std::abs(packed[3] / packed[0] - 1.0), 1e-3) << "the losses must move to tell anything";
}

TEST_F(DataProgramTest, CrossDocumentAttentionIsWhatRowsWithoutDocumentsGive) {
    write_packed_and_separate();
    Ids whole;  // the packed file's input_ids alone
    for (std::int32_t document = 0; document < kDocuments; ++document) {
        for (std::int32_t t = 0; t < std::array{5, 7, 4}[document % 3]; ++t)
            whole.push_back((document * 13 + t * (document % 4 + 1)) % 90);
    }
    write_data("whole.safetensors", 16, {{"input_ids", whole}});
    const std::vector<std::string> on = {"--cross-document-attention", "on"};
    const double apart = evaluated("packed.safetensors");
    const double joined = evaluated("packed.safetensors", on);
    EXPECT_GT(std::abs(joined / apart - 1.0), 1e-4);
    EXPECT_EQ(joined, evaluated("whole.safetensors"));
    const std::vector<std::string> batch = {"--global-batch-size", "2"};
    EXPECT_EQ(losses("packed.safetensors", {"--global-batch-size", "2", "--cross-document-attention", "on"}),
              losses("whole.safetensors", batch));
    EXPECT_NE(losses("packed.safetensors", batch), losses("whole.safetensors", batch));
}

TEST_F(DataProgramTest, SamplesMeanTheFirstRowsOfTheFile) {
    Ids first;
    for (std::int32_t row = 0; row < 6; ++row)
        for (std::int32_t t = 0; t < 16; ++t) first.push_back((row * 11 + t * (row % 2 + 1)) % 90);
    write_data("first.safetensors", 16, {{"input_ids", first}});
    // Two epochs of six rows in steps of four, in an order of those six.
    const std::vector<std::string> flags = {"--epochs", "2", "--batch-size", "4", "--seed", "3"};
    auto limited = flags;
    limited.insert(limited.end(), {"--train-samples", "6"});
    const auto all_rows = train("limited", limited);
    ASSERT_EQ(all_rows.exit_code, 0) << all_rows.err;
    EXPECT_EQ(lines_of(all_rows.out).back()["samples"], 12);
    std::vector<std::string> arguments = {
        "train",     "--model", path("model"), "--data",     path("first.safetensors"),
        "--threads", "1",       "--out",       path("first")};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    ASSERT_EQ(run(arguments).exit_code, 0);
    EXPECT_TRUE(weights("limited") == weights("first"));
    EXPECT_EQ(evaluated("data.safetensors", {"--val-samples", "6"}), evaluated("first.safetensors"));
    EXPECT_NE(evaluated("data.safetensors", {"--val-samples", "6"}), evaluated("data.safetensors"));
    EXPECT_EQ(evaluated("data.safetensors", {"--val-samples", "99"}), evaluated("data.safetensors"));
    EXPECT_NEAR(evaluated("data.safetensors", {"--val-samples", "7"}, 4),
                evaluated("data.safetensors", {"--val-samples", "7"}), 1e-9);
}

TEST_F(DataProgramTest, RowsThatAreNotThoseOfDataJsonAreRefused) {
    std::filesystem::create_directory(path("rows"));
    write_data("rows/data.safetensors", 16, {{"input_ids", Ids(4 * 16, 5)}});
    const nlohmann::json about = {
        {"schema", 1},           {"tokenizer_sha256", ""},
        {"batching", "packing"}, {"fingerprint", digest::sha256_file(path("rows/data.safetensors")).value()},
        {"documents", 4},        {"rows", 4},
        {"seq_len", 16},         {"tokens", 64}};
    ASSERT_TRUE(write_file_atomic(path("rows/data.json"), about.dump()).ok());
    const auto command = [&](const char* name) {
        return std::vector<std::string>{name, "--model", path("model"), "--data", path("rows")};
    };
    auto training = command("train");
    training.insert(training.end(), {"--out", path("out"), "--steps", "1", "--batch-size", "1", "--overwrite"});
    auto validating = train_arguments("out", {"--steps", "1", "--val-data", path("rows")});
    for (const auto& sound : {training, validating, command("eval")}) EXPECT_EQ(run(sound).exit_code, 0);
    const std::string trained = weights("out");
    write_data("rows/data.safetensors", 16, {{"input_ids", Ids(4 * 16, 6)}});
    for (const auto& damaged : {training, validating, command("eval")}) {
        const auto refused = run(damaged, 2);
        EXPECT_EQ(refused.exit_code, 2);
        EXPECT_NE(refused.err.find("data.json"), std::string::npos) << refused.err;
    }
    EXPECT_TRUE(weights("out") == trained) << "a refused run leaves what is there";
}

// Rows that differ so much that the order shows in every step's loss.
TEST_F(DataProgramTest, TheOrderOfTheRowsDoesNotDependOnTheNumberOfRanks) {
    const std::vector<std::string> flags = {"--steps", "8", "--global-batch-size", "4", "--lr", "0", "--seed", "5"};
    const auto alone = member(train("alone", flags).out, "loss");
    ASSERT_EQ(alone.size(), 8U);
    for (const int ranks : {2, 4}) {
        const auto losses = member(train("ranks", flags, ranks).out, "loss");
        ASSERT_EQ(losses.size(), 8U);
        for (std::size_t step = 0; step < 8; ++step) EXPECT_NEAR(losses[step] / alone[step], 1.0, 1e-6) << step;
    }
    auto other = flags;
    other.back() = "6";
    const auto reordered = member(train("other", other).out, "loss");
    EXPECT_GT(std::abs(reordered[0] / alone[0] - 1.0), 1e-5) << "the losses must tell orders apart";
}

}  // namespace
}  // namespace atl::program
