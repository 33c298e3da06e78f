// The table of permissions, asked of running services: each operation of the four OpenAPI documents, on things that
// belong to one operator, by everybody who has a token and by those who have none.
#include <gtest/gtest.h>

#include <set>

#include "shared/auth/subjects.h"
#include "shared/digest/digest.h"
#include "shared/model_config/testing/tiny_model.h"
#include "shared/prompt/tokenizer_reader.h"
#include "shared/service/permissions.h"
#include "tests/contract/running_stack.h"

namespace atl::contract {
namespace {

using auth::Role;
using http::ClientResponse;
using http::Method;
using json::Json;
using service::May;
using service::Permission;

constexpr const char* kServices[] = {"registry", "store", "dispatch", "aggregation"};

// What is asked for where an operation looks at its body before it looks at the owner.
const std::map<std::string, Json>& bodies() {
    static const Json job = {{"name", "of-ada"},
                             {"model", {{"name", "adas-model"}, {"version", "v1"}}},
                             {"participants", {{{"facility", "adas-site"}, {"dataset", "adas-text"}}}},
                             {"rounds", 1},
                             {"output_model", "adas-results"},
                             {"training", {{"steps", 3}, {"batch_size", 16}, {"lr", 0.1}}}};
    static const Json preparation = {{"facility", "adas-site"},
                                     {"dataset", "adas-text"},
                                     {"tokenizer", {{"model", "adas-model"}, {"version", "v1"}}},
                                     {"input", "raw/text.jsonl"},
                                     {"seq_len", 128}};
    static const std::map<std::string, Json> all = {{"POST /v1/jobs", job},
                                                    {"POST /v1/job-checks", job},
                                                    {"POST /v1/scripts", job},
                                                    {"POST /v1/preparations", preparation},
                                                    {"POST /v1/prune", {{"model", "adas-model"}}}};
    return all;
}

class WhoMayTest : public testing::Test {
  protected:
    static void SetUpTestSuite() { stack_ = &shared_stack(); }

    void SetUp() override {
        admin_ = stack_->token("root", Role::kAdmin);
        ada_ = stack_->token("ada", Role::kOperator);
        eve_ = stack_->token("eve", Role::kOperator);
        make_things();
        job_ = ask_for_id("/v1/jobs");
        preparation_ = ask_for_id("/v1/preparations");
    }

    void TearDown() override { call("dispatch", Method::kPost, "/v1/jobs/" + job_ + "/cancel", admin_); }

    // Ada's facility, dataset and model; what is there already stays.
    void make_things() {
        const Json facility = {{"name", "adas-site"},
                               {"owner", "ada"},
                               {"transport", {{"kind", "ssh"}, {"host", "127.0.0.1"}}},
                               {"batch", {{"kind", "local"}}},
                               {"work_dir", "/nonexistent/atoll"}};
        const Json dataset = {
            {"name", "adas-text"}, {"language", "it"}, {"license", "CC0-1.0"}, {"template", "scrivi:: {{text}}"}};
        const Json counts = {{"documents", 10}, {"rows", 64}, {"tokens", 500}};
        const Json version = {{"tokenizer_sha256", std::string(64, 'b')},
                              {"tokenizer_reader", prompt::kTokenizerReader},
                              {"seq_len", 128},
                              {"batching", "packing"},
                              {"train", counts},
                              {"validation", counts},
                              {"fingerprint", std::string(64, 'a')}};
        make("dispatch", Method::kPost, "/v1/facilities", admin_, facility);
        make("registry", Method::kPost, "/v1/datasets", ada_, dataset);
        make("registry", Method::kPost, "/v1/datasets/adas-text/versions", ada_, version);
        const auto versions = call("registry", Method::kGet, "/v1/datasets/adas-text/versions", ada_).json().value();
        dataset_version_ = versions.at("items").back().at("version").dump();
        make("registry", Method::kPut, "/v1/datasets/adas-text/versions/" + dataset_version_ + "/copies/adas-site",
             stack_->token("dispatch", Role::kOperator), {{"path", "datasets/text/1"}});
        const std::string config = model_config::kTinyConfig;  // of a model that a job may begin with
        blob_ = digest::sha256(config);
        stack_->call("store", Method::kPut, "/v1/blobs/" + blob_, ada_, config);
        make("store", Method::kPost, "/v1/models", ada_, {{"name", "adas-model"}});
        const Json chunk = {{"sha256", blob_}, {"size", config.size()}};
        manifest_ = {{"schema", 1}};
        for (const char* path : {"config.json", "tokenizer.json"})
            manifest_["files"].push_back({{"path", path}, {"size", config.size()}, {"chunks", Json::array({chunk})}});
        digest_ = make("store", Method::kPost, "/v1/models/adas-model/versions", ada_, {{"manifest", manifest_}})
                      .json()
                      ->at("digest");
        make("store", Method::kPut, "/v1/models/adas-model/tags/v1", ada_, {{"digest", digest_}});
    }
    std::string ask_for_id(const std::string& list) {
        call("dispatch", Method::kPost, list, ada_, bodies().at("POST " + list));
        const Json items = call("dispatch", Method::kGet, list, ada_).json()->at("items");
        EXPECT_FALSE(items.empty()) << list;
        return items.empty() ? "none" : items[0].at("id").get<std::string>();
    }

