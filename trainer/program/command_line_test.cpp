#include <filesystem>

#include "shared/base/testing/sanitizers.h"
#include "shared/host/cores.h"
#include "trainer/program/testing/program_fixture.h"

namespace atl::program {
namespace {

// What every command has in common: how flags are read, how it ends, and what it does when a launcher starts it.
class CommandLineTest : public ProgramTest {
  protected:
    CommandLineTest() {
        for (const char* name : {"a", "b", "c"})
            EXPECT_TRUE(write_file_atomic(path(name), R"({"text": "Il treno parte alle sette"})"
                                                      "\n")
                            .ok());
    }
    // `tokenize` with further flags, among them --input.
    CommandResult tokenize(const std::vector<std::string>& flags, int ranks = 1) const {
        std::vector<std::string> arguments = {
            "tokenize", "--tokenizer", ATOLL_FIXTURES "/tokenizers/small", "--seq-len", "16", "--out", path("tokens")};
        arguments.insert(arguments.end(), flags.begin(), flags.end());
        return run(arguments, ranks);
    }
    double documents(const std::vector<std::string>& flags) const {
        std::filesystem::remove_all(path("tokens"));
        const auto result = tokenize(flags);
        EXPECT_EQ(result.exit_code, 0) << result.err;
        const auto counts = member(result.out, "documents");
        return counts.empty() ? 0 : counts[0];
    }
    // Command lines, each with what its refusal says.
    void expect_refused(const std::vector<std::pair<std::vector<std::string>, std::string>>& cases) const {
        for (const auto& [arguments, said] : cases) {
            const auto result = run(arguments);
            EXPECT_EQ(result.exit_code, 2) << said;
            EXPECT_NE(result.err.find(said), std::string::npos) << said << " is not in " << result.err;
        }
    }
    // The program with its standard output on a full disk.
    CommandResult run_onto_full_disk(const std::vector<std::string>& arguments) const {
        return run_under({"sh", "-c", "exec \"$@\" >/dev/full", "sh"}, command(arguments, 1));
    }
    // And into a pipe that nobody reads any more.
    CommandResult run_without_reader(const std::vector<std::string>& arguments) const {
        return run_under({"bash", "-c", "exec 3> >(:); wait $!; \"$@\" >&3; exit $?", "bash"}, command(arguments, 1));
    }
};

TEST_F(CommandLineTest, EveryInputFileCounts) {
    EXPECT_EQ(documents({"--input", path("a"), path("b"), path("c")}), 3) << "as a shell's glob gives them";
    EXPECT_EQ(documents({"--input", path("a"), "--input", path("b")}), 2);
    EXPECT_EQ(documents({"--input", path("a") + "," + path("b"), path("c")}), 3);
    std::filesystem::copy_file(path("a"), path("a, once more"));
    EXPECT_EQ(documents({"--input", path("a, once more"), path("c")}), 2);
    std::filesystem::remove_all(path("tokens"));
    const auto missing = tokenize({"--input", path("a"), path("nowhere")});
    EXPECT_EQ(missing.exit_code, 2);
    EXPECT_NE(missing.err.find("nowhere"), std::string::npos) << missing.err;
    const auto trained = run(
        {"tokenizer-train", "--input", path("a"), path("nowhere"), "--vocab-size", "280", "--out", path("tokenizer")});
    EXPECT_EQ(trained.exit_code, 2);
    EXPECT_NE(trained.err.find("nowhere"), std::string::npos) << trained.err;
}

TEST_F(CommandLineTest, DirectoriesPatternsTablesAndTextAreInput) {
    std::filesystem::create_directory(path("d"));
    const std::pair<const char*, const char*> files[] = {{"d/1.csv", "id,text\n1,\"Il treno\nparte\"\n2,alle sette\n"},
                                                         {"d/2.json", R"(["uno", {"text": "due"}])"},
                                                         {"d/3.txt", "Un documento\nintero.\n"},
                                                         {"e.parquet", "PAR1\x15"},
                                                         {"prose", "C'era una volta"}};
    for (const auto& [name, bytes] : files) ASSERT_TRUE(write_file_atomic(path(name), bytes).ok());
    EXPECT_EQ(documents({"--input", path("d")}), 5);
    EXPECT_EQ(documents({"--input", path("d/*.csv"), path("a")}), 3);
    EXPECT_EQ(documents({"--input", path("d/3.txt"), path("prose"), "--input-format", "lines"}), 3);
    std::filesystem::remove_all(path("tokens"));
    const auto checked = tokenize({"--check", "--input", path("d"), path("a")});
    EXPECT_EQ(checked.exit_code, 0) << checked.err;
    EXPECT_NE(checked.out.find("4 files: "), std::string::npos) << checked.out;
    EXPECT_FALSE(std::filesystem::exists(path("tokens"))) << "--check writes nothing";
    const std::vector<std::pair<std::vector<std::string>, std::string>> refused = {
        {{path("e.parquet")}, "e.parquet is Parquet"},
        {{path("prose")}, "--input-format"},
        {{path("d"), path("d/1.csv")}, "d/1.csv is given twice"},
        {{path("d/*.jsonl")}, "no file matches"},
        {{path("d"), "--input-format", "parquet"}, "--input-format: "}};
    for (const auto& [inputs, said] : refused) {
        std::vector<std::string> flags = {"--input"};
        flags.insert(flags.end(), inputs.begin(), inputs.end());
        for (const bool checks : {false, true}) {
            if (checks) flags.emplace_back("--check");
            const auto result = tokenize(flags);
            EXPECT_EQ(result.exit_code, 2) << said;
            EXPECT_NE(result.err.find(said), std::string::npos) << result.err;
            EXPECT_FALSE(std::filesystem::exists(path("tokens")));
        }
    }
}

TEST_F(CommandLineTest, CheckingOpensTheTokenizer) {
    std::filesystem::create_directory(path("pieces"));
    ASSERT_TRUE(
        write_file_atomic(path("pieces/tokenizer.json"), R"({"model": {"type": "WordPiece", "vocab": {}}})").ok());
    std::filesystem::create_directory(path("empty"));
    const auto check_of = [&](const char* tokenizer, const std::string& input) -> std::vector<std::string> {
        return {"tokenize", "--check",   "--tokenizer", path(tokenizer), "--input",
                input,      "--seq-len", "16",          "--out",         path("tokens")};
    };
    expect_refused({{check_of("pieces", path("a")), "--tokenizer: " + path("pieces/tokenizer.json") + ": model.type"},
                    {check_of("empty", path("a")), "holds no tokenizer.model"},
                    {check_of("pieces", path("nowhere")), "--tokenizer: "}});
}

TEST_F(CommandLineTest, CheckingRendersTheFirstRows) {
    const std::string rows = R"({"question": "Dove?", "answer": 5})"
                             "\n";
    ASSERT_TRUE(write_file_atomic(path("rows.jsonl"), rows).ok());
    ASSERT_TRUE(write_file_atomic(path("rows.csv"), "question,testo\nDove?,qui\n").ok());
    ASSERT_TRUE(write_file_atomic(path("prose.txt"), "C'era una volta").ok());
    ASSERT_TRUE(write_file_atomic(path("empty.jsonl"), "").ok());
    ASSERT_TRUE(write_file_atomic(path("chat.jsonl"), R"({"prompt": "Dove?", "completion": "Qui."})").ok());
    const auto check_of = [&](const std::string& file, const char* flag, const std::string& value) {
        return tokenize({"--check", "--input", path(file), flag, value});
    };
    const auto fits = [&](const std::string& file, const char* flag, const std::string& value) {
        const auto result = check_of(file, flag, value);
        EXPECT_EQ(result.exit_code, 0) << result.err;
        EXPECT_FALSE(std::filesystem::exists(path("tokens"))) << "--check writes nothing";
    };
    const auto refuses = [&](const std::string& file, const char* flag, const std::string& value,
                             const std::string& said) {
        const auto result = check_of(file, flag, value);
        EXPECT_EQ(result.exit_code, 2) << said;
        EXPECT_NE(result.err.find("--input: "), std::string::npos) << result.err;
        EXPECT_NE(result.err.find(said), std::string::npos) << result.err;
    };
    fits("rows.jsonl", "--template", "{{question}} {{#answer}}{{answer}}{{/answer}}");
    fits("rows.csv", "--template", "{{testo}}");
    fits("prose.txt", "--template", "{{text}}");
    fits("empty.jsonl", "--template", "{{testo}}");
    fits("chat.jsonl", "--chat-template", "zephyr");
    refuses("rows.jsonl", "--template", "{{testo}}", "rows.jsonl:1: the row has no field \"testo\"");
    refuses("rows.csv", "--template", "{{answer}}", "rows.csv:2: the row has no field \"answer\"");
    refuses("prose.txt", "--template", "{{testo}}", "prose.txt: the row has no field \"testo\"");
    refuses("rows.jsonl", "--chat-template", "zephyr", "rows.jsonl:1: ");
    ASSERT_TRUE(write_file_atomic(path("rows.jsonl"), rows + R"({"question": {}, "answer": 5})").ok());
    refuses("rows.jsonl", "--template", "{{question}}", "rows.jsonl:2: ");
}

TEST_F(CommandLineTest, OutputThatCannotBeWrittenIsAFailure) {
    const std::vector<std::vector<std::string>> commands = {
        {"eval", "--model", path("model"), "--data", path("data.safetensors")},
        {"plan", "--model", path("model"), "--data", path("data.safetensors")},
        {"train", "--model", path("model"), "--data", path("data.safetensors"), "--out", path("out"), "--steps", "1"},
        {"report"},
        {"eval", "--help"},
        {"--help"}};
    for (const auto& command : commands) {
        const auto result = run_onto_full_disk(command);
        EXPECT_EQ(result.exit_code, 1) << command[0];
        EXPECT_NE(result.err.find("standard output"), std::string::npos) << command[0] << ": " << result.err;
    }
    EXPECT_TRUE(std::filesystem::exists(path("out") + "/model.safetensors")) << "the model is not lost";
}

TEST_F(CommandLineTest, AReaderThatHasSeenEnoughIsNoFullDisk) {
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"report"}, {"eval", "--help"}, {"--help"}}) {
        const auto result = run_without_reader(command);
        EXPECT_EQ(result.exit_code, 141) << command[0];
        EXPECT_EQ(result.err, "") << command[0];
    }
}

