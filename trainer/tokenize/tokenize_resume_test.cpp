#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "shared/base/file.h"
#include "trainer/tokenize/partial_run.h"
#include "trainer/tokenize/tokenize.h"

namespace atl::tokenize {
namespace {

namespace fs = std::filesystem;

class TokenizeResumeTest : public testing::TestWithParam<const char*> {
  protected:
    TokenizeResumeTest() {
        options_.tokenizer = fs::path(ATOLL_FIXTURES) / "tokenizers/small";
        options_.out = directory_.path() / "out";
        options_.seq_len = 48;
        options_.threads = 2;
        options_.part_bytes = 1;  // a part a block of 1 MiB
        options_.inputs = {directory_.path() / "a.jsonl", directory_.path() / "b.jsonl"};
        write_input(0, 31000);
        write_input(1, 9000);
    }

    void write_input(std::size_t file, int documents) const {
        std::string text;
        for (int i = 0; i < documents; ++i) {
            const std::string number = std::to_string(i * 7919 % 10007 + static_cast<int>(file));
            text += nlohmann::json{{"text", "documento numero " + number + " sul treno per Ostrava, però già letto"}}
                        .dump() +
                    "\n";
        }
        check(write_file_atomic(options_.inputs[file], text).ok(), "cannot write a test's file");
    }
    void compress_inputs() const {
        for (const auto& input : options_.inputs) {
            const std::string text = read_file(input).value();
            gzFile file = ::gzopen(input.c_str(), "wb");
            check(::gzwrite(file, text.data(), static_cast<unsigned>(text.size())) > 0 && ::gzclose(file) == Z_OK,
                  "cannot compress a test's file");
        }
    }
    // A process that makes the data and is killed with SIGKILL when `parts` parts of its own are done.
    void run_until_killed(int parts) {
        const pid_t child = ::fork();
        if (child == 0) {
            TokenizeOptions options = options_;
            options.on_part = [parts]() mutable {
                if (--parts == 0) ::raise(SIGKILL);
            };
            ::_exit(tokenize(options).ok() ? 0 : 1);
        }
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
        EXPECT_FALSE(fs::exists(options_.out)) << "data appears only when it is complete";
    }
    TokenizeReport run() const {
        auto report = tokenize(options_);
        check(report.ok(), report.ok() ? "" : report.error().message);
        EXPECT_FALSE(fs::exists(partial()));
        return *report;
    }
    // What an uninterrupted run writes.
    struct Expected {
        TokenizeReport report;
        std::string data;
        std::string info;
    };
    Expected uninterrupted() {
        Expected expected{run(), data(), info()};
        fs::remove_all(options_.out);
        return expected;
    }
    // A process that may write no file beyond `bytes`, as on a full disk.
    void run_without_room(rlim_t bytes) const {
        const pid_t child = ::fork();
        if (child == 0) {
            const rlimit limit{bytes, bytes};
            ::signal(SIGXFSZ, SIG_IGN);
            if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(2);
            const auto report = tokenize(options_);
            const bool is_named = !report.ok() && report.error().code != ErrorCode::kInvalidArgument &&
                                  report.error().message.find("data.safetensors") != std::string::npos;
            ::_exit(is_named ? 0 : 1);
        }
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
        EXPECT_FALSE(fs::exists(options_.out));
    }
    void expect_same(const TokenizeReport& report, const Expected& expected) const {
        EXPECT_EQ(report.fingerprint, expected.report.fingerprint);
        EXPECT_EQ(report.longer, expected.report.longer);
        EXPECT_EQ(report.tokens_truncated, expected.report.tokens_truncated);
        EXPECT_TRUE(data() == expected.data);
        EXPECT_EQ(info(), expected.info);
    }
    std::string data() const { return read_file(options_.out / "data.safetensors").value(); }
    std::string info() const { return read_file(options_.out / "data.json").value(); }
    fs::path partial() const { return directory_.path() / "out.partial"; }
    // Overwrites one byte of a file.
    static void damage(const fs::path& path, std::int64_t at) {
        std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
        file.seekg(at);
        const char byte = static_cast<char>(file.get() ^ 1);
        file.seekp(at);
        file.put(byte);
        check(file.good(), "cannot damage " + path.string());
    }

