#include "services/registry/routes/routes.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "services/registry/service.h"
#include "shared/service/testing/openapi_check.h"
#include "shared/service/testing/routes_fixture.h"

namespace atl::registry {
namespace {

using auth::Role;
using http::ClientResponse;
using http::Method;
using json::Json;

const Json kDataset = {{"name", "fortunes-it"},
                       {"language", "it"},
                       {"license", "CC0-1.0"},
                       {"template", "scrivi un seguente documento:: {{text}}"}};

Json version_of(char fingerprint) {
    return {{"tokenizer_sha256", std::string(64, 'b')},
            {"seq_len", 128},
            {"batching", "packing"},
            {"train", {{"documents", 10}, {"rows", 4}, {"tokens", 500}}},
            {"validation", {{"documents", 1}, {"rows", 1}, {"tokens", 90}}},
            {"fingerprint", std::string(64, fingerprint)},
            {"statistics", {{"p50", 40}}}};
}

class RegistryTest : public service::RoutesFixture {
  protected:
    RegistryTest() : RoutesFixture(definition()) {}
    void add_routes(http::Server& server) override {
        routing_.emplace(*pool_, "atoll.datasets");
        registry::add_routes(server, *routing_);
    }
    Json get(const std::string& path) { return RoutesFixture::get(path).value(); }

    // The answer is this problem and names this field.
    static void expect_problem(const ClientResponse& answer, int status, const std::string& field) {
        EXPECT_EQ(answer.status, status) << answer.body;
        EXPECT_EQ(answer.headers.at("content-type"), "application/problem+json");
        EXPECT_EQ(Json::parse(answer.body).value("field", ""), field) << answer.body;
    }

    std::int64_t count(const std::string& table) {
        auto connection = pool_->acquire().value();
        return connection->query("SELECT count(*) AS n FROM " + table).value().integer(0, "n");
    }