TEST_F(CommandLineTest, ACommandOfOneProcessRunsOnceUnderALauncher) {
    const auto made = tokenize({"--input", path("a")}, 3);
    EXPECT_EQ(made.exit_code, 0) << made.err;
    EXPECT_EQ(lines_of(made.out).size(), 1U) << made.out;
    const auto refused = tokenize({"--input", path("a")}, 2);
    EXPECT_EQ(refused.exit_code, 2) << "the data are there";
    EXPECT_NE(refused.err.find("--overwrite"), std::string::npos) << refused.err;
    const std::vector<std::string> plan = {"plan",       "--model",   path("model"), "--data", path("data.safetensors"),
                                           "--sharding", "full_shard"};
    const auto planned = run(plan, 2);
    ASSERT_EQ(lines_of(planned.out).size(), 1U) << planned.out;
    EXPECT_LT(member(planned.out, "moments_bytes").at(0), 0.6 * member(run(plan).out, "moments_bytes").at(0))
        << "of two ranks";
}

TEST_F(CommandLineTest, AWrongFlagIsToldOnceUnderALauncher) {
    for (const std::string command : {"train", "tokenize", "eval"}) {
        const auto result = run({command, "--frobnicate", "3"}, 3);
        EXPECT_EQ(result.exit_code, 2);
        const auto at = result.err.find("--frobnicate");
        ASSERT_NE(at, std::string::npos) << command << ": " << result.err;
        EXPECT_EQ(result.err.find("--frobnicate", at + 1), std::string::npos) << result.err;
    }
}