    ClientResponse call(const std::string& service, Method method, const std::string& path, const std::string& token,
                        const Json& body = nullptr) const {
        return stack_->call(service, method, path, token, body.is_null() ? "" : body.dump());
    }
    ClientResponse make(const std::string& service, Method method, const std::string& path, const std::string& token,
                        const Json& body) const {
        auto made = call(service, method, path, token, body);
        EXPECT_TRUE(made.ok() || made.status == 409) << path << ": " << made.status << " " << made.body;
        return made;
    }

    // Whether the path names something that has an owner, by its name.
    static bool names_thing(const std::string& service, const std::string& path) {
        return path.starts_with("/v1/datasets/{name}") || path.starts_with("/v1/models/{model}") ||
               (service == "dispatch" && path.starts_with("/v1/facilities/{name}"));
    }
    // The operation, of ada's things; or of what has such a name and belongs to somebody else.
    ClientResponse ask(const std::string& service, const Operation& operation, const std::string& token,
                       const std::string& whose = "adas") const {
        const bool is_job = operation.path.starts_with("/v1/jobs/");
        const bool is_preparation = operation.path.starts_with("/v1/preparations/");
        const std::map<std::string, std::string> things = {
            {"name", whose + (service == "registry" ? "-text" : "-site")},
            {"dataset", "adas-text"},
            {"facility", "adas-site"},
            {"model", whose + "-model"},
            {"version", dataset_version_},
            {"reference", digest_},
            {"digest", digest_},
            {"sha256", blob_},
            {"tag", "v1"},
            {"id", is_job           ? job_
                   : is_preparation ? preparation_
                                    : "abcdefgh12"}};
        std::string path = operation.path_with(things);
        if (path == "/v1/scripts") path += "?facility=adas-site";
        const auto body = bodies().find(operation.name());
        const bool is_version = operation.name() == "POST /v1/models/{model}/versions";
        if (is_version)
            return call(service, operation.method, path, token, {{"manifest", manifest_}, {"kind", "update"}});
        const bool takes_body =
            operation.method == Method::kPost || operation.method == Method::kPut || operation.method == Method::kPatch;
        return call(service, operation.method, path, token,
                    !takes_body              ? Json()
                    : body == bodies().end() ? Json::object()
                                             : body->second);
    }
    void expect_refused(const std::string& service, const Operation& operation, const std::string& who,
                        const std::string& token, int status = 403) const {
        const auto answer = ask(service, operation, token);
        EXPECT_EQ(answer.status, status) << service << ": " << operation.name() << " by " << who << ": " << answer.body;
    }
    void expect_let_through(const std::string& service, const Operation& operation, const std::string& who,
                            const std::string& token) const {
        const auto answer = ask(service, operation, token);
        const bool is_refused = answer.status == 401 || answer.status == 403 || answer.status == 500;
        EXPECT_FALSE(is_refused) << service << ": " << operation.name() << " by " << who << ": " << answer.status << " "
                                 << answer.body;
    }
    // One whose scope names ada's things, and `other`, whose scope names none of them.
    std::string adas_attempt() const {
        return stack_->token(auth::TaskScope{"adas-site", job_, "adas-task", "1", {digest_}, "adas-model"});
    }
    void expect_own_attempt(const std::string& service, const Operation& operation, const std::string& other) const {
        expect_let_through(service, operation, "an attempt of hers", adas_attempt());
        // These refuse nobody: to an attempt a blob of others is one that is not there.
        static const std::set<std::string> kHides = {"PUT /v1/blobs/{sha256}", "POST /v1/blobs/missing"};
        if (kHides.contains(operation.name()))
            expect_let_through(service, operation, "another's attempt", other);
        else
            expect_refused(service, operation, "another's attempt", other);
    }
    void expect_permission(const std::string& service, const Operation& operation, const Permission& row) {
        expect_refused(service, operation, "nobody", "", 401);
        const std::string attempt = stack_->token(Role::kFacility), viewer = stack_->token("vi", Role::kViewer);
        if (row.attempts == May::kNo) expect_refused(service, operation, "an attempt", attempt);
        if (row.attempts == May::kYes) expect_let_through(service, operation, "an attempt", attempt);
        if (row.attempts == May::kOwn) expect_own_attempt(service, operation, attempt);
        if (row.viewers == May::kNo)
            expect_refused(service, operation, "a viewer", viewer);
        else
            expect_let_through(service, operation, "a viewer", viewer);
        const std::string scraper = stack_->token("prometheus", Role::kMetrics);
        if (row.scrapers == May::kNo)
            expect_refused(service, operation, "a token for metrics", scraper);
        else
            expect_let_through(service, operation, "a token for metrics", scraper);
        if (row.operators == May::kYes)
            expect_let_through(service, operation, "another operator", eve_);
        else
            expect_refused(service, operation, "another operator", eve_);
        for (const auto subject : {auth::kDispatch, auth::kAggregation}) {
            const std::string token = stack_->token(std::string(subject), Role::kOperator);
            if (row.caller == subject || row.operators == May::kYes)
                expect_let_through(service, operation, std::string(subject), token);
            else
                expect_refused(service, operation, std::string(subject), token);
        }
        if (row.operators == May::kNo)
            expect_refused(service, operation, "its owner", ada_);
        else
            expect_let_through(service, operation, "its owner", ada_);
        if (row.operators == May::kOwn) make_things();  // the owner may have removed them
        expect_let_through(service, operation, "an admin", admin_);
        if (row.operators == May::kOwn) make_things();
    }