    TemporaryDirectory directory_;
    TokenizeOptions options_;
};

TEST_P(TokenizeResumeTest, AKilledRunGoesOnAndGivesTheSameBytes) {
    options_.batching = parse_batching(GetParam()).value();
    options_.seq_len = 24;
    const Expected expected = uninterrupted();
    EXPECT_EQ(expected.report.parts_found, 0);
    run_until_killed(2);
    run_until_killed(1);
    const TokenizeReport report = run();
    EXPECT_EQ(report.parts_found, 3);
    expect_same(report, expected);
}
INSTANTIATE_TEST_SUITE_P(Batchings, TokenizeResumeTest, testing::Values("packing", "padding"));

TEST_F(TokenizeResumeTest, ItGoesOnWithinCompressedInput) {
    compress_inputs();
    const Expected expected = uninterrupted();
    run_until_killed(2);
    const TokenizeReport report = run();
    EXPECT_EQ(report.parts_found, 2);
    expect_same(report, expected);
}

// The same rows in a table and an array: the bytes are those of JSON lines, after a kill too.
TEST_F(TokenizeResumeTest, ItGoesOnWithinATableAndAnArray) {
    const Expected expected = uninterrupted();
    std::string table = "\"text\",n\r\n";
    std::string array = "[";
    for (std::size_t file : {0U, 1U}) {
        std::ifstream lines(options_.inputs[file]);
        for (std::string line; std::getline(lines, line);) {
            table += nlohmann::json::parse(line).at("text").dump() + ",\"1\n2\"\r\n";
            array += (array.size() == 1 ? "\n" : ",\n") + line;
        }
        if (file == 0) check(write_file_atomic(directory_.path() / "a.csv", table).ok(), "cannot write a test's file");
        if (file == 0) array = "[";
    }
    check(write_file_atomic(directory_.path() / "b.json", array + "]\n").ok(), "cannot write a test's file");
    options_.inputs = {directory_.path() / "a.csv", directory_.path() / "b.json"};
    const auto expect_rows = [&](const TokenizeReport& report) {
        EXPECT_EQ(report.documents, expected.report.documents);
        EXPECT_TRUE(data() == expected.data);
    };
    expect_rows(run());
    fs::remove_all(options_.out);
    run_until_killed(2);
    run_until_killed(1);
    const TokenizeReport report = run();
    EXPECT_EQ(report.parts_found, 3);
    expect_rows(report);
}

TEST_F(TokenizeResumeTest, ItGoesOnBehindTheLastPartThatIsWhole) {
    const Expected expected = uninterrupted();
    run_until_killed(3);
    const auto parts = read_file(partial() / "parts.jsonl").value();
    const auto second = PartRecord::parse(
        parts.substr(parts.find('\n') + 1, parts.find('\n', parts.find('\n') + 1) - parts.find('\n') - 1));
    ASSERT_TRUE(second.ok()) << second.error().message;
    damage(partial() / "spool/segment_ids.spool", second->elements * 4);  // the third part's first
    const TokenizeReport report = run();
    EXPECT_EQ(report.parts_found, 2);
    expect_same(report, expected);
}

TEST_F(TokenizeResumeTest, WhatOthersPutIntoThePartialDirectoryStays) {
    fs::create_directory(partial());
    ASSERT_TRUE(write_file_atomic(partial() / "notes.txt", "mine").ok());
    ASSERT_TRUE(tokenize(options_).ok());
    EXPECT_EQ(read_file(partial() / "notes.txt").value(), "mine");
    EXPECT_EQ(std::distance(fs::directory_iterator(partial()), fs::directory_iterator()), 1);
}

TEST_F(TokenizeResumeTest, ATornRecordAndAShortFileCostOnlyTheirParts) {
    const Expected expected = uninterrupted();
    run_until_killed(3);
    const auto parts = partial() / "parts.jsonl";
    fs::resize_file(parts, fs::file_size(parts) - 5);
    const TokenizeReport torn = run();
    EXPECT_EQ(torn.parts_found, 2);
    expect_same(torn, expected);
    fs::remove_all(options_.out);
    run_until_killed(3);
    const std::string lines = read_file(parts).value();
    damage(parts, static_cast<std::int64_t>(lines.find('\n')) + 1);  // the second record is no JSON
    const TokenizeReport damaged = run();
    EXPECT_EQ(damaged.parts_found, 1);
    expect_same(damaged, expected);
    fs::remove_all(options_.out);
    run_until_killed(3);
    fs::resize_file(partial() / "data/data.safetensors", 600);
    const TokenizeReport short_file = run();
    EXPECT_EQ(short_file.parts_found, 0);
    expect_same(short_file, expected);
}

TEST_F(TokenizeResumeTest, AFullDiskIsAnErrorThatNamesTheFileAndTheNextRunGoesOn) {
    const Expected expected = uninterrupted();
    run_without_room(expected.data.size() / 3);  // that of the inputs' ids and something more
    const TokenizeReport report = run();
    EXPECT_GT(report.parts_found, 0);
    expect_same(report, expected);
}

TEST_F(TokenizeResumeTest, OtherInputOrOptionsBeginAnew) {
    const Expected expected = uninterrupted();
    options_.seq_len = 32;
    run_until_killed(2);
    options_.seq_len = 48;
    TokenizeReport report = run();
    EXPECT_EQ(report.parts_found, 0);
    expect_same(report, expected);
    fs::remove_all(options_.out);
    run_until_killed(2);
    write_input(0, 30000);
    report = run();
    EXPECT_EQ(report.parts_found, 0);
    EXPECT_EQ(report.documents, 39000);
}

TEST_F(TokenizeResumeTest, AnotherSettingOfTheTokenizerBeginsAnew) {
    options_.tokenizer = directory_.path() / "tokenizer";
    fs::copy(fs::path(ATOLL_FIXTURES) / "tokenizers/opt", options_.tokenizer);
    const auto config = options_.tokenizer / "tokenizer_config.json";
    ASSERT_TRUE(write_file_atomic(config, R"({"add_prefix_space": true})").ok());
    const Expected expected = uninterrupted();
    ASSERT_TRUE(write_file_atomic(config, "{}").ok());
    run_until_killed(2);
    ASSERT_TRUE(write_file_atomic(config, R"({"add_prefix_space": true})").ok());
    const TokenizeReport report = run();
    EXPECT_EQ(report.parts_found, 0);
    expect_same(report, expected);
}

TEST_F(TokenizeResumeTest, OnlyOneProcessMakesADirectory) {
    std::optional<Result<TokenizeReport>> other;
    options_.on_part = [&] {
        if (!other) other = tokenize(options_);
    };
    run();
    ASSERT_TRUE(other && !other->ok());
    EXPECT_EQ(other->error().code, ErrorCode::kConflict);
    EXPECT_EQ(other->error().field, "out");
}

}  // namespace
}  // namespace atl::tokenize