TEST_F(CommandLineTest, AFlagIsNamedAsItIsWritten) {
    const std::string model = path("model"), data = path("data.safetensors"), adapter = path("adapter");
    ASSERT_EQ(train("adapter", {"--steps", "0", "--lora-rank", "2"}).exit_code, 0);
    const std::string weights = model + "/model.safetensors", adapter_weights = adapter + "/adapter_model.safetensors";
    const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
        {{"eval", "--model", weights, "--data", data}, "--model: '" + weights + "'"},
        {{"eval", "--model", weights + "/a", "--data", data}, "--model: "},
        {{"eval", "--model", model, "--data", model}, "--data: '" + model + "'"},
        {{"eval", "--model", model, "--data", data, "--adapter", adapter_weights}, "--adapter: '" + adapter_weights},
        {{"eval", "--model", model, "--data", data, "--adapter", model}, "--adapter: '" + model + "'"},
        {{"generate", "--model", adapter, "--prompt", "a"}, "--model: '" + adapter + "'"},
        {{"merge", "--model", weights, "--adapter", adapter, "--out", path("m")}, "--model: '" + weights},
        {{"merge", "--model", model, "--adapter", adapter_weights, "--out", path("m")}, "--adapter: '"},
        {{"tokenize", "--tokenizer", weights, "--input", path("a"), "--seq-len", "8", "--out", path("t")}, weights},
        {{"tokenize", "--tokenizer", ATOLL_FIXTURES "/tokenizers/small", "--input", weights + "/a", "--seq-len", "8",
          "--out", path("t")},
         weights + "/a"},
        {{"init", "--config", path("config.json"), "--out", path("m"), "--seed", "-1"}, "--seed: '-1'"},
        {{"init", "--config", path("config.json"), "--out", path("m"), "--seed", "1000000000000001"},
         "--seed: '1000000000000001'"},
        {{"init", "--config", path("config.json"), "--out", path("m"), "--seed", "18446744073709551615"},
         "--seed: '18446744073709551615'"},
        {{"plan", "--model", model, "--data", data, "--ranks", "2000000"}, "--ranks: "},
        {{"plan", "--model", model, "--data", data, "--ranks", "0"}, "--ranks: "},
        {{"train", "--model", path("no"), "--data", data, "--out", path("out"), "--steps", "1"}, "--model: "},
        {{"eval", "--model", model, "--data", path("no")}, "--data: "},
        {{"eval", "--data", data}, "--model: "},
        {{"merge", "--model", model, "--adapter", adapter, "--out", path("m"), "--save-dtype", "int9"}, "--save-dtype"},
        {{"generate", "--model", model, "--prompt", "a", "--max-tokens", "99999999999999999999"},
         "--max-tokens: '9999"},
        {{"init", "--config", path("config.json"), "--out", model}, "--out: "},
        {{"init", "--config", model, "--out", path("m")}, "--config: "},
        {{"eval", "--model", model, "--data", data, "--config", "/etc"}, "--config: "},
        {{"train", "--model", model, "--data", data, "--out", path("o"), "--steps", "2", "--momentum", "0.5"},
         "--momentum: "},
        {{"train", "--model", model, "--data", data, "--out", path("o"), "--steps", "2", "--warmup-steps", "5"},
         "--warmup-steps: 5 "},
        {{"eval", "--model", model, "--data", data, "--threads", "1", "--threads", "2"}, "--threads"},
        {{"train", "--model", model, "--data", data, "--out", path("o"), "--steps", "1", "--resume", "--resume"},
         "--resume"},
        {{"train", "--model", model, "--data", data, "--out", path("o"), "--steps", "1", "--adapter", adapter,
          "--lora-alpha", "8.5"},
         "--lora-alpha: "},
        {{"eval", "--model", model, "--data", data, "--threads", "5000"}, "4096"}};
    for (const std::string threads : {"0", "5000", "100000"})
        EXPECT_NE(tokenize({"--input", path("a"), "--threads", threads}).err.find("4096"), std::string::npos);
    expect_refused(cases);
}

