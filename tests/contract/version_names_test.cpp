// Whatever names a version names it wherever one is named: in the store's paths, a job file, `--tokenizer`, `--parent`.
#include <gtest/gtest.h>

#include <functional>

#include "shared/base/text.h"
#include "shared/model_config/testing/tiny_model.h"
#include "shared/pg/pg.h"
#include "shared/prompt/tokenizer_reader.h"
#include "tests/contract/running_stack.h"
#include "tests/contract/typed_command.h"

namespace atl::contract {
namespace {

using http::Method;
using json::Json;
using Words = std::vector<std::string>;

// A model with a base and the global model of a round, and what a job and a preparation need beside it.
class VersionNamesTest : public testing::Test {
  protected:
    void SetUp() override {
        admin_ = stack_.token(auth::Role::kAdmin);
        const Json facility = {{"name", "naming-site"},
                               {"transport", {{"kind", "ssh"}, {"host", "127.0.0.1"}}},
                               {"batch", {{"kind", "local"}}},
                               {"work_dir", "/nonexistent/naming"}};
        make("dispatch", "/v1/facilities", facility);
        make("registry", "/v1/datasets",
             {{"name", "naming-texts"}, {"language", "it"}, {"license", "CC0-1.0"}, {"template", "{{text}}"}});
        const Json counts = {{"documents", 10}, {"rows", 64}, {"tokens", 500}};
        make("registry", "/v1/datasets/naming-texts/versions",
             {{"tokenizer_sha256", std::string(64, 'c')},
              {"tokenizer_reader", prompt::kTokenizerReader},
              {"seq_len", 16},
              {"batching", "packing"},
              {"train", counts},
              {"validation", counts},
              {"fingerprint", std::string(64, 'd')}});
        const auto copied =
            stack_.call("registry", Method::kPut, "/v1/datasets/naming-texts/versions/1/copies/naming-site",
                        stack_.token("dispatch", auth::Role::kOperator), Json{{"path", "datasets/1"}}.dump());
        ASSERT_TRUE(copied.ok()) << copied.body;
        base_ = push("base");
        global_ = push("global");
        auto connection = pg::connect(stack_.postgres(), "store").value();
        ASSERT_TRUE(
            connection
                .query("UPDATE versions SET kind = 'global', job = 'naming', round = 3 WHERE digest = $1", {global_})
                .ok());
        ASSERT_TRUE(
            connection
                .query("INSERT INTO round_versions SELECT job, round, kind, model, digest, parents,"
                       " contributions, created_by, created_at FROM versions WHERE digest = $1 ON CONFLICT DO NOTHING",
                       {global_})
                .ok());
    }
    void TearDown() override {
        for (const std::string& job : jobs_)
            stack_.call("dispatch", Method::kPost, "/v1/jobs/" + job + "/cancel", admin_);
    }

    // A version of "naming" with that tag: its digest.
    std::string push(const std::string& tag) {
        const auto directory = directory_.path() / tag;
        model_config::write_tiny_model(directory, 320, tag);
        EXPECT_TRUE(write_file_atomic(directory / "tokenizer.json", model_config::kTinyTokenizer).ok());
        const Status pushed = stack_.run({"model", "push", "naming", directory, "--tag", "is-" + tag});
        EXPECT_TRUE(pushed.ok()) << describe(pushed.error());
        return get("store", "/v1/models/naming/versions/is-" + tag).at("digest");
    }
    void make(const std::string& service, const std::string& path, const Json& body) const {
        const auto made = stack_.call(service, Method::kPost, path, admin_, body.dump());
        ASSERT_TRUE(made.ok() || made.status == 409) << path << ": " << made.body;
    }
    Json get(const std::string& service, const std::string& path) const {
        const auto answer = stack_.call(service, Method::kGet, path, admin_);
        return answer.ok() ? answer.json().value() : Json();
    }
    Answer atoll(Words arguments) const {
        arguments.insert(arguments.begin(), ATOLL_PROGRAM);
        arguments.insert(arguments.end(), {"--json", "--state", stack_.state()});
        return type(arguments, Output::kPipe);
    }

    struct Place {
        const char* name;
        std::function<Answer(const std::string& version)> say;
        // The digest that it came to, by what the command has answered.
        std::function<std::string(const Json& said, const std::string& version)> meant;
    };
    std::vector<Place> places();
    Answer submit(const std::string& version);