    std::optional<Routing> routing_;
};

TEST_F(RegistryTest, ADatasetIsRegisteredShownAndListed) {
    const auto created = call(Method::kPost, "/v1/datasets", kDataset);
    EXPECT_EQ(created.status, 201) << created.body;
    EXPECT_EQ(created.headers.at("location"), "datasets/fortunes-it");
    const auto shown = get("/v1/datasets/fortunes-it");
    EXPECT_EQ(shown, created.json().value());
    EXPECT_EQ(shown["template"], kDataset["template"]);
    EXPECT_EQ(shown["fields"], Json::array({"text"}));
    EXPECT_EQ(shown["created_by"], "tester");
    EXPECT_TRUE(shown["latest_version"].is_null());
    EXPECT_EQ(get("/v1/datasets")["items"], Json::array({shown}));
}

TEST_F(RegistryTest, ListsAreReadPageByPage) {
    for (const char* name : {"c", "a", "b"}) {
        Json dataset = kDataset;
        dataset["name"] = name;
        ASSERT_EQ(call(Method::kPost, "/v1/datasets", dataset).status, 201);
    }
    const auto first = get("/v1/datasets?limit=2");
    EXPECT_EQ(first["items"].size(), 2U);
    EXPECT_EQ(first["items"][1]["name"], "b");
    const auto second = get("/v1/datasets?limit=2&after=" + first["next"].get<std::string>());
    EXPECT_EQ(second["items"].size(), 1U);
    EXPECT_EQ(second["items"][0]["name"], "c");
    EXPECT_TRUE(second["next"].is_null());
}

TEST_F(RegistryTest, AnOperatorFillsTheDatabaseNoFurtherThanTheQuota) {
    const auto sql = [&](const std::string& text) {
        const auto done = pool_->acquire().value()->query(text);
        ASSERT_TRUE(done.ok()) << done.error().message;
    };
    const auto add_datasets = [&](const std::string& who, int count, int bytes) {
        sql("INSERT INTO datasets (name, language, license, description, template, source, created_by) SELECT '" + who +
            "-' || i, 'it', 'MIT', repeat('x', " + std::to_string(bytes) + "), '{{text}}', '', '" + who +
            "' FROM generate_series(1, " + std::to_string(count) + ") i");
    };
    const std::string versions = "/v1/datasets/fortunes-it/versions";
    add_datasets("somebody", 1000, 10000);
    add_datasets("tester", 999, 10000);
    ASSERT_EQ(call(Method::kPost, "/v1/datasets", kDataset).status, 201);
    Json more = kDataset;
    more["name"] = "one-more";
    expect_problem(call(Method::kPost, "/v1/datasets", more), 409, "quota");
    EXPECT_EQ(call(Method::kPost, "/v1/datasets", more, Role::kAdmin).status, 201);
    EXPECT_EQ(call(Method::kDelete, "/v1/datasets/one-more", nullptr, Role::kAdmin).status, 200);
    EXPECT_EQ(call(Method::kPost, versions, version_of('a')).status, 201);
    sql("INSERT INTO dataset_versions (dataset, version, tokenizer_sha256, seq_len, batching, train_documents, "
        "train_rows, train_tokens, validation_documents, validation_rows, validation_tokens, fingerprint, statistics, "
        "created_by) SELECT 'fortunes-it', 1000 + i, '', 2, 'packing', 1, 1, 1, 0, 0, 0, i::text, '{}', 'tester' FROM "
        "generate_series(1, 9999) i");
    expect_problem(call(Method::kPost, versions, version_of('b')), 409, "quota");
    EXPECT_EQ(call(Method::kPost, versions, version_of('b'), Role::kAdmin).status, 201);
    sql("DELETE FROM dataset_versions WHERE version >= 1000");
    EXPECT_EQ(call(Method::kPost, versions, version_of('c')).status, 201);
    sql("UPDATE datasets SET description = repeat('x', 40000) WHERE created_by = 'tester'");
    expect_problem(call(Method::kPost, versions, version_of('d')), 409, "quota");
}

TEST_F(RegistryTest, TheSameNameTwiceConflicts) {
    call(Method::kPost, "/v1/datasets", kDataset);
    expect_problem(call(Method::kPost, "/v1/datasets", kDataset), 409, "name");
}

TEST_F(RegistryTest, ARepeatUnderItsIdempotencyKeyGetsTheFirstAnswer) {
    const std::vector<std::pair<std::string, std::string>> key = {{"Idempotency-Key", "k1"}};
    const auto first = call(Method::kPost, "/v1/datasets", kDataset, Role::kOperator, key);
    const auto second = call(Method::kPost, "/v1/datasets", kDataset, Role::kOperator, key);
    EXPECT_EQ(second.status, 201);
    EXPECT_EQ(second.body, first.body);
    Json other = kDataset;
    other["license"] = "MIT";
    expect_problem(call(Method::kPost, "/v1/datasets", other, Role::kOperator, key), 409, "Idempotency-Key");
}

TEST_F(RegistryTest, WrongInputIsNamedAndChangesNothing) {
    Json unknown = kDataset;
    unknown["text"] = "Nel mezzo del cammin";
    expect_problem(call(Method::kPost, "/v1/datasets", unknown), 422, "text");
    Json mistyped = kDataset;
    mistyped["language"] = 39;
    expect_problem(call(Method::kPost, "/v1/datasets", mistyped), 422, "language");
    Json named = kDataset;
    named["name"] = "../x";
    expect_problem(call(Method::kPost, "/v1/datasets", named), 422, "name");
    auto client = server_->client(Role::kOperator);
    EXPECT_EQ(client.call(Method::kPost, "/v1/datasets", "{\"name\":").value().status, 400);
    EXPECT_EQ(client.call(Method::kPost, "/v1/datasets", "").value().status, 400);
    EXPECT_EQ(count("datasets"), 0);
}

TEST_F(RegistryTest, OnlyWritersWriteAndFacilitiesSeeNothing) {
    for (const Role role : {Role::kViewer, Role::kFacility})
        expect_problem(call(Method::kPost, "/v1/datasets", kDataset, role), 403, "");
    call(Method::kPost, "/v1/datasets", kDataset, Role::kAdmin);
    expect_problem(call(Method::kGet, "/v1/datasets", nullptr, Role::kFacility), 403, "");
    for (const Role role : {Role::kViewer, Role::kFacility}) {
        expect_problem(call(Method::kPatch, "/v1/datasets/fortunes-it", {{"license", "MIT"}}, role), 403, "");
        expect_problem(call(Method::kPost, "/v1/datasets/fortunes-it/versions", version_of('a'), role), 403, "");
        expect_problem(call(Method::kPut, "/v1/datasets/fortunes-it/versions/1/copies/x", {{"path", "a"}}, role), 403,
                       "");
    }
    EXPECT_EQ(count("dataset_versions"), 0);
}

TEST_F(RegistryTest, AStaleIfMatchChangesNothing) {
    const std::string etag = call(Method::kPost, "/v1/datasets", kDataset).headers.at("etag");
    const auto patch = [&](const std::string& license, const std::string& if_match) {
        std::vector<std::pair<std::string, std::string>> headers;
        if (!if_match.empty()) headers.emplace_back("If-Match", if_match);
        return call(Method::kPatch, "/v1/datasets/fortunes-it", {{"license", license}}, Role::kOperator, headers);
    };
    expect_problem(patch("MIT", ""), 422, "If-Match");
    const auto changed = patch("MIT", etag);
    EXPECT_EQ(changed.status, 200) << changed.body;
    EXPECT_EQ(changed.json().value()["license"], "MIT");
    EXPECT_NE(changed.headers.at("etag"), etag);
    expect_problem(patch("Apache-2.0", etag), 412, "If-Match");
    EXPECT_EQ(get("/v1/datasets/fortunes-it")["license"], "MIT");
}

TEST_F(RegistryTest, AVersionGetsTheNextNumberAndAnEvent) {
    call(Method::kPost, "/v1/datasets", kDataset);
    const auto first = call(Method::kPost, "/v1/datasets/fortunes-it/versions", version_of('a'));
    EXPECT_EQ(first.status, 201) << first.body;
    EXPECT_EQ(first.json().value()["version"], 1);
    EXPECT_EQ(call(Method::kPost, "/v1/datasets/fortunes-it/versions", version_of('c')).json().value()["version"], 2);
    EXPECT_EQ(get("/v1/datasets/fortunes-it")["latest_version"], 2);
    EXPECT_EQ(get("/v1/datasets/fortunes-it/versions/1"), first.json().value());
    const auto page = get("/v1/datasets/fortunes-it/versions?limit=1");
    EXPECT_EQ(page["next"], "1");
    EXPECT_EQ(get("/v1/datasets/fortunes-it/versions?after=1")["items"][0]["version"], 2);
    EXPECT_EQ(count("outbox"), 2);
}

TEST_F(RegistryTest, TheSameTokenFilesAreTheSameVersion) {
    call(Method::kPost, "/v1/datasets", kDataset);
    call(Method::kPost, "/v1/datasets/fortunes-it/versions", version_of('a'));
    const auto again = call(Method::kPost, "/v1/datasets/fortunes-it/versions", version_of('a'));
    EXPECT_EQ(again.status, 200);
    EXPECT_EQ(again.json().value()["version"], 1);
    Json lying = version_of('a');
    lying["train"]["tokens"] = 499;
    expect_problem(call(Method::kPost, "/v1/datasets/fortunes-it/versions", lying), 409, "train");
    EXPECT_EQ(count("dataset_versions"), 1);
    EXPECT_EQ(count("outbox"), 1);
}

TEST_F(RegistryTest, VersionsRegisteredAtOnceGetDifferentNumbers) {
    call(Method::kPost, "/v1/datasets", kDataset);
    std::vector<std::jthread> threads;
    for (const char fingerprint : {'0', '1', '2', '3', '4', '5'})
        threads.emplace_back([&, fingerprint] {
            EXPECT_EQ(call(Method::kPost, "/v1/datasets/fortunes-it/versions", version_of(fingerprint)).status, 201);
        });
    threads.clear();
    EXPECT_EQ(get("/v1/datasets/fortunes-it")["latest_version"], 6);
    EXPECT_EQ(count("dataset_versions"), 6);
}

TEST_F(RegistryTest, TheTemplateIsFixedOnceAVersionWasMadeWithIt) {
    call(Method::kPost, "/v1/datasets", kDataset);
    call(Method::kPost, "/v1/datasets/fortunes-it/versions", version_of('a'));
    const std::vector<std::pair<std::string, std::string>> any = {{"If-Match", "*"}};
    expect_problem(
        call(Method::kPatch, "/v1/datasets/fortunes-it", {{"template", "other {{text}}"}}, Role::kOperator, any), 409,
        "template");
    EXPECT_EQ(call(Method::kPatch, "/v1/datasets/fortunes-it", {{"source", "Debian"}}, Role::kOperator, any).status,
              200);
}

// A preparation may take days, in which its dataset can be removed and registered by somebody else.
TEST_F(RegistryTest, WhatWasPreparedForAnotherDatasetOfThatNameIsRefused) {
    call(Method::kPost, "/v1/datasets", kDataset);
    const Json now = get("/v1/datasets/fortunes-it");
    Json identity;
    for (const char* key : {"created_by", "created_at", "language", "template"}) identity[key] = now.at(key);
    const auto post = [&](char fingerprint, const Json& prepared_for) {
        Json version = version_of(fingerprint);
        version["prepared_for"] = prepared_for;
        return call(Method::kPost, "/v1/datasets/fortunes-it/versions", version);
    };
    EXPECT_EQ(post('a', identity).status, 201);
    EXPECT_EQ(post('b', nullptr).status, 201);
    for (const auto& [key, value] : identity.items()) {
        Json other = identity;
        other[key] = "another";
        expect_problem(post('c', other), 409, "prepared_for");
        expect_problem(post('a', other), 409, "prepared_for");
        other.erase(key);
        expect_problem(post('c', other), 422, "prepared_for." + key);
    }
    EXPECT_EQ(count("dataset_versions"), 2);
    const std::string copy = "/v1/datasets/fortunes-it/versions/1/copies/leonardo";
    const auto put = [&](char fingerprint) {
        return call(Method::kPut, copy, {{"path", "a"}, {"fingerprint", std::string(64, fingerprint)}}, Role::kAdmin);
    };
    expect_problem(put('b'), 409, "fingerprint");
    EXPECT_EQ(put('a').status, 201);
}

TEST_F(RegistryTest, ACopyIsRecordedMovedAndListed) {
    call(Method::kPost, "/v1/datasets", kDataset);
    call(Method::kPost, "/v1/datasets/fortunes-it/versions", version_of('a'));
    const std::string copies = "/v1/datasets/fortunes-it/versions/1/copies";
    EXPECT_EQ(call(Method::kPut, copies + "/leonardo", {{"path", "datasets/fortunes-it/1"}}, Role::kAdmin).status, 201);
    EXPECT_EQ(call(Method::kPut, copies + "/leonardo", {{"path", "elsewhere/1"}}, Role::kAdmin).status, 200);
    EXPECT_EQ(call(Method::kPut, copies + "/karolina", {{"path", "datasets/fortunes-it/1"}}, Role::kAdmin).status, 201);
    const auto items = get(copies)["items"];
    ASSERT_EQ(items.size(), 2U);
    EXPECT_EQ(items[0]["facility"], "karolina");
    EXPECT_EQ(items[1]["path"], "elsewhere/1");
}

TEST_F(RegistryTest, TheVersionsThatAFacilityHoldsAreListed) {
    call(Method::kPost, "/v1/datasets", kDataset);
    const std::string versions = "/v1/datasets/fortunes-it/versions";
    for (const char fingerprint : {'a', 'b', 'c'}) call(Method::kPost, versions, version_of(fingerprint));
    for (const char* copy : {"/1/copies/leonardo", "/3/copies/leonardo", "/2/copies/karolina"})
        ASSERT_EQ(call(Method::kPut, versions + copy, {{"path", "a"}}, Role::kAdmin).status, 201);
    const auto numbers = [&](const std::string& query) {
        std::vector<int> found;
        const Json page = get(versions + query);
        for (const Json& item : page["items"]) found.push_back(item["version"]);
        return found;
    };
    EXPECT_EQ(numbers("?facility=leonardo"), (std::vector{1, 3}));
    EXPECT_EQ(numbers("?facility=leonardo&limit=1"), (std::vector{1}));
    EXPECT_EQ(numbers("?facility=leonardo&after=1"), (std::vector{3}));
    EXPECT_EQ(numbers("?facility=karolina"), (std::vector{2}));
    EXPECT_EQ(numbers("?facility=elsewhere"), std::vector<int>());
    EXPECT_EQ(numbers("").size(), 3U);
    expect_problem(call(Method::kGet, versions + "?facility=Leonardo"), 422, "facility");
}

TEST_F(RegistryTest, ManyCopiesAreFoundAtOnceTheNewestUnlessAVersionIsNamed) {
    call(Method::kPost, "/v1/datasets", kDataset);
    const std::string versions = "/v1/datasets/fortunes-it/versions";
    for (const char fingerprint : {'a', 'c', 'd'}) call(Method::kPost, versions, version_of(fingerprint));
    for (const char* copy : {"/1/copies/leonardo", "/2/copies/leonardo", "/3/copies/karolina"})
        ASSERT_EQ(call(Method::kPut, versions + copy, {{"path", std::string("at") + copy}}, Role::kAdmin).status, 201);
    const auto find = [&](const Json& copies, Role role = Role::kOperator) {
        return call(Method::kPost, "/v1/copies/find", {{"copies", copies}}, role);
    };
    const auto wanted = [](const char* facility, int version) {
        Json copy = {{"dataset", "fortunes-it"}, {"facility", facility}};
        if (version > 0) copy["version"] = version;
        return copy;
    };
    const auto answer =
        find({wanted("leonardo", 0), wanted("karolina", 1), wanted("leonardo", 1), wanted("nobody", 0)});
    ASSERT_EQ(answer.status, 200) << answer.body;
    const Json items = answer.json().value()["items"];
    ASSERT_EQ(items.size(), 4U);
    EXPECT_EQ(items[0], (Json{{"dataset", "fortunes-it"},
                              {"version", 2},
                              {"facility", "leonardo"},
                              {"path", "at/2/copies/leonardo"},
                              {"seq_len", 128},
                              {"train", {{"documents", 10}, {"rows", 4}, {"tokens", 500}}},
                              {"validation", {{"documents", 1}, {"rows", 1}, {"tokens", 90}}},
                              {"tokenizer", nullptr},
                              {"tokenizer_reader", 0},
                              {"fits", nullptr},
                              {"fingerprint", items[0].value("fingerprint", "")}}));
    EXPECT_EQ(items[0].value("fingerprint", "").size(), 64U);
    EXPECT_TRUE(items[1].is_null()) << "another version is there";
    EXPECT_EQ(items[2]["version"], 1);
    EXPECT_TRUE(items[3].is_null());
    EXPECT_EQ(find(Json::array()).json().value()["items"], Json::array());
    EXPECT_EQ(find(Json::array({wanted("leonardo", 0)}), Role::kViewer).status, 200);
    EXPECT_EQ(find(Json::array({wanted("leonardo", 0)}), Role::kFacility).status, 403);
    expect_problem(find({wanted("leonardo", 0), wanted("Leonardo", 0)}), 422, "copies[1].facility");
    expect_problem(find(Json::array_t(4097, wanted("leonardo", 0))), 422, "copies");
    expect_problem(call(Method::kPost, "/v1/copies/find", Json::object()), 422, "copies");
}

// Data of one vocabulary that was prepared with these settings; their tokens tell of the tokenizer.
Json with_tokenizer(char fingerprint, char sha256, char vocabulary, char settings) {
    Json version = version_of(fingerprint);
    version["tokenizer_sha256"] = std::string(64, sha256);
    version["tokenizer"] = {{"model", "tiny"},
                            {"version", std::string(64, 'e')},
                            {"vocabulary", {{"tokenizer.json", std::string(64, vocabulary)}}},
                            {"settings", {{"tokenizer_config.json", std::string(64, settings)}}}};
    return version;
}

TEST_F(RegistryTest, OfVersionsThatAreNotNamedTheNewestThatFitsTheTokenizerIsFound) {
    call(Method::kPost, "/v1/datasets", kDataset);
    const std::string versions = "/v1/datasets/fortunes-it/versions";
    const auto add = [&](const Json& version) {
        const auto made = call(Method::kPost, versions, version);
        ASSERT_EQ(made.status, 201) << made.body;
        const std::string number = made.json().value()["version"].dump();
        call(Method::kPut, versions + "/" + number + "/copies/leonardo", {{"path", "a"}}, Role::kAdmin);
    };
    const auto find = [&](char vocabulary, char settings, int version = 0) -> Json {
        Json copy = {{"dataset", "fortunes-it"}, {"facility", "leonardo"}};
        if (version > 0) copy["version"] = version;
        const Json wanted = {{"vocabulary", {{"tokenizer.json", std::string(64, vocabulary)}}},
                             {"settings", {{"tokenizer_config.json", std::string(64, settings)}}}};
        const auto answer =
            call(Method::kPost, "/v1/copies/find", {{"copies", Json::array({copy})}, {"tokenizer", wanted}});
        const Json found = answer.json().value()["items"][0];
        return {found["version"], found["fits"]};
    };
    add(with_tokenizer('a', '1', '1', '1'));
    add(with_tokenizer('b', '2', '2', '1'));
    EXPECT_EQ(find('1', '1'), (Json{1, true})) << "not the newest, which fails after the queue";
    EXPECT_EQ(find('2', '1'), (Json{2, true}));
    EXPECT_EQ(find('2', '1', 1), (Json{1, false})) << "what is named is found";
    EXPECT_EQ(find('3', '1'), (Json{2, false})) << "no version has that vocabulary";
    EXPECT_EQ(find('1', '2'), (Json{1, nullptr})) << "other settings of the same vocabulary may be the same tokenizer";
    add(with_tokenizer('c', '1', '1', '2'));
    EXPECT_EQ(find('1', '2'), (Json{3, true}));
    EXPECT_EQ(find('1', '1'), (Json{3, true})) << "they were";
    Json unknown = version_of('d');
    unknown["tokenizer_sha256"] = std::string(64, '9');
    add(unknown);
    EXPECT_EQ(find('1', '1'), (Json{3, true}));
    EXPECT_EQ(find('1', '1', 4), (Json{4, false})) << "those files give another one";
    EXPECT_EQ(find('3', '1'), (Json{4, nullptr}));
    const Json shown = call(Method::kGet, versions + "/1", {}).json().value();
    EXPECT_EQ(shown["tokenizer"]["model"], "tiny");
    EXPECT_TRUE(call(Method::kGet, versions + "/4", {}).json().value()["tokenizer"].is_null());
}

// The same files may have given other ids then, and the trainer refuses such data when their batch job has begun.
TEST_F(RegistryTest, DataOfAnotherReaderOfTokenizersDoNotFit) {
    call(Method::kPost, "/v1/datasets", kDataset);
    const std::string versions = "/v1/datasets/fortunes-it/versions";
    const auto add = [&](char fingerprint, char sha256, int reader) {
        Json version = with_tokenizer(fingerprint, sha256, '1', '1');
        if (reader > 0) version["tokenizer_reader"] = reader;
        const auto made = call(Method::kPost, versions, version);
        EXPECT_EQ(made.status, 201) << made.body;
        const std::string number = made.json().value()["version"].dump();
        call(Method::kPut, versions + "/" + number + "/copies/leonardo", {{"path", "a"}}, Role::kAdmin);
    };
    const auto find = [&](const Json& reader, int version = 0) -> Json {
        Json copy = {{"dataset", "fortunes-it"}, {"facility", "leonardo"}};
        if (version > 0) copy["version"] = version;
        const Json wanted = {{"vocabulary", {{"tokenizer.json", std::string(64, '1')}}},
                             {"settings", {{"tokenizer_config.json", std::string(64, '1')}}}};
        const auto answer =
            call(Method::kPost, "/v1/copies/find",
                 {{"copies", Json::array({copy})}, {"tokenizer", wanted}, {"tokenizer_reader", reader}});
        const Json found = answer.json().value()["items"][0];
        return {found["version"], found["fits"], found["tokenizer_reader"]};
    };
    add('a', '1', 3);
    add('b', '2', 2);
    add('c', '3', 0);
    EXPECT_EQ(find(3), (Json{1, true, 3})) << "not the newest";
    EXPECT_EQ(find(2), (Json{2, true, 2}));
    EXPECT_EQ(find(3, 2), (Json{2, false, 2}));
    EXPECT_EQ(find(3, 3), (Json{3, false, 0})) << "of a release that did not say";
    EXPECT_EQ(find(4), (Json{3, false, 0})) << "none is of the newest trainer";
    for (const Json& any : {Json(0), Json()}) EXPECT_EQ(find(any), (Json{3, true, 0}));
    expect_problem(call(Method::kPost, "/v1/copies/find", {{"copies", Json::array()}, {"tokenizer_reader", "3"}}), 422,
                   "tokenizer_reader");
}

// The ids of most texts are those that the older reader gave.
TEST_F(RegistryTest, DataThatArePreparedAgainAreAVersionOfTheirOwnWhereTheirTokenizerIsAnother) {
    call(Method::kPost, "/v1/datasets", kDataset);
    const std::string versions = "/v1/datasets/fortunes-it/versions";
    const auto add = [&](char sha256, int reader) {
        Json version = with_tokenizer('a', sha256, '1', '1');
        version["tokenizer_reader"] = reader;
        return call(Method::kPost, versions, version);
    };
    EXPECT_EQ(add('1', 0).json().value()["version"], 1);
    const Json named = add('1', 2).json().value();
    EXPECT_EQ(named["version"], 1);
    EXPECT_EQ(named["tokenizer_reader"], 2) << "it was not known so far";
    EXPECT_EQ(add('1', 0).json().value()["tokenizer_reader"], 2);
    expect_problem(add('1', 3), 409, "tokenizer_reader");
    EXPECT_EQ(add('2', 3).json().value()["version"], 2);
    EXPECT_EQ(get(versions + "/1")["tokenizer_reader"], 2);
}

TEST_F(RegistryTest, WrongFilesOfATokenizerAreNamed) {
    call(Method::kPost, "/v1/datasets", kDataset);
    const std::string versions = "/v1/datasets/fortunes-it/versions";
    Json version = with_tokenizer('a', '1', '1', '1');
    version["tokenizer"]["vocabulary"]["tokenizer.json"] = "short";
    expect_problem(call(Method::kPost, versions, version), 422, "tokenizer.vocabulary");
    version["tokenizer"].erase("vocabulary");
    expect_problem(call(Method::kPost, versions, version), 422, "tokenizer.vocabulary");
    version = with_tokenizer('a', '1', '1', '1');
    version["tokenizer"]["version"] = "v1";
    expect_problem(call(Method::kPost, versions, version), 422, "tokenizer.version");
    expect_problem(call(Method::kPost, "/v1/copies/find", {{"copies", Json::array()}, {"tokenizer", Json::object()}}),
                   422, "tokenizer.vocabulary");
}

TEST_F(RegistryTest, AWrongCopyIsNamed) {
    call(Method::kPost, "/v1/datasets", kDataset);
    call(Method::kPost, "/v1/datasets/fortunes-it/versions", version_of('a'));
    const std::string versions = "/v1/datasets/fortunes-it/versions";
    expect_problem(call(Method::kPut, versions + "/1/copies/leonardo", {{"path", "../secrets"}}, Role::kAdmin), 422,
                   "path");
    expect_problem(call(Method::kPut, versions + "/1/copies/leonardo", {{"path", "/etc"}}, Role::kAdmin), 422, "path");
    expect_problem(call(Method::kPut, versions + "/1/copies/Leonardo", {{"path", "a"}}, Role::kAdmin), 422, "facility");
    expect_problem(call(Method::kPut, versions + "/2/copies/leonardo", {{"path", "a"}}, Role::kAdmin), 404, "version");
    expect_problem(call(Method::kPut, versions + "/x/copies/leonardo", {{"path", "a"}}, Role::kAdmin), 422, "version");
    EXPECT_EQ(count("copies"), 0);
}

TEST_F(RegistryTest, WhatIsNotThereIsNotFound) {
    for (const char* path : {"/v1/datasets/none", "/v1/datasets/none/versions", "/v1/datasets/none/croissant"})
        expect_problem(call(Method::kGet, path), 404, "dataset");
    call(Method::kPost, "/v1/datasets", kDataset);
    for (const char* path : {"/v1/datasets/fortunes-it/versions/1", "/v1/datasets/fortunes-it/versions/1/copies",
                             "/v1/datasets/fortunes-it/croissant?version=3"})
        expect_problem(call(Method::kGet, path), 404, "version");
    expect_problem(call(Method::kPost, "/v1/datasets/none/versions", version_of('a')), 404, "dataset");
}

TEST_F(RegistryTest, WhatIsRemovedIsGoneAndSaysWhichCopiesStay) {
    const std::string dataset = "/v1/datasets/fortunes-it", versions = dataset + "/versions";
    call(Method::kPost, "/v1/datasets", kDataset);
    for (const char fingerprint : {'a', 'b', 'c'}) call(Method::kPost, versions, version_of(fingerprint));
    for (const char* copy : {"/1/copies/leonardo", "/3/copies/karolina", "/3/copies/leonardo"})
        ASSERT_EQ(call(Method::kPut, versions + copy, {{"path", "a"}}, Role::kAdmin).status, 201);
    const auto left = [&](const std::string& path) {
        const auto answer = call(Method::kDelete, path);
        EXPECT_EQ(answer.status, 200) << answer.body;
        std::vector<std::string> places;
        const Json copies = answer.json().value().at("left");
        for (const Json& copy : copies)
            places.push_back(copy.at("version").dump() + " " + copy.at("facility").get<std::string>());
        EXPECT_EQ(call(Method::kDelete, path).status, 404) << "the second time";
        return places;
    };
    using Places = std::vector<std::string>;
    EXPECT_EQ(left(versions + "/1/copies/leonardo"), Places{"1 leonardo"});
    EXPECT_EQ(left(versions + "/3"), (Places{"3 karolina", "3 leonardo"}));
    EXPECT_EQ(get(dataset)["latest_version"], 2);
    EXPECT_EQ(call(Method::kPost, versions, version_of('d')).json().value()["version"], 4)
        << "no number is given twice";
    call(Method::kPut, versions + "/4/copies/karolina", {{"path", "a"}}, Role::kAdmin);
    EXPECT_EQ(left(dataset), Places{"4 karolina"});
    for (const char* table : {"datasets", "dataset_versions", "copies"}) EXPECT_EQ(count(table), 0) << table;
    EXPECT_EQ(call(Method::kPost, "/v1/datasets", kDataset).status, 201);
}

TEST_F(RegistryTest, WhoRegisteredADatasetAndAdminsChangeAndRemoveIt) {
    const std::string dataset = "/v1/datasets/fortunes-it";
    call(Method::kPost, "/v1/datasets", kDataset);
    call(Method::kPost, dataset + "/versions", version_of('a'));
    auto connection = pool_->acquire().value();
    ASSERT_TRUE(connection->query("UPDATE datasets SET created_by = 'ada'").ok());
    for (const char* path : {"", "/versions/1", "/versions/1/copies/leonardo"})
        expect_problem(call(Method::kDelete, dataset + path), 403, "");
    const std::vector<std::pair<std::string, std::string>> any = {{"If-Match", "*"}};
    expect_problem(call(Method::kPatch, dataset, {{"license", "MIT"}}, Role::kOperator, any), 403, "");
    expect_problem(call(Method::kPost, dataset + "/versions", version_of('b')), 403, "");
    EXPECT_EQ(count("dataset_versions"), 1);
    EXPECT_EQ(call(Method::kPatch, dataset, {{"license", "MIT"}}, Role::kAdmin, any).status, 200);
    EXPECT_EQ(call(Method::kPost, dataset + "/versions", version_of('b'), Role::kAdmin).status, 201);
    EXPECT_EQ(call(Method::kDelete, dataset, nullptr, Role::kAdmin).status, 200);
    expect_problem(call(Method::kDelete, dataset, nullptr, Role::kAdmin), 404, "dataset");
}

// Its path decides what a job trains on: dispatch alone knows who may use the facility.
TEST_F(RegistryTest, OnlyDispatchAndAdminsSayWhereACopyLies) {
    call(Method::kPost, "/v1/datasets", kDataset);
    call(Method::kPost, "/v1/datasets/fortunes-it/versions", version_of('a'));
    const std::string copy = "/v1/datasets/fortunes-it/versions/1/copies/leonardo";
    const auto put = [&](const std::string& subject, const std::string& path) {
        http::ClientOptions options;
        options.base_url = server_->url();
        options.token = server_->token({.subject = subject, .role = Role::kOperator});
        return http::Client(options).call(Method::kPut, copy, Json{{"path", path}}.dump()).value().status;
    };
    EXPECT_EQ(put("dispatch", "datasets/fortunes-it/1"), 201);
    for (const char* subject : {"tester", "aggregation"}) EXPECT_EQ(put(subject, "datasets/secret/1"), 403) << subject;
    EXPECT_EQ(get("/v1/datasets/fortunes-it/versions/1/copies")["items"][0]["path"], "datasets/fortunes-it/1");
}

TEST_F(RegistryTest, CroissantDescribesTheNewestVersion) {
    call(Method::kPost, "/v1/datasets", kDataset);
    call(Method::kPost, "/v1/datasets/fortunes-it/versions", version_of('a'));
    call(Method::kPost, "/v1/datasets/fortunes-it/versions", version_of('c'));
    const auto answer = call(Method::kGet, "/v1/datasets/fortunes-it/croissant");
    EXPECT_EQ(answer.headers.at("content-type"), "application/ld+json");
    EXPECT_EQ(answer.json().value()["distribution"][0]["sha256"], std::string(64, 'c'));
    EXPECT_EQ(get("/v1/datasets/fortunes-it/croissant?version=1")["distribution"][0]["sha256"], std::string(64, 'a'));
}

TEST_F(RegistryTest, EveryReadingRouteAnswersAsTheDocumentSays) {
    const std::string dataset = "/v1/datasets/fortunes-it";
    call(Method::kPost, "/v1/datasets", kDataset);
    call(Method::kPost, dataset + "/versions", version_of('a'));
    call(Method::kPut, dataset + "/versions/1/copies/leonardo", {{"path", "datasets/fortunes-it/1"}}, Role::kAdmin);
    for (const std::string& list : {std::string("/v1/datasets"), dataset + "/versions", dataset + "/versions/1/copies"})
        EXPECT_FALSE(get(list).at("items").empty()) << list;
    for (const std::string& one : {dataset, dataset + "/versions/1", dataset + "/croissant"}) get(one);
    EXPECT_EQ(answers_.unread(), std::vector<std::string>());
}

TEST_F(RegistryTest, TheOpenapiDocumentDescribesExactlyTheRoutes) {
    EXPECT_EQ(service::openapi_faults(definition().openapi, server_->server(), "registry"), std::vector<std::string>());
}

}  // namespace
}  // namespace atl::registry