TEST_F(CommandLineTest, GeneratesOwnSettingsMayComeFromAFile) {
    ASSERT_TRUE(write_file_atomic(path("run.json"), R"({"max_tokens": 5})").ok());
    const std::vector<std::string> generate = {"generate", "--model", path("model"), "--config", path("run.json")};
    expect_refused({{generate, "--prompt: is required"}});
    ASSERT_TRUE(write_file_atomic(path("run.json"), R"({"prompt": "a", "top_p": 0.5})").ok());
    expect_refused({{generate, "--top-p: means nothing without --temperature"}});
}

TEST_F(CommandLineTest, PlanTakesItsRanksFromAFileAndItsHelpSaysOneDefault) {
    ASSERT_TRUE(write_file_atomic(path("run.json"), R"({"ranks": 2, "sharding": "full_shard"})").ok());
    const std::vector<std::string> plan = {
        "plan", "--model", path("model"), "--data", path("data.safetensors"), "--config", path("run.json")};
    auto of_one = plan;
    of_one.insert(of_one.end(), {"--ranks", "1"});
    EXPECT_LT(member(run(plan).out, "moments_bytes").at(0), 0.6 * member(run(of_one).out, "moments_bytes").at(0));
    const std::string help = run({"plan", "--help"}).out;
    EXPECT_NE(help.find("--ranks INT "), std::string::npos) << help;
    // CLI11 of bookworm (2.1) writes a default as "=fp32", that of trixie (2.4) " [fp32]".
    EXPECT_TRUE(help.find("--reduce-dtype fp32|bf16=fp32") != std::string::npos ||
                help.find("--reduce-dtype fp32|bf16 [fp32]") != std::string::npos)
        << help;
}

