#include <gtest/gtest.h>

#include <set>

#include "services/dispatch/testing/job_lifecycle_fixture.h"
#include "shared/base/file.h"

namespace atl::dispatch {
namespace {

using json::Json;

TEST_F(JobLifecycleTest, APreparationRegistersAVersionAndItsCopy) {
    begin();
    for (const char* split : {"train", "validation"}) {
        const auto left = work_dir("karolina") / "datasets/it/2" / split;  // of an earlier stack
        std::filesystem::create_directories(left);
        ASSERT_TRUE(write_file_atomic(left / "data.json", "{\"rows\": 999}").ok());
    }
    const std::string path = prepare();
    EXPECT_EQ(get(path).at("version"), 2);
    const std::string place = get(path).at("result").at("path");
    EXPECT_TRUE(place.starts_with("datasets/it/2-")) << place;
    const std::string data = read_file(work_dir("karolina") / place / "validation/data.json").value();
    EXPECT_EQ(Json::parse(data).at("rows"), get(path).at("result").at("validation").at("rows"));
    Json request = job_request(1);
    request["participants"] = {{{"facility", "karolina"}, {"dataset", "it"}, {"dataset_version", 2}}};
    EXPECT_TRUE(reaches(submit(request), "completed")) << "the prepared copy can be trained on";
}

TEST_F(JobLifecycleTest, APreparationRegistersWhichFilesItsTokenizerWasOf) {
    const std::string sha256(64, 'c');
    catalog_->set_tokenizer({{"tokenizer.json", sha256}});
    begin();
    prepare();
    EXPECT_EQ(catalog_->registered_tokenizer(), (Json{{"model", "tiny"},
                                                      {"version", kBaseDigest},
                                                      {"vocabulary", {{"tokenizer.json", sha256}}},
                                                      {"settings", Json::object()}}));
    EXPECT_EQ(catalog_->registered_reader(), 4) << "as data.json has it";
}

TEST_F(JobLifecycleTest, APreparationForADatasetThatIsAnothersByNowFailsAtOnce) {
    begin();
    set("tokenize.waits");
    const std::string path = prepare("running");
    catalog_->set_dataset_owner("eve");
    std::filesystem::remove(fake("tokenize.waits"));
    EXPECT_TRUE(eventually([&] { return get(path).at("state") == "failed"; })) << get(path).dump(2);
    EXPECT_EQ(get(path).at("attempt"), 1) << "another attempt would come to the same";
    EXPECT_NE(get(path).at("error").get<std::string>().find("it is another dataset by now"), std::string::npos);
}

// Whoever owns a dataset may say where a copy of its version lies, and what a version has.
TEST_F(JobLifecycleTest, DataThatAreNotThoseOfTheRegisteredVersionAreNotTrainedOn) {
    begin();
    const std::string place = get(prepare()).at("result").at("path");
    const auto file = work_dir("karolina") / place / "train/data.json";
    const Json good = Json::parse(read_file(file).value());
    const auto fails = [&](const std::string& output_model) {
        Json request = job_request(1);
        request["output_model"] = output_model;
        request["attempts_max"] = 100;
        request["participants"] = Json::array({{{"facility", "karolina"}, {"dataset", "it"}, {"dataset_version", 2}}});
        const std::string job = submit(request);
        EXPECT_TRUE(reaches(job, "failed")) << get("/v1/jobs/" + job).dump(2);
        return get("/v1/jobs/" + job).dump();
    };
    const auto error_of_job = [&](const char* key, const Json& value) {
        Json data = good;
        data[key] = value;
        EXPECT_TRUE(write_file_atomic(file, data.dump()).ok());
        return fails(std::string("of-") + key);
    };
    const std::string seq_len = error_of_job("seq_len", 2);
    EXPECT_NE(seq_len.find("seq_len is 2 there, and 128 in the registry"), std::string::npos) << seq_len;
    const std::string rows = error_of_job("rows", 6);
    EXPECT_NE(rows.find("rows is 6 there, and 5 in the registry"), std::string::npos) << rows;
    const std::string other = error_of_job("fingerprint", std::string(64, 'a'));
    EXPECT_NE(other.find("fingerprint is"), std::string::npos) << other;
    std::filesystem::remove_all(work_dir("karolina") / place / "train");
    const std::string missing = fails("of-missing");
    EXPECT_NE(missing.find("there is no " + (work_dir("karolina") / place / "train").string()), std::string::npos)
        << missing;
    for (const auto& trained : trainings())
        EXPECT_EQ(trained.first.find("karolina"), std::string::npos) << trained.first;
}

TEST_F(JobLifecycleTest, APreparationSaysWhatIsCutOffAndHowManyDocumentsHaveNoEndToken) {
    begin();
    set("tokenize.without_end", "4");
    EXPECT_EQ(get(prepare()).at("result").at("statistics"),
              (Json{{"without_end", 8}, {"longer", 2}, {"tokens_truncated", 14}, {"bytes", 4000}}))
        << "of both splits";
}

TEST_F(JobLifecycleTest, DocumentsForValidationMayBeInFilesOfTheirOwn) {
    begin();
    const Json made =
        get(prepare("done", {{"validation_input", "raw/dev.jsonl,/shared/dev/*.csv"}, {"input_format", "csv"}}));
    EXPECT_EQ(made.at("input_format"), "csv");
    EXPECT_EQ(made.at("validation_input"), "raw/dev.jsonl,/shared/dev/*.csv");
    EXPECT_EQ(made.at("validation_percent"), 0);
    const std::string work = work_dir("karolina").string();
    std::map<std::string, std::string> inputs;  // by --out, "" of the login node's look
    for (const std::string& line : lines("runs")) {
        if (line.find(" tokenize ") == std::string::npos) continue;
        EXPECT_EQ(line.find("--split"), std::string::npos) << line;
        EXPECT_NE(line.find("--input-format csv"), std::string::npos) << line;
        const auto value = [&](const std::string& flag) {
            const auto at = line.find(flag + " ") + flag.size() + 1;
            return line.substr(at, line.find(' ', at) - at);
        };
        inputs[line.find("--check") == std::string::npos ? value("--out") : ""] = value("--input");
    }
    const std::string train = work + "/raw/it.jsonl", validation = work + "/raw/dev.jsonl,/shared/dev/*.csv";
    EXPECT_EQ(inputs, (std::map<std::string, std::string>{
                          {"", train + "," + validation}, {"out/train", train}, {"out/validation", validation}}));
}

TEST_F(JobLifecycleTest, APreparationOfTheSameCorpusLeavesNoSecondCopyAtTheSite) {
    begin();
    const std::string first = prepare();
    const std::string again = prepare();
    EXPECT_EQ(get(again).at("result"), get(first).at("result")) << "the same data are the same version";
    EXPECT_TRUE(std::filesystem::exists(work_dir("karolina") / get(again).at("result").at("path") / "train"));
    for (const auto& entry : std::filesystem::recursive_directory_iterator(work_dir("karolina") / "tasks"))
        EXPECT_NE(entry.path().filename(), "out") << entry.path();
}

TEST_F(JobLifecycleTest, AFailedPreparationLeavesItsLogsAndNothingElse) {
    begin();
    set("tokenize.exits", "1");
    const std::string path = prepare("failed");
    EXPECT_TRUE(are_cleaned(1));
    std::set<std::string> left;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(work_dir("karolina")))
        left.insert(entry.path().filename());
    EXPECT_FALSE(left.contains("out") || left.contains("config.json")) << Json(left).dump();
    EXPECT_TRUE(left.contains("stderr.log") && left.contains("3")) << "of each attempt: " << Json(left).dump();
    EXPECT_EQ(get(path).at("state"), "failed") << "that it was cleaned up after does not change it";
    EXPECT_EQ(get("/v1/preparations").at("items").size(), 1U);
}

TEST_F(JobLifecycleTest, WhatTheTrainerCannotReadIsRefusedBeforeABatchJob) {
    begin();
    set("tokenize.refuses", "/data/it.parquet is Parquet, which is not read");
    const Json found = get(prepare("failed"));
    EXPECT_NE(found.dump().find("/data/it.parquet is Parquet, which is not read"), std::string::npos) << found.dump(2);
    for (const auto& entry : std::filesystem::recursive_directory_iterator(work_dir("karolina")))
        EXPECT_NE(entry.path().filename(), "stderr.log") << "a batch job ran: " << entry.path();
}

TEST_F(JobLifecycleTest, AFileForValidationThatIsTrainedOnTooIsRefusedWithWhy) {
    begin();
    set("tokenize.refuses", "/data/a.jsonl is given twice: leave one out");
    const Json found = get(prepare("failed", {{"validation_input", "/data/a.jsonl"}}));
    EXPECT_NE(
        found.dump().find(": input: /data/a.jsonl is given twice: leave one out; what is for validation must not be "
                          "among what is trained on"),
        std::string::npos)
        << found.dump(2);
}

TEST_F(JobLifecycleTest, ATokenizerThatTheTrainerCannotReadIsRefusedBeforeABatchJob) {
    begin();
    set("tokenize.refuses_tokenizer", "tokenizer.json: model.type: \"WordPiece\" is not supported");
    const Json found = get(prepare("failed"));
    const std::string error = found.at("error");
    EXPECT_TRUE(
        error.ends_with(": tokenizer: cannot be read: tokenizer.json: model.type: \"WordPiece\" is not supported"))
        << error;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(work_dir("karolina")))
        EXPECT_NE(entry.path().filename(), "stderr.log") << "a batch job ran: " << entry.path();
}

TEST_F(JobLifecycleTest, AModelWithoutATokenizerIsRefusedAtTheRequest) {
    begin();
    catalog_->set_tokenizer(Json::object());
    const auto refused = post("/v1/preparations", {{"facility", "karolina"},
                                                   {"dataset", "it"},
                                                   {"tokenizer", {{"model", "tiny"}, {"version", "base"}}},
                                                   {"input", "raw/it.jsonl"},
                                                   {"seq_len", 128}});
    EXPECT_EQ(refused.status, 422) << refused.body;
    EXPECT_EQ(Json::parse(refused.body).value("field", ""), "tokenizer") << refused.body;
    EXPECT_NE(refused.body.find("tiny@base has no tokenizer"), std::string::npos) << refused.body;
}

TEST_F(JobLifecycleTest, AnInputThatTheLoginNodeDoesNotSeeIsLeftToTheBatchJob) {
    begin();
    set("tokenize.refuses", "there is no '/nodes/only/it.jsonl'");
    prepare();
}

}  // namespace
}  // namespace atl::dispatch
