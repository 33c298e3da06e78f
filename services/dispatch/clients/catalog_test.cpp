#include "services/dispatch/clients/catalog.h"

#include <gtest/gtest.h>

#include <sstream>

#include "shared/http/testing/test_server.h"

namespace atl::dispatch {
namespace {

using json::Json;

// A registry and a store in one that gives the same answer to every question.
class DamagedAnswerTest : public testing::Test {
  protected:
    Json answer_;
    Json found_ = {{"items", Json::array({nullptr})}};  // of copies that are looked for
    Status resolve(DatasetCopy& copy) {
        std::vector<NamedCopy> copies = {{&copy, "participants[0]"}};
        const Status resolved = catalog_.resolve(copies, nullptr);
        return resolved.ok() ? copies.front().found : resolved;
    }
    std::int64_t requests() {
        std::int64_t count = 0;
        std::istringstream lines(server_.metrics().expose());
        for (std::string line; std::getline(lines, line);)
            if (line.starts_with("atoll_http_requests_total{")) count += std::stoll(line.substr(line.rfind(' ') + 1));
        return count;
    }
    http::TestServer server_{[this](http::Server& server) {
        for (const char* path :
             {"/v1/models/:name", "/v1/models/:name/versions", "/v1/models/:name/versions/:version",
              "/v1/datasets/:name", "/v1/datasets/:name/versions", "/v1/datasets/:name/versions/:version"})
            server.route(http::Method::kGet, path, http::Access::open(),
                         [this](const http::Request&) { return http::Response::json(200, answer_); });
        server.route(http::Method::kPost, "/v1/copies/find", http::Access::open(),
                     [this](const http::Request&) { return http::Response::json(200, found_); });
    }};
    Catalog catalog_{server_.url(), server_.url(),
                     auth::Issuer::from_pem(auth::generate_keys().value().private_pem).value()};
};

TEST_F(DamagedAnswerTest, IsAnErrorWhateverIsAsked) {
    for (const Json& answer : {Json(), Json("text"), Json(7), Json::array(), Json::object(),
                               Json{{"items", 7}, {"next", nullptr}}, Json{{"items", {7}}, {"next", nullptr}},
                               Json{{"items", {{{"kind", 7}, {"version", "x"}}}}, {"next", nullptr}},
                               Json{{"template", 7}, {"digest", 7}, {"manifest", 7}, {"seq_len", "x"}, {"train", 7}},
                               Json{{"digest", "latest"}, {"seq_len", 1}, {"train", {{"rows", "x"}}}}}) {
        answer_ = answer;
        DatasetCopy copy{"leonardo", "it"};
        EXPECT_FALSE(catalog_.model_digest("tiny", "base", "model", "name", {}).ok()) << answer;
        EXPECT_FALSE(catalog_.require_no_base("tiny", "output_model").ok()) << answer;
        EXPECT_FALSE(catalog_.dataset("it", "dataset").ok()) << answer;
        const auto version = catalog_.model_version("tiny", "base");
        EXPECT_FALSE(version.ok() && catalog_.base_model(*version).ok()) << answer;
        EXPECT_FALSE(resolve(copy).ok()) << answer;
    }
}

TEST_F(DamagedAnswerTest, OfAVersionItIsKnownWhetherItIsTheChangeOfOne) {
    const auto is_change = [&](const std::string& file) {
        const Json chunk = {{"sha256", std::string(64, 'a')}, {"size", 7}};
        const Json manifest = {{"schema", 1}, {"files", {{{"path", file}, {"size", 7}, {"chunks", {chunk}}}}}};
        const auto base = catalog_.base_model({{"manifest", manifest}});
        EXPECT_TRUE(base.ok()) << base.error().message;
        return base.ok() && base->is_change;
    };
    EXPECT_TRUE(is_change("delta.safetensors"));
    EXPECT_FALSE(is_change("model.safetensors"));
}

TEST_F(DamagedAnswerTest, OfCopiesIsAnErrorToo) {
    const Json good = {{"version", 7},
                       {"path", "a/b"},
                       {"seq_len", 128},
                       {"train", {{"rows", 5}, {"tokens", 600}}},
                       {"fingerprint", "feed"},
                       {"validation", {{"tokens", 70}}},
                       {"tokenizer", {{"model", "tiny"}, {"version", std::string(64, 'e')}}},
                       {"tokenizer_reader", 4},
                       {"fits", true}};
    DatasetCopy copy{"leonardo", "it"};
    found_ = {{"items", Json::array({good})}};
    ASSERT_TRUE(resolve(copy).ok());
    EXPECT_EQ(copy.version, 7);
    EXPECT_EQ(copy.path, "a/b");
    EXPECT_EQ(copy.rows, 5);
    EXPECT_EQ(copy.seq_len, 128);
    EXPECT_EQ(copy.fingerprint, "feed");
    EXPECT_EQ(copy.validation_tokens, 70);
    const std::vector<std::pair<std::string, Json>> damages = {
        {"version", "x"},          {"path", "../b"},  {"seq_len", nullptr},  {"train", 7},
        {"tokenizer_reader", "x"}, {"validation", 7}, {"tokenizer", {7, 8}}, {"tokenizer", Json::object()}};
    for (const auto& [key, damage] : damages) {
        Json bad = good;
        bad[key] = damage;
        found_ = {{"items", Json::array({bad})}};
        EXPECT_FALSE(resolve(copy).ok()) << found_;
    }
    for (const Json& answer :
         {Json(), Json(7), Json{{"items", 7}}, Json{{"items", Json::array()}}, Json{{"items", Json::array({7})}}}) {
        found_ = answer;
        EXPECT_FALSE(resolve(copy).ok()) << found_;
    }
}

TEST_F(DamagedAnswerTest, ACopyThatIsNotThereIsNamedInTheFieldAlone) {
    answer_ = {{"items", Json::array()}, {"next", nullptr},      {"template", "{{text}}"},
               {"created_by", "ada"},    {"created_at", "then"}, {"language", "it"}};
    for (const std::int64_t version : {0, 7}) {
        DatasetCopy copy{"leonardo", "it", version};
        const Status resolved = resolve(copy);
        ASSERT_FALSE(resolved.ok());
        EXPECT_EQ(resolved.error().field, "participants[0].dataset");
        EXPECT_FALSE(resolved.error().message.starts_with("participants[0]")) << resolved.error().message;
    }
}

TEST_F(DamagedAnswerTest, OfManyCopiesThatAreNotThereAFewAreAskedFor) {
    answer_ = {{"items", Json::array()}, {"next", nullptr},      {"template", "{{text}}"},
               {"created_by", "ada"},    {"created_at", "then"}, {"language", "it"}};
    std::vector<DatasetCopy> data(1000, DatasetCopy{"leonardo", "it"});
    std::vector<NamedCopy> copies;
    for (DatasetCopy& copy : data) copies.push_back({&copy, "evaluation.at[" + std::to_string(copies.size()) + "]"});
    found_ = {{"items", Json(std::vector<Json>(data.size()))}};
    ASSERT_TRUE(catalog_.resolve(copies, nullptr).ok());
    EXPECT_LT(requests(), 50);
    for (const NamedCopy& copy : copies) EXPECT_EQ(copy.found.error().field, copy.path + ".dataset");
    EXPECT_NE(copies.back().found.error().message.find("correct the ones before"), std::string::npos);
}

// A registry without any of the datasets that it is asked for.
class AbsentDatasetTest : public testing::Test {
  protected:
    int lists_ = 0;
    http::TestServer server_{[this](http::Server& server) {
        server.route(http::Method::kPost, "/v1/copies/find", http::Access::open(), [](const http::Request&) {
            return http::Response::json(200, {{"items", {nullptr, nullptr, nullptr}}});
        });
        server.route(http::Method::kGet, "/v1/datasets/:name", http::Access::open(), [](const http::Request&) {
            return http::Response::problem(not_found("there is no such dataset"));
        });
        server.route(http::Method::kGet, "/v1/datasets", http::Access::open(), [this](const http::Request&) {
            ++lists_;
            return http::Response::json(200, {{"items", {{{"name", "diaries-it"}}}}, {"next", nullptr}});
        });
    }};
    Catalog catalog_{server_.url(), server_.url(),
                     auth::Issuer::from_pem(auth::generate_keys().value().private_pem).value()};
};

TEST_F(AbsentDatasetTest, TheListIsReadOnceForAllGuesses) {
    std::vector<DatasetCopy> data(3, DatasetCopy{"leonardo", "diaries-ti"});
    std::vector<NamedCopy> copies;
    for (DatasetCopy& copy : data) copies.push_back({&copy, "participants[" + std::to_string(copies.size()) + "]"});
    ASSERT_TRUE(catalog_.resolve(copies, nullptr).ok());
    for (const NamedCopy& copy : copies)
        EXPECT_NE(copy.found.error().message.find("diaries-it"), std::string::npos) << copy.found.error().message;
    EXPECT_EQ(lists_, 1);
}

// A registry that does not take the tokens that it has seen so far, or takes none.
class RefusedTokenTest : public testing::Test {
  protected:
    http::Response answer(const http::Request& request) {
        const std::string token = request.header("authorization");
        if (takes_none_ || refused_ == token)
            return http::Response::problem({ErrorCode::kUnauthenticated, "the token has expired", {}});
        seen_ = token;
        return http::Response::json(200, {{"name", "it"},
                                          {"template", "{{text}}"},
                                          {"created_by", "ada"},
                                          {"created_at", "then"},
                                          {"language", "it"},
                                          {"version", 7}});
    }
    std::string seen_, refused_;
    bool takes_none_ = false;
    http::TestServer server_{[this](http::Server& server) {
        const auto handler = [this](const http::Request& request) { return answer(request); };
        server.route(http::Method::kGet, "/v1/datasets/:name", http::Access::open(), handler);
        server.route(http::Method::kPost, "/v1/datasets/:name/versions", http::Access::open(), handler);
        server.route(http::Method::kPut, "/v1/datasets/:name/versions/:version/copies/:facility", http::Access::open(),
                     handler);
    }};
    Catalog catalog_{server_.url(), server_.url(),
                     auth::Issuer::from_pem(auth::generate_keys().value().private_pem).value()};
};

TEST_F(RefusedTokenTest, ATokenThatIsNoLongerTakenIsReplacedAtOnce) {
    const std::function<Status()> questions[] = {
        [&]() -> Status { return catalog_.dataset("it", "dataset").ok() ? Status() : unavailable(""); },
        [&]() -> Status {
            return catalog_.register_version("it", Json::object(), "key").ok() ? Status() : unavailable("");
        },
        [&]() -> Status { return catalog_.register_copy("it", 1, "a", "b", "f"); }};
    for (const auto& question : questions) {
        ASSERT_TRUE(question().ok());
        refused_ = seen_;
        EXPECT_TRUE(question().ok());
        EXPECT_NE(seen_, refused_);
    }
}

TEST_F(RefusedTokenTest, ThatNoneIsTakenIsNotSaidOfTheAskersToken) {
    takes_none_ = true;
    const auto dataset = catalog_.dataset("it", "dataset");
    ASSERT_FALSE(dataset.ok());
    EXPECT_EQ(dataset.error().code, ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace atl::dispatch