    static RunningStack* stack_;
    std::string admin_, ada_, eve_;
    std::string job_, preparation_, digest_, blob_, dataset_version_;
    Json manifest_;
};

RunningStack* WhoMayTest::stack_;

TEST_F(WhoMayTest, EachOperationIsOpenToThoseOfItsRowAndToNobodyElse) {
    std::set<const Permission*> asked;
    for (const std::string service : kServices)
        for (const Operation& operation : stack_->operations(service)) {
            if (operation.is_public) continue;
            const Permission* row = service::find_permission(service, operation.method, operation.path);
            ASSERT_NE(row, nullptr) << service << ": " << operation.name() << " has no row";
            asked.insert(row);
            expect_permission(service, operation, *row);
        }
    for (const Permission& row : service::permissions())
        EXPECT_TRUE(asked.contains(&row)) << row.service << ": " << row.path << " is not described";
}

TEST_F(WhoMayTest, AnAttemptReadsWhatItsScopeNamesAndIsToldOfNothingElse) {
    const std::string other =
        stack_->token(auth::TaskScope{"adas-site", job_, "another-task", "1", {std::string(64, 'd')}, "adas-results"});
    const Json asked = {{"digests", {blob_}}};
    const auto missing = [&](const std::string& token) {
        return call("store", Method::kPost, "/v1/blobs/missing", token, asked).json()->at("missing");
    };
    EXPECT_EQ(missing(adas_attempt()), Json::array());
    EXPECT_EQ(missing(other), Json::array({blob_}));
    for (const std::string& path : {"/v1/blobs/" + blob_, "/v1/versions/" + digest_}) {
        EXPECT_EQ(call("store", Method::kGet, path, adas_attempt()).status, 200) << path;
        EXPECT_EQ(call("store", Method::kGet, path, other).status, 403) << path;
    }
}

// What each operation that is an owner's alone does with a thing of eve's, asked by ada, who owns all else.
TEST_F(WhoMayTest, WhoOwnsSomethingOwnsNothingOfTheSameKindThatIsAnothers) {
    make("registry", Method::kPost, "/v1/datasets", eve_,
         {{"name", "eves-text"}, {"language", "cs"}, {"license", "CC0-1.0"}, {"template", "{{text}}"}});
    make("store", Method::kPost, "/v1/models", eve_, {{"name", "eves-model"}});
    make("dispatch", Method::kPost, "/v1/facilities", admin_,
         {{"name", "eves-site"},
          {"owner", "eve"},
          {"transport", {{"kind", "ssh"}, {"host", "127.0.0.2"}}},
          {"batch", {{"kind", "local"}}},
          {"work_dir", "/nonexistent/atoll"}});
    std::set<std::string> asked;
    for (const std::string service : kServices)
        for (const Operation& operation : stack_->operations(service)) {
            const Permission* row = service::find_permission(service, operation.method, operation.path);
            if (row == nullptr || row->operators != May::kOwn || !names_thing(service, operation.path)) continue;
            asked.insert(operation.path);
            const auto answer = ask(service, operation, ada_, "eves");
            EXPECT_EQ(answer.status, 403) << service << ": " << operation.name() << ": " << answer.body;
        }
    EXPECT_GE(asked.size(), 12U);
}

// What an operator who owns nothing tried on another's things.
TEST_F(WhoMayTest, AnOperatorRepointsForgesAndRemovesNothingOfAnothers) {
    const std::string copy = "/v1/datasets/adas-text/versions/" + dataset_version_ + "/copies/adas-site";
    const Json secret = {{"path", "datasets/secret/1"}};
    const Json changed = {{"license", "MIT"}, {"template", "{{text}}"}};
    const Json version = {{"manifest", manifest_}};
    const Json forged = {{"manifest", manifest_}, {"kind", "global"}, {"job", job_}, {"round", 1}};
    const Json into_hers = [] {
        Json job = bodies().at("POST /v1/jobs");
        job["output_model"] = "adas-model";
        return job;
    }();
    ASSERT_TRUE(make("store", Method::kPost, "/v1/models", eve_, {{"name", "of-eve"}}).status != 403);
    struct Try {
        const char* service;
        Method method;
        std::string path;
        Json body;
    };
    for (const Try& one : std::vector<Try>{
             {"registry", Method::kPut, copy, secret},
             {"dispatch", Method::kPut, "/v1/facilities/adas-site/copies/adas-text/" + dataset_version_, secret},
             {"registry", Method::kPatch, "/v1/datasets/adas-text", changed},
             {"store", Method::kPost, "/v1/models/adas-model/versions", version},
             {"store", Method::kPost, "/v1/models/adas-model/versions", forged},
             {"store", Method::kPost, "/v1/models/of-eve/versions", forged},
             {"store", Method::kPut, "/v1/models/adas-model/tags/v1", {{"digest", digest_}}},
             {"store", Method::kDelete, "/v1/models/adas-model/tags/v1", nullptr},
             {"store", Method::kDelete, "/v1/models/adas-model/versions/" + digest_, nullptr},
             {"store", Method::kDelete, "/v1/models/adas-model", nullptr},
             {"store", Method::kPost, "/v1/models", {{"name", "for-ada"}, {"owner", "ada"}}},
             {"dispatch", Method::kPost, "/v1/jobs", into_hers}}) {
        const auto answer = call(one.service, one.method, one.path, eve_, one.body);
        EXPECT_EQ(answer.status, 403) << to_string(one.method) << " " << one.path << ": " << answer.body;
    }
    const auto kept =
        call("registry", Method::kGet, "/v1/datasets/adas-text/versions/" + dataset_version_ + "/copies", eve_);
    EXPECT_EQ(kept.json()->at("items")[0].at("path"), "datasets/text/1");
    EXPECT_EQ(call("store", Method::kGet, "/v1/models/adas-model", eve_).json()->at("tags").at("v1"), digest_);
}

// Its owner says where a copy lies as far as the facility allows it: she through dispatch, not in the registry.
TEST_F(WhoMayTest, AnOwnerSaysWhereACopyLiesThroughDispatch) {
    const std::string path = "/v1/facilities/adas-site/copies/adas-text/" + dataset_version_;
    const auto said = call("dispatch", Method::kPut, path, ada_, {{"path", "datasets/text/2"}});
    EXPECT_EQ(said.status, 200) << said.body;
    EXPECT_EQ(call("dispatch", Method::kPut, path, ada_, {{"path", "../else"}}).status, 422);
    const std::string list = "/v1/datasets/adas-text/versions/" + dataset_version_ + "/copies";
    EXPECT_EQ(call("registry", Method::kGet, list, ada_).json()->at("items")[0].at("path"), "datasets/text/2");
    EXPECT_EQ(call("registry", Method::kPut, list + "/adas-site", ada_, {{"path", "datasets/text/3"}}).status, 403);
}

// The model that a job writes is its submitter's from the submission on.
TEST_F(WhoMayTest, AJobsModelBelongsToWhoSubmitsIt) {
    EXPECT_EQ(call("store", Method::kGet, "/v1/models/adas-results", eve_).json()->at("owner"), "ada");
    EXPECT_EQ(call("store", Method::kDelete, "/v1/models/adas-results", eve_).status, 403);
}

}  // namespace
}  // namespace atl::contract