TEST_F(CommandLineTest, WhatIsMissingOrMeansNothingIsNamed) {
    const std::string model = path("model"), data = path("data.safetensors");
    std::filesystem::create_directory(path("empty"));
    std::filesystem::create_directory(path("torch"));
    std::filesystem::copy(model + "/config.json", path("torch"));
    ASSERT_TRUE(write_file_atomic(path("torch/pytorch_model.bin"), "weights").ok());
    expect_refused(
        {{{"init", "--config", path("config.json"), "--out", ""}, "--out: "},
         {{"tokenize", "--tokenizer", "", "--input", path("a"), "--seq-len", "8", "--out", path("t")}, "--tokenizer: "},
         {{"tokenize", "--tokenizer", path("empty"), "--input", path("a"), "--seq-len", "8", "--out", path("t")},
          "--tokenizer: " + path("empty")},
         {{"generate", "--model", model, "--prompt", "a", "--top-p", "0.5"}, "--top-p: "},
         {{"generate", "--model", model, "--prompt", "a", "--seed", "1"}, "--seed: "},
         {{"generate", "--model", model, "--prompt", "a", "--temperature", "nan"}, "--temperature: 'nan'"},
         {{"plan", "--model", model, "--data", data, "--ranks", "2", "--ranks-per-node", "5"}, "--ranks-per-node: "},
         {{"plan", "--model", model, "--data", data, "--lora-rank", "2", "--lora-targets", "v_proj,q_proj,v_proj"},
          "--lora-targets: "},
         {{"train", "--model", model, "--data", data, "--out", path("o"), "--steps", "1", "--quantize", "nf4"},
          "--quantize: 'nf4'"},
         {{"train", "--model", model, "--data", data, "--out", path("o"), "--steps", "1", "--offload-optimizer", "nvme",
           "--offload-dir", path("empty") + "/none"},
          "--offload-dir: "},
         {{"eval", "--model", path("torch"), "--data", data}, "`atoll-trainer import --from " + path("torch") + "`"}});
}

// What the standard library throws is told in a line, without a core dump.
TEST_F(CommandLineTest, ThreadsThatCannotBeStartedAreTold) {
    ATOLL_SKIP_IF_SANITIZED();
    ASSERT_TRUE(write_file_atomic(path("in.jsonl"), "{\"text\": \"x\"}\n").ok());
    const std::vector<std::string> tokenize = {"tokenize",
                                               "--tokenizer",
                                               ATOLL_FIXTURES "/tokenizers/small",
                                               "--input",
                                               path("in.jsonl"),
                                               "--out",
                                               path("tokens"),
                                               "--template",
                                               "{{text}}",
                                               "--seq-len",
                                               "16",
                                               "--threads",
                                               "4096"};
    const auto refused = run_under({"sh", "-c", "ulimit -v 1000000; exec \"$@\"", "sh"}, command(tokenize, 1));
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_NE(refused.err.find("--threads"), std::string::npos) << refused.err;
}

TEST_F(CommandLineTest, MoreThreadsThanCoresAreTold) {
    const auto eval = [&](int threads) {
        return run({"eval", "--model", path("model"), "--data", path("data.safetensors"), "--threads",
                    std::to_string(threads)});
    };
    const auto many = eval(host::usable_cores() + 1);
    EXPECT_EQ(many.exit_code, 0) << many.err;
    EXPECT_NE(many.err.find("--threads"), std::string::npos) << many.err;
    EXPECT_EQ(eval(host::usable_cores()).err.find("--threads"), std::string::npos);
}