    RunningStack& stack_ = shared_stack();
    TemporaryDirectory directory_;
    std::string admin_, base_, global_;
    std::vector<std::string> jobs_;
};

Answer VersionNamesTest::submit(const std::string& version) {
    const auto file = directory_.path() / "job.yaml";
    const std::string text = "name: naming\nmodel: {name: naming, version: \"" + version +
                             "\"}\nrounds: 1\noutput_model: naming-results-" + std::to_string(jobs_.size()) +
                             "\ntraining: {steps: 4, batch_size: 8}\n"
                             "participants:\n  - {facility: naming-site, dataset: naming-texts}\n";
    EXPECT_TRUE(write_file_atomic(file, text).ok());
    Answer answer = atoll({"job", "submit", file});
    const auto said = json::parse(answer.out);
    if (answer.exit_code == 0 && said.ok()) jobs_.push_back(said->at("id"));
    return answer;
}

std::vector<VersionNamesTest::Place> VersionNamesTest::places() {
    const auto digest = [](const Json& said, const std::string&) { return said.at("digest").get<std::string>(); };
    const auto named = [](const std::string& version) { return "naming@" + version; };
    return {{"model show", [=, this](const std::string& version) { return atoll({"model", "show", named(version)}); },
             digest},
            {"model pull",
             [=, this](const std::string& version) {
                 const auto out = directory_.path() / ("pulled-" + version);
                 return atoll({"model", "pull", named(version), "--out", out});
             },
             digest},
            {"model verify",
             [=, this](const std::string& version) { return atoll({"model", "verify", named(version)}); }, digest},
            {"model tag",
             [=, this](const std::string& version) { return atoll({"model", "tag", named(version), "probe"}); },
             [this](const Json&, const std::string&) {
                 return get("store", "/v1/models/naming").at("tags").at("probe").get<std::string>();
             }},
            {"model push --parent",
             [=, this](const std::string& version) {
                 model_config::write_tiny_model(directory_.path() / "child", 320, "child of " + version);
                 return atoll(
                     {"model", "push", "naming-children", directory_.path() / "child", "--parent", named(version)});
             },
             [](const Json& said, const std::string&) { return said.at("parents").at(0).get<std::string>(); }},
            {"model of a job file", [this](const std::string& version) { return submit(version); },
             [](const Json& said, const std::string&) { return said.at("base").get<std::string>(); }},
            {"dataset prepare --tokenizer",
             [=, this](const std::string& version) {
                 return atoll({"dataset", "prepare", "naming-texts", "--facility", "naming-site", "--input",
                               "texts.jsonl", "--tokenizer", named(version), "--seq-len", "16", "--no-wait"});
             },
             [this](const Json&, const std::string&) {
                 auto connection = pg::connect(stack_.postgres(), "dispatch").value();
                 return connection
                     .query(
                         "SELECT params->>'tokenizer_digest' AS digest FROM tasks WHERE kind = 'prepare' AND facility ="
                         " 'naming-site' ORDER BY id DESC LIMIT 1")
                     ->text(0, "digest");
             }}};
}

TEST_F(VersionNamesTest, AShortDigestNewestAndARoundNameAVersionWhereverOneIsNamed) {
    const std::vector<std::pair<std::string, std::string>> names = {
        {base_.substr(0, 8), base_}, {"newest", global_}, {"round3", global_}};
    for (const Place& place : places())
        for (const auto& [name, digest] : names) {
            const Answer answer = place.say(name);
            ASSERT_EQ(answer.exit_code, 0) << place.name << " " << name << ": " << answer.err;
            const auto said = json::parse(answer.out.empty() ? "null" : answer.out);
            ASSERT_TRUE(said.ok()) << place.name << ": " << answer.out;
            EXPECT_EQ(place.meant(*said, name), digest) << place.name << " " << name << ": " << answer.out;
        }
}

TEST_F(VersionNamesTest, ABeginningThatIsTooShortSaysSoWhereverAVersionIsNamed) {
    for (const Place& place : places()) {
        const Answer answer = place.say(base_.substr(0, 7));
        EXPECT_EQ(answer.exit_code, 2) << place.name << ": " << answer.out << answer.err;
        EXPECT_NE(answer.err.find("the beginning of a digest needs 8 characters or more: this has 7"),
                  std::string::npos)
            << place.name << ": " << answer.err;
    }
    const Answer removed = atoll({"model", "rm", "naming@" + base_.substr(0, 7)});
    EXPECT_NE(removed.err.find("8 characters or more: this has 7"), std::string::npos) << removed.err;
}

TEST_F(VersionNamesTest, AVersionIsRemovedByAShortDigestOrAsTheNewest) {
    std::vector<std::string> digests;
    for (const char* text : {"first", "second", "third"}) {
        model_config::write_tiny_model(directory_.path() / text, 320, text);
        const Answer pushed = atoll({"model", "push", "naming-gone", directory_.path() / text});
        ASSERT_EQ(pushed.exit_code, 0) << pushed.err;
        digests.push_back(json::parse(pushed.out)->at("digest"));
    }
    const auto is_there = [&](const std::string& digest) {
        return atoll({"model", "show", "naming-gone@" + digest}).exit_code == 0;
    };
    EXPECT_EQ(atoll({"model", "rm", "naming-gone@newest"}).exit_code, 0);
    EXPECT_EQ(atoll({"model", "rm", "naming-gone@" + digests[0].substr(0, 8)}).exit_code, 0);
    EXPECT_FALSE(is_there(digests[0]));
    EXPECT_TRUE(is_there(digests[1]));
    EXPECT_FALSE(is_there(digests[2]));
}

}  // namespace
}  // namespace atl::contract