TEST_F(CommandLineTest, HelpTellsWhatIsRequiredAndNotWhatIsUnbuilt) {
    const auto asked = run({"help", "train"});
    EXPECT_EQ(asked.exit_code, 0);
    EXPECT_EQ(asked.out, run({"train", "--help"}).out);
    for (const char* line : {"--model TEXT REQUIRED", "--data TEXT REQUIRED", "--out TEXT REQUIRED", "\nOptimizer:\n"})
        EXPECT_NE(asked.out.find(line), std::string::npos) << line << " is not in " << asked.out;
    EXPECT_EQ(asked.out.find("--pp"), std::string::npos);
    EXPECT_EQ(asked.out.find("not built"), std::string::npos);
    EXPECT_EQ(run({"help", "trian"}).exit_code, 2);
}

TEST_F(CommandLineTest, AFlagWithoutItsValueIsToldWhatItTakes) {
    const std::string model = path("model"), data = path("data.safetensors");
    expect_refused(
        {{{"train", "--model", model, "--data", data, "--out", path("o"), "--steps"}, "--steps needs a value: INT\n"},
         {{"eval", "--precision", "--model", model}, "--precision needs a value: fp32|bf16|fp16\n"},
         {{"eval", "--data", "--model", model}, "--data needs a value: TEXT\n"},
         {{"tokenize", "--input", "--tokenizer", model}, "--input needs a value: PATH…\n"}});
}

TEST_F(CommandLineTest, WhatIsLoggedDoesNotReachStandardOutput) {
    std::filesystem::create_directories(path("tokens.partial"));
    ASSERT_TRUE(write_file_atomic(path("tokens.partial") + "/run.json", "of another run").ok());
    const auto result = tokenize({"--input", path("a")});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_NE(result.err, "");
    EXPECT_EQ(lines_of(result.out).size(), 1U) << result.out;
}

TEST_F(CommandLineTest, APipeIsNoInput) {
    ASSERT_EQ(run_under({"mkfifo"}, {path("fifo")}).exit_code, 0);
    const std::vector<std::string> train = {"tokenizer-train", "--vocab-size", "280", "--out", path("tokenizer")};
    for (const std::string& input : {path("fifo"), std::string("/dev/stdin"), path("model")}) {
        auto arguments = train;
        arguments.insert(arguments.end(), {"--input", input});
        for (const auto& result : {tokenize({"--input", input}), run(arguments)}) {
            EXPECT_EQ(result.exit_code, 2) << input;
            EXPECT_NE(result.err.find("--input: " + input), std::string::npos) << result.err;
        }
    }
}

// The library says nothing while it works: what it works at is told before.
TEST_F(CommandLineTest, TrainingATokenizerSaysOnWhatBeforeItBegins) {
    const auto result =
        run({"tokenizer-train", "--input", path("a"), "--vocab-size", "5000", "--out", path("tokenizer")});
    const auto told = result.err.find("5000 pieces");
    ASSERT_NE(told, std::string::npos) << result.err;
    EXPECT_NE(result.err.find("--vocab-size", told), std::string::npos) << result.err;
}

// The documents of a split are chosen by --validation-percent.
TEST_F(CommandLineTest, ASplitAndItsPercentGoTogether) {
    for (const char* split : {"train", "validation"}) {
        const auto without = tokenize({"--input", path("a"), "--split", split});
        EXPECT_EQ(without.exit_code, 2);
        EXPECT_NE(without.err.find("--validation-percent"), std::string::npos) << without.err;
    }
    const auto alone = tokenize({"--input", path("a"), "--validation-percent", "5"});
    EXPECT_EQ(alone.exit_code, 2);
    EXPECT_NE(alone.err.find("--split"), std::string::npos) << alone.err;
    const auto none = tokenize({"--input", path("a"), "--split", "train", "--validation-percent", "0"});
    EXPECT_EQ(none.exit_code, 2);
    EXPECT_NE(none.err.find("1 to 99"), std::string::npos) << none.err;
    EXPECT_FALSE(std::filesystem::exists(path("tokens")));
}

}  // namespace
}  // namespace atl::program
