#include <set>

#include "services/store/testing/store_fixture.h"
#include "shared/base/id.h"
#include "shared/kafka/kafka.h"
#include "shared/service/testing/openapi_check.h"
#include "shared/store_client/transfer.h"

namespace atl::store {
namespace {

TEST_F(StoreTest, ABlobGoesInOnceAndComesOutWholeOrInPart) {
    const std::string bytes = "0123456789";
    const std::string path = "/v1/blobs/" + digest::sha256(bytes);
    EXPECT_EQ(call(Method::kGet, path).status, 404);
    EXPECT_EQ(call(*admin_, Method::kPut, path, bytes).status, 201);
    EXPECT_EQ(call(*admin_, Method::kPut, path, bytes).status, 200);
    const auto whole = call(Method::kGet, path);
    EXPECT_EQ(whole.status, 200);
    EXPECT_EQ(whole.body, bytes);
    EXPECT_EQ(whole.headers.at("etag"), "\"" + digest::sha256(bytes) + "\"");
    const auto part = call(Method::kGet, path, nullptr, {{"Range", "bytes=2-4"}});
    EXPECT_EQ(part.status, 206);
    EXPECT_EQ(part.body, "234");
    EXPECT_EQ(part.headers.at("content-range"), "bytes 2-4/10");
    EXPECT_EQ(call(Method::kGet, path, nullptr, {{"Range", "bytes=10-"}}).status, 416);
    const auto head = call(Method::kHead, path);
    EXPECT_EQ(head.status, 200);
    EXPECT_EQ(head.headers.at("content-length"), "10");
}

TEST_F(StoreTest, BehindTheGatewayTheBytesAreLeftToIt) {
    const std::string sha256 = put("bytes");
    const auto response = call(Method::kGet, "/v1/blobs/" + sha256, nullptr, {{"X-Atoll-Gateway", "1"}});
    EXPECT_EQ(response.headers.at("x-accel-redirect"),
              "/internal/blobs/" + sha256.substr(0, 2) + "/" + sha256.substr(2, 2) + "/" + sha256);
    EXPECT_EQ(response.body, "");
}

TEST_F(StoreTest, BytesThatDoNotMatchAreRefusedAndNotKept) {
    const std::string sha256 = digest::sha256("right");
    const auto response = call(*admin_, Method::kPut, "/v1/blobs/" + sha256, "wrong");
    EXPECT_EQ(response.status, 422);
    EXPECT_EQ(problem_field(response), "sha256");
    EXPECT_EQ(call(Method::kGet, "/v1/blobs/" + sha256).status, 404);
    EXPECT_EQ(problem_field(call(*admin_, Method::kPut, "/v1/blobs/xyz", "wrong")), "sha256");
    EXPECT_EQ(problem_field(call(*admin_, Method::kPut, "/v1/blobs/" + digest::sha256(""), "")), "body");
    for (const auto& entry : std::filesystem::recursive_directory_iterator(temporary_.path()))
        EXPECT_FALSE(entry.is_regular_file()) << entry.path();
}

TEST_F(StoreTest, MissingBlobsAreListed) {
    const std::string there = put("there");
    const std::string missing(64, '0');
    const auto response = call(Method::kPost, "/v1/blobs/missing", {{"digests", {there, missing}}});
    EXPECT_EQ(Json::parse(response.body), (Json{{"missing", {missing}}}));
    EXPECT_EQ(problem_field(call(Method::kPost, "/v1/blobs/missing", {{"digests", {"x"}}})), "digests[0]");
    EXPECT_EQ(problem_field(call(Method::kPost, "/v1/blobs/missing", {{"digest", {there}}})), "digests");
}

TEST_F(StoreTest, ATagThatDoesNotMoveIsTakenByOneOfManyAtOnce) {
    create_model("llama");
    std::vector<std::string> digests;
    for (const char* data : {"abcd", "efgh", "ijkl", "mnop"})
        digests.push_back(create_version("llama", stored({{"model.safetensors", safetensors_file(data)}})));
    std::vector<int> statuses(digests.size());
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < digests.size(); ++i)
        threads.emplace_back([&, i] {
            http::Client client = store_->server().client(Role::kAdmin);
            const Json target = {{"digest", digests[i]}, {"move", false}};
            statuses[i] = client.call(Method::kPut, "/v1/models/llama/tags/v1", target.dump())->status;
        });
    threads.clear();
    EXPECT_EQ(std::count(statuses.begin(), statuses.end(), 200), 1);
    EXPECT_EQ(std::count(statuses.begin(), statuses.end(), 409), 3);
    const auto winner = std::find(statuses.begin(), statuses.end(), 200) - statuses.begin();
    const Json tags = Json::parse(call(Method::kGet, "/v1/models/llama").body).at("tags");
    EXPECT_EQ(tags, (Json{{"v1", digests[static_cast<std::size_t>(winner)]}}));
    const std::size_t loser = winner == 0 ? 1 : 0;
    const Json stays = {{"digest", digests[loser]}, {"move", false}};
    EXPECT_EQ(problem_field(call(Method::kPut, "/v1/models/llama/tags/v1", stays)), "tag");
    EXPECT_EQ(call(Method::kPut, "/v1/models/llama/tags/v1", {{"digest", digests[loser]}}).status, 200) << "it moves";
}

TEST_F(StoreTest, AVersionIsFoundByDigestByTagAndFromAnyModel) {
    create_model("llama");
    const Json manifest = stored({{"config.json", "{}"}, {"model.safetensors", safetensors_file("abcd")}});
    const std::string digest = create_version("llama", manifest);
    EXPECT_EQ(digest, store_client::manifest_digest(store_client::parse_manifest(manifest).value()));
    EXPECT_EQ(call(Method::kPut, "/v1/models/llama/tags/best", {{"digest", digest}}).status, 200);
    for (const std::string& path : {"/v1/models/llama/versions/" + digest,
                                    std::string("/v1/models/llama/versions/best"), "/v1/versions/" + digest}) {
        const Json version = Json::parse(call(Method::kGet, path).body);
        EXPECT_EQ(version.at("digest"), digest) << path;
        EXPECT_EQ(version.at("manifest"), manifest) << path;
        EXPECT_EQ(version.at("tags"), Json{"best"}) << path;
        EXPECT_EQ(version.at("model"), "llama") << path;
    }
    EXPECT_EQ(Json::parse(call(Method::kGet, "/v1/models/llama").body).at("tags"), (Json{{"best", digest}}));
    EXPECT_EQ(call(Method::kGet, "/v1/models/llama/versions/worst").status, 404);
    EXPECT_EQ(call(Method::kPut, "/v1/models/llama/tags/best", {{"digest", std::string(64, '0')}}).status, 404);
    const Json stays = {{"digest", digest}, {"move", false}};
    EXPECT_EQ(call(Method::kPut, "/v1/models/llama/tags/best", stays).status, 200) << "it is there";
    EXPECT_EQ(call(Method::kPut, "/v1/models/llama/tags/first", stays).status, 200) << "it is new";
    EXPECT_EQ(problem_field(call(Method::kPut, "/v1/models/llama/tags/Best", {{"digest", digest}})), "tag");
    for (const std::string& path : {std::string("/v1/models/llama"), "/v1/models/llama/versions/" + digest})
        EXPECT_NE(call(Method::kDelete, path).body.find("`atoll model untag llama@best`"), std::string::npos) << path;
}

TEST_F(StoreTest, AVersionIsFoundByTheBeginningOfItsDigestAsNewestAndByItsRound) {
    create_model("llama");
    const auto post = [&](const char* config, const Json& more) {
        Json version = {{"manifest", stored({{"config.json", config}})}};
        version.update(more);
        return Json::parse(call(Method::kPost, "/v1/models/llama/versions", version).body)
            .at("digest")
            .get<std::string>();
    };
    const auto ask = [&](const std::string& reference) {
        return call(Method::kGet, "/v1/models/llama/versions/" + reference);
    };
    const auto found = [&](const std::string& reference) {
        return Json::parse(ask(reference).body).value("digest", reference + " is not found");
    };
    EXPECT_EQ(ask("newest").status, 404);
    const std::string base = post("{}", Json::object());
    const auto of_round = [&](const char* kind, int round, const char* job) {
        return Json{{"kind", kind}, {"job", job}, {"round", round}, {"parents", {base}}};
    };
    const std::string third = post(R"({"a":3})", of_round("global", 3, "one"));
    const std::string update = post(R"({"a":4})", of_round("update", 4, "one"));
    EXPECT_EQ(found("newest"), third) << "no update of one facility";
    EXPECT_EQ(found("round3"), third);
    EXPECT_EQ(ask("round4").status, 404);
    for (const std::string& digest : {base, third, update}) {
        EXPECT_EQ(found(digest.substr(0, 8)), digest);
        const auto refused = ask(digest.substr(0, 7));
        EXPECT_EQ(refused.status, 422);
        EXPECT_EQ(problem_field(refused), "version");
        EXPECT_NE(refused.body.find("8 characters or more: this has 7"), std::string::npos) << refused.body;
    }
    EXPECT_EQ(call(Method::kPut, "/v1/models/llama/tags/" + third.substr(0, 9), {{"digest", base}}).status, 422);
    EXPECT_EQ(found(third.substr(0, 9)), third) << "no tag stands in its way";
    post(R"({"a":5})", of_round("global", 3, "two"));
    const auto several = ask("round3");
    EXPECT_EQ(several.status, 422);
    EXPECT_NE(several.body.find(third.substr(0, 16)), std::string::npos) << several.body;
}

TEST_F(StoreTest, TheSameManifestAgainIsTheSameVersion) {
    create_model("llama");
    const Json manifest = stored({{"config.json", "{}"}});
    const std::string digest = create_version("llama", manifest);
    const auto again =
        call(Method::kPost, "/v1/models/llama/versions", {{"manifest", manifest}, {"metrics", {{"loss", 1}}}});
    EXPECT_EQ(again.status, 200);
    EXPECT_EQ(Json::parse(again.body).at("digest"), digest);
    EXPECT_EQ(Json::parse(again.body).at("metrics"), Json::object()) << "a version never changes";
    create_model("other");
    EXPECT_EQ(create_version("other", manifest), digest);
    EXPECT_EQ(Json::parse(call(Method::kGet, "/v1/versions/" + digest).body).at("model"), "llama");
}

TEST_F(StoreTest, TheMeanOfOneUpdateMakesThatUpdateTheGlobalModel) {
    create_model("llama");
    const std::string base = create_version("llama", stored({{"config.json", "{}"}}));
    const Json update = {{"manifest", stored({{"config.json", "{\"round\":1}"}})}, {"parents", {base}}};
    const auto post = [&](Json version, const char* kind) {
        version["kind"] = kind;
        return call(Method::kPost, "/v1/models/llama/versions", version);
    };
    const std::string digest = Json::parse(post(update, "update").body).at("digest");
    Json global = update;
    global["parents"] = {base, digest};
    global["contributions"] = {{{"facility", "a"}, {"version", digest}, {"weight", 1}, {"samples", 3}, {"tokens", 9}}};
    ASSERT_EQ(post(global, "global").status, 201);
    const Json version = Json::parse(call(Method::kGet, "/v1/versions/" + digest).body);
    EXPECT_EQ(version.at("kind"), "global");
    EXPECT_EQ(version.at("contributions"), global["contributions"]);
    EXPECT_EQ(version.at("parents"), Json{base}) << "it is not its own parent";
    EXPECT_EQ(post(update, "update").status, 200);
    EXPECT_EQ(Json::parse(call(Method::kGet, "/v1/versions/" + digest).body).at("kind"), "global") << "it stays that";
    EXPECT_EQ(post({{"manifest", stored({{"config.json", "{}"}})}}, "global").status, 200);
    EXPECT_EQ(Json::parse(call(Method::kGet, "/v1/versions/" + base).body).at("kind"), "base");
}

TEST_F(StoreTest, WhatARoundHasMadeIsListedAsItsOwnThoughAnotherMadeTheSameBytes) {
    create_model("out");
    const std::string base = create_version("out", stored({{"f", "base"}}));
    const Json manifest = stored({{"f", "update"}});
    const auto post = [&](const std::string& kind, const std::string& job, int round) {
        const Json version = {{"manifest", manifest}, {"kind", kind},
                              {"parents", {base}},    {"job", job},
                              {"round", round},       {"contributions", {{{"facility", job}, {"version", base}}}}};
        return call(Method::kPost, "/v1/models/out/versions", version).status;
    };
    EXPECT_EQ(post("update", "first", 1), 201);
    for (const char* table : {"versions", "round_versions"})
        ASSERT_TRUE(store_->pool()
                        .acquire()
                        .value()
                        ->query(std::string("UPDATE ") + table + " SET created_by = 'leonardo' WHERE kind = 'update'")
                        .ok());
    EXPECT_EQ(post("global", "first", 1), 201) << "of one update";
    EXPECT_EQ(post("update", "again", 2), 200);
    EXPECT_EQ(post("update", "again", 2), 200);
    const auto made = [&](const std::string& query) {
        return Json::parse(call(Method::kGet, "/v1/models/out/versions?" + query).body).at("items");
    };
    EXPECT_EQ(made("job=first&round=1").size(), 2U);
    EXPECT_EQ(made("job=first&round=1&kind=global").size(), 1U);
    EXPECT_EQ(made("job=first&round=1&kind=update")[0].at("created_by"), "leonardo");
    for (const std::string query : {"job=first&round=1&kind=global", "kind=global"})
        EXPECT_NE(made(query)[0].at("created_by"), "leonardo") << "who made it the global model";
    EXPECT_EQ(made("job=again&round=2&kind=global").size(), 0U);
    EXPECT_EQ(made("job=again&round=1").size(), 0U);
    const Json again = made("job=again&round=2");
    ASSERT_EQ(again.size(), 1U);
    EXPECT_EQ(again[0].at("digest"), made("job=first&round=1")[0].at("digest"));
    EXPECT_EQ(again[0].at("kind"), "update");
    EXPECT_EQ(again[0].at("round"), 2);
    EXPECT_EQ(again[0].at("contributions")[0].at("facility"), "again");
    EXPECT_EQ(made("kind=update").size(), 0U) << "it is a global model by now";
    for (const auto& [query, field] : std::map<std::string, std::string>{
             {"job=first", "round"}, {"round=1", "job"}, {"job=first&round=x", "round"}, {"kind=x", "kind"}})
        EXPECT_EQ(problem_field(call(Method::kGet, "/v1/models/out/versions?" + query)), field) << query;
}

TEST_F(StoreTest, LineageIsKeptAndParentsMustExist) {
    create_model("llama");
    const std::string base = create_version("llama", stored({{"config.json", "{}"}}));
    const Json manifest = stored({{"config.json", "{\"round\":1}"}});
    const Json contributions = {{{"facility", "a"}, {"version", base}, {"weight", 0.5}, {"samples", 3}, {"tokens", 9}}};
    const auto response = call(Method::kPost, "/v1/models/llama/versions",
                               {{"manifest", manifest},
                                {"kind", "global"},
                                {"parents", {base}},
                                {"job", "job1"},
                                {"round", 1},
                                {"contributions", contributions}});
    ASSERT_EQ(response.status, 201) << response.body;
    const Json version = Json::parse(response.body);
    EXPECT_EQ(version.at("parents"), Json{base});
    EXPECT_EQ(version.at("contributions"), contributions);
    EXPECT_EQ(version.at("round"), 1);
    const auto orphan = call(Method::kPost, "/v1/models/llama/versions",
                             {{"manifest", stored({{"x", "y"}})}, {"parents", {base, std::string(64, '0')}}});
    EXPECT_EQ(orphan.status, 422);
    EXPECT_EQ(problem_field(orphan), "parents[1]");
}

TEST_F(StoreTest, WrongVersionsAreRefusedByNameAndLeaveNothing) {
    create_model("llama");
    const auto field = [&](const Json& manifest) {
        const auto response = call(Method::kPost, "/v1/models/llama/versions", {{"manifest", manifest}});
        EXPECT_EQ(response.status, 422) << response.body;
        return problem_field(response);
    };
    const auto one_file = [](const std::string& path, const std::string& sha256, std::size_t size) {
        return Json{{"schema", 1},
                    {"files", {{{"path", path}, {"size", size}, {"chunks", {{{"sha256", sha256}, {"size", size}}}}}}}};
    };
    EXPECT_EQ(field(one_file("a", std::string(64, '0'), 3)), "manifest.files[0].chunks[0].sha256");
    EXPECT_EQ(field(one_file("a", put("four"), 3)), "manifest.files[0].chunks[0].size");
    EXPECT_EQ(field(one_file("../a", put("four"), 4)), "manifest.files[0].path");
    const std::string good = safetensors_file("abcd");
    EXPECT_EQ(field(stored({{"config.json", "{}"}, {"model.safetensors", good.substr(0, 5)}})), "model.safetensors");
    EXPECT_EQ(field(stored({{"model.safetensors", good.substr(0, good.size() - 1)}})), "model.safetensors")
        << "truncated";
    EXPECT_EQ(field(stored({{"model.safetensors", good + "e"}})), "model.safetensors") << "trailing bytes";
    std::string lying = good;
    lying[3] = '\x7f';  // a header of 2 GB
    EXPECT_EQ(field(stored({{"model.safetensors", lying}})), "model.safetensors");
    EXPECT_EQ(field(stored({{"model.safetensors.index.json", R"({"weight_map":{"w":"gone.safetensors"}})"}})),
              "model.safetensors.index.json");
    EXPECT_EQ(version_count(), 0);
    EXPECT_EQ(call(Method::kPost, "/v1/models/unknown/versions", {{"manifest", stored({{"a", "b"}})}}).status, 404);
    EXPECT_EQ(version_count(), 0);
    EXPECT_EQ(call(*admin_, Method::kPost, "/v1/models/llama/versions", "{\"manifest\":").status, 400);
}

TEST_F(StoreTest, AnUpdateWithOtherTensorsThanItsParentIsRefusedByTensor) {
    create_model("llama");
    const auto file = [](const std::string& name, std::vector<std::int64_t> shape, safetensors::DType dtype) {
        std::vector<safetensors::TensorInfo> tensors = {{name, dtype, std::move(shape), 0, 0}};
        std::string bytes = safetensors::make_header(tensors);
        return bytes + std::string(tensors[0].end, '\0');
    };
    const auto f32 = safetensors::DType::kF32;
    const std::string parent = create_version("llama", stored({{"model.safetensors", file("w", {2, 3}, f32)}}));
    const auto push = [&](const std::string& bytes) {
        return call(Method::kPost, "/v1/models/llama/versions",
                    {{"manifest", stored({{"model.safetensors", bytes}})}, {"kind", "update"}, {"parents", {parent}}});
    };
    for (const auto& [bytes, why] :
         std::vector<std::pair<std::string, std::string>>{{file("w", {3, 2}, f32), "[3,2] but [2,3]"},
                                                          {file("v", {2, 3}, f32), "missing"},
                                                          {file("w", {2, 3, 1}, f32), "[2,3,1]"}}) {
        const auto response = push(bytes);
        EXPECT_EQ(response.status, 422) << response.body;
        EXPECT_EQ(problem_field(response), "w");
        EXPECT_NE(response.body.find(why), std::string::npos) << response.body;
    }
    EXPECT_EQ(version_count(), 2) << "the parent and its manifest";
    EXPECT_EQ(push(file("w", {2, 3}, safetensors::DType::kBF16)).status, 201) << "another type is the same tensor";
}

TEST_F(StoreTest, AHeaderThatSpansChunksIsRead) {
    create_model("llama");
    const std::string file = safetensors_file("abcd");
    Json chunks = Json::array();
    for (std::size_t at = 0; at < file.size(); at += 7)
        chunks.push_back({{"sha256", put(file.substr(at, 7))}, {"size", file.substr(at, 7).size()}});
    create_version(
        "llama", {{"schema", 1}, {"files", {{{"path", "m.safetensors"}, {"size", file.size()}, {"chunks", chunks}}}}});
}

TEST_F(StoreTest, AFacilitysFirstUpdateMakesItsModel) {
    create_model("base");
    const std::string base = create_version("base", stored({{"model.safetensors", safetensors_file("public")}}));
    http::Client site = facility({base}, "out");
    const auto post = [&](http::Client& client, const Json& update) {
        return call(client, Method::kPost, "/v1/models/out/versions", update.dump());
    };
    Json update = {{"manifest", stored(site, {{"model.safetensors", safetensors_file("update")}})},
                   {"kind", "update"},
                   {"parents", {base}}};
    http::Client writer = store_->server().client(Role::kOperator);
    EXPECT_EQ(post(writer, update).status, 404) << "of a name that may be mistyped";
    const std::string unknown(64, '0');
    http::Client lost = facility({unknown}, "out");
    Json orphan = update;
    orphan["parents"] = {unknown};
    EXPECT_EQ(post(lost, orphan).status, 422);
    EXPECT_EQ(call(Method::kGet, "/v1/models/out").status, 404);
    EXPECT_EQ(post(site, update).status, 201);
    EXPECT_EQ(Json::parse(call(Method::kGet, "/v1/models/out").body).at("version_count"), 1);
}

TEST_F(StoreTest, AnAttemptHandsInOneVersionHoweverOftenItIsSent) {
    create_model("out");
    const std::string base = create_version("out", stored({{"model.safetensors", safetensors_file("public")}}));
    http::Client site = facility({base}, "out");
    const auto post = [&](const Json& update, const std::string& key = new_id()) {
        return call(site, Method::kPost, "/v1/models/out/versions", update.dump(), {{"Idempotency-Key", key}});
    };
    const Json update = {{"manifest", stored(site, {{"model.safetensors", safetensors_file("update")}})},
                         {"kind", "update"}};
    const std::string key = new_id();
    const auto first = post(update, key);
    ASSERT_EQ(first.status, 201) << first.body;
    EXPECT_EQ(post(update, key).body, first.body) << "the answer was lost";
    EXPECT_EQ(post(update).body, first.body) << "the push was repeated";
    const auto count = version_count();
    Json other = update;
    other["manifest"] = stored(site, {{"model.safetensors", safetensors_file("others")}});
    const auto refused = post(other);
    EXPECT_EQ(refused.status, 409) << refused.body;
    EXPECT_EQ(problem_field(refused), "manifest");
    EXPECT_NE(refused.body.find("task1"), std::string::npos) << refused.body;
    EXPECT_EQ(version_count(), count);
    EXPECT_EQ(row_count("idempotency WHERE subject = 'leonardo'"), 0) << "repeats leave nothing";
}

TEST_F(StoreTest, WithoutTheRightTokenThereIsNothing) {
    http::Client nobody = store_->server().client_without_token();
    EXPECT_EQ(call(nobody, Method::kGet, "/v1/models").status, 401);
    http::Client viewer = store_->server().client(Role::kViewer);
    EXPECT_EQ(call(viewer, Method::kGet, "/v1/models").status, 200);
    EXPECT_EQ(call(viewer, Method::kPost, "/v1/models", R"({"name":"x"})").status, 403);
    EXPECT_EQ(call(viewer, Method::kPut, "/v1/blobs/" + digest::sha256("x"), "x").status, 403);
    EXPECT_EQ(call(Method::kGet, "/v1/models/x").status, 404) << "nothing was made";
    EXPECT_EQ(call(Method::kGet, "/v1/blobs/" + digest::sha256("x")).status, 404) << "nothing was kept";
    EXPECT_EQ(version_count(), 0);
}

TEST_F(StoreTest, ModelsAreCreatedOnceAndListedInPages) {
    for (const char* name : {"b", "c", "a"}) create_model(name);
    EXPECT_EQ(call(Method::kPost, "/v1/models", {{"name", "a"}}).status, 409);
    const Json first = Json::parse(call(Method::kGet, "/v1/models?limit=2").body);
    EXPECT_EQ(first.at("items").size(), 2U);
    EXPECT_EQ(first.at("items")[0].at("name"), "a");
    EXPECT_EQ(first.at("next"), "b");
    const Json second = Json::parse(call(Method::kGet, "/v1/models?limit=2&after=b").body);
    EXPECT_EQ(second.at("items").size(), 1U);
    EXPECT_TRUE(second.at("next").is_null());
    EXPECT_EQ(problem_field(call(Method::kPost, "/v1/models", {{"name", "x"}, {"colour", "red"}})), "colour");
}

TEST_F(StoreTest, VersionsAreListedInPagesWithoutTheirManifests) {
    create_model("llama");
    std::vector<std::string> digests;
    for (const char* text : {"1", "2", "3"}) digests.push_back(create_version("llama", stored({{"f", text}})));
    std::vector<std::string> seen;
    std::string after;
    for (int page = 0; page < 3; ++page) {
        const Json list = Json::parse(call(Method::kGet, "/v1/models/llama/versions?limit=1&after=" + after).body);
        ASSERT_EQ(list.at("items").size(), 1U);
        EXPECT_FALSE(list.at("items")[0].contains("manifest"));
        seen.push_back(list.at("items")[0].at("digest"));
        after = list.at("next").is_null() ? "" : list.at("next").get<std::string>();
    }
    EXPECT_EQ(seen, digests);
    EXPECT_EQ(after, "");
    EXPECT_EQ(problem_field(call(Method::kGet, "/v1/models/llama/versions?after=x")), "after");
    const auto of_kind = [&](const std::string& kind) {
        return Json::parse(call(Method::kGet, "/v1/models/llama/versions?limit=2&kind=" + kind).body);
    };
    EXPECT_EQ(of_kind("base").at("items").size(), 2U);
    EXPECT_EQ(of_kind("update").at("items").size(), 0U);
    EXPECT_EQ(problem_field(call(Method::kGet, "/v1/models/llama/versions?kind=wrong")), "kind");
}

TEST_F(StoreTest, AnIdempotencyKeyAnswersARepeatAndRefusesAnotherRequest) {
    const std::vector<std::pair<std::string, std::string>> key = {{"Idempotency-Key", new_id()}};
    const auto first = call(Method::kPost, "/v1/models", {{"name", "once"}}, key);
    const auto second = call(Method::kPost, "/v1/models", {{"name", "once"}}, key);
    EXPECT_EQ(first.status, 201);
    EXPECT_EQ(second.status, 201);
    EXPECT_EQ(first.body, second.body);
    EXPECT_EQ(call(Method::kPost, "/v1/models", {{"name", "twice"}}, key).status, 409);
}

TEST_F(StoreTest, EachNewVersionIsOneEvent) {
    create_model("llama");
    const Json manifest = stored({{"config.json", "{}"}});
    const std::string digest = create_version("llama", manifest);
    call(Method::kPost, "/v1/models/llama/versions", {{"manifest", manifest}});
    const std::string last = create_version("llama", stored({{"config.json", "{} "}}));
    ASSERT_TRUE(kafka::ensure_topics(stack().kafka(), {topic_prefix_ + "atoll.models"}, 1).ok());
    auto consumer =
        kafka::Consumer::create(stack().kafka(), stack().unique("reader"), {topic_prefix_ + "atoll.models"}).value();
    std::vector<Json> events;
    ASSERT_TRUE(eventually([&] {
        for (const auto& message : consumer.poll(std::chrono::milliseconds(200)).value())
            events.push_back(Json::parse(message.value));
        return !events.empty() && events.back().at("data").at("digest") == last;
    }));
    ASSERT_EQ(events.size(), 2U);
    EXPECT_EQ(events[0].at("type"), "atoll.version.created.v1");
    EXPECT_EQ(events[0].at("source"), "/store");
    EXPECT_EQ(events[0].at("data").at("digest"), digest);
    EXPECT_EQ(events[0].at("data").at("model"), "llama");
}

TEST_F(StoreTest, ADirectoryGoesInAndComesOutThroughTheRealService) {
    create_model("llama");
    const fs::path model = temporary_.path() / "model";
    fs::create_directories(model);
    ASSERT_TRUE(write_file_atomic(model / "model.safetensors", safetensors_file(std::string(20U << 20, 'w'))).ok());
    ASSERT_TRUE(write_file_atomic(model / "config.json", "{}").ok());
    store_client::TransferOptions options;
    options.store.base_url = store_->server().url();
    options.store.token = store_->server().token(Role::kOperator);
    const auto uploaded = store_client::upload_directory(model, options);
    ASSERT_TRUE(uploaded.ok()) << uploaded.error().message;
    const auto version = store_client::create_version(*admin_, "llama", uploaded->manifest, {});
    ASSERT_TRUE(version.ok()) << version.error().message;
    store_->restart();
    options.store.base_url = store_->server().url();
    options.store.token = store_->server().token(Role::kOperator);
    const auto status = store_client::download_version(version->at("digest"), temporary_.path() / "copy", options);
    ASSERT_TRUE(status.ok()) << status.error().message;
    EXPECT_TRUE(store_client::verify_directory(temporary_.path() / "copy", uploaded->manifest, 1).ok());
}

// A model belongs to whoever made it: others add nothing to it, move no tag and remove nothing.
TEST_F(StoreTest, AModelIsChangedByItsOwnerAndByAdmins) {
    http::Client ada = operator_named("ada"), eve = operator_named("eve");
    http::Client aggregation = operator_named("aggregation");
    EXPECT_EQ(Json::parse(call(ada, Method::kPost, "/v1/models", R"({"name":"hers"})").body).at("owner"), "ada");
    const std::string model = "/v1/models/hers";
    const Json manifest = stored({{"config.json", "{}"}});
    const std::string version = Json{{"manifest", manifest}}.dump();
    EXPECT_EQ(call(eve, Method::kPost, model + "/versions", version).status, 403);
    const auto made = call(ada, Method::kPost, model + "/versions", version);
    ASSERT_EQ(made.status, 201) << made.body;
    const std::string digest = Json::parse(made.body).at("digest");
    const std::string target = Json{{"digest", digest}}.dump();
    EXPECT_EQ(call(eve, Method::kPut, model + "/tags/v1", target).status, 403);
    EXPECT_EQ(call(ada, Method::kPut, model + "/tags/v1", target).status, 200);
    for (const std::string& path : {model + "/tags/v1", model + "/versions/" + digest, model})
        EXPECT_EQ(call(eve, Method::kDelete, path).status, 403) << path;
    EXPECT_EQ(call(eve, Method::kPost, "/v1/prune", R"({"model":"hers"})").status, 403);
    const Json of_round = {{"manifest", stored({{"config.json", "{\"round\":1}"}})},
                           {"kind", "global"},
                           {"parents", {digest}},
                           {"job", "job1"},
                           {"round", 1}};
    EXPECT_EQ(problem_field(call(ada, Method::kPost, model + "/versions", of_round.dump())), "kind");
    EXPECT_EQ(call(aggregation, Method::kPost, model + "/versions", of_round.dump()).status, 201);
    EXPECT_EQ(call(ada, Method::kDelete, model + "/tags/v1").status, 204);
    EXPECT_EQ(call(Method::kDelete, model).status, 204) << "an admin";
}

// Manifests lie in the database, whose disk is everybody's.
TEST_F(StoreTest, AnOperatorsManifestsHaveAQuotaAndNobodyElsesSuffer) {
    const auto make = [&](http::Client& client, const std::string& model, const char* config, int metrics_bytes = 1) {
        const Json body = {{"manifest", stored({{"config.json", config}})},
                           {"new_model", Json::object()},
                           {"metrics", {{"text", std::string(static_cast<std::size_t>(metrics_bytes), 'x')}}}};
        return call(client, Method::kPost, "/v1/models/" + model + "/versions", body.dump());
    };
    http::Client eve = operator_named("eve"), ada = operator_named("ada"), aggregation = operator_named("aggregation");
    ASSERT_EQ(make(eve, "eves", "{}").status, 201);
    const std::string large(64, 'f');
    auto connection = store_->pool().acquire().value();
    ASSERT_TRUE(connection
                    ->query("INSERT INTO manifests (digest, body, size_bytes, file_count)"
                            " VALUES ($1, repeat('x', 256 * 1024 * 1024 - 12000), 1, 1)",
                            {large})
                    .ok());
    ASSERT_TRUE(connection
                    ->query("INSERT INTO versions (model, digest, kind, parents, contributions, metrics, created_by)"
                            " VALUES ('eves', $1, 'base', '[]', '[]', '{}', 'eve')",
                            {large})
                    .ok());
    EXPECT_EQ(make(eve, "eves", "{\"b\":1}", 10'000).status, 413) << "metrics take of it, too";
    EXPECT_EQ(make(eve, "eves", "{\"b\":1}").status, 201);
    const auto refused = make(eve, "eves", "{\"a\":1}");
    EXPECT_EQ(refused.status, 413) << refused.body;
    EXPECT_NE(refused.body.find("operator_manifest_bytes_max"), std::string::npos) << refused.body;
    EXPECT_EQ(make(eve, "eves", "{}").status, 200) << "what is there costs nothing";
    EXPECT_EQ(make(ada, "adas", "{\"a\":1}").status, 201);
    EXPECT_EQ(make(aggregation, "of-rounds", "{\"a\":2}").status, 201);
    ASSERT_EQ(call(eve, Method::kDelete, "/v1/models/eves/versions/" + large).status, 204);
    EXPECT_EQ(make(eve, "eves", "{\"a\":1}").status, 201);
}

TEST_F(StoreTest, AModelIsMadeWithItsFirstVersionOrNotAtAll) {
    http::Client ada = operator_named("ada"), eve = operator_named("eve");
    const std::string absent(64, 'e');
    const Json nowhere = {
        {"schema", 1},
        {"files", {{{"path", "config.json"}, {"size", 2}, {"chunks", {{{"sha256", absent}, {"size", 2}}}}}}}};
    const Json refused = {{"manifest", nowhere}, {"new_model", {{"description", "tiny"}}}};
    EXPECT_GE(call(ada, Method::kPost, "/v1/models/tiny/versions", refused.dump()).status, 400);
    EXPECT_EQ(call(ada, Method::kGet, "/v1/models/tiny", "").status, 404) << "a refused version leaves no model";
    const Json good = {{"manifest", stored({{"config.json", "{}"}})}, {"new_model", {{"description", "tiny"}}}};
    EXPECT_EQ(call(ada, Method::kPost, "/v1/models/tiny/versions", good.dump()).status, 201);
    const Json made = Json::parse(call(ada, Method::kGet, "/v1/models/tiny", "").body);
    EXPECT_EQ(made.at("owner"), "ada");
    EXPECT_EQ(made.at("description"), "tiny");
    EXPECT_EQ(call(eve, Method::kPost, "/v1/models/tiny/versions", good.dump()).status, 403) << "it is there, and hers";
}

TEST_F(StoreTest, AnOperatorPrunesTheirOwnModelsAlone) {
    const auto update = [&](const std::string& owner, const std::string& model, std::int64_t round) {
        call(Method::kPost, "/v1/models", {{"name", model}, {"owner", owner}});
        const Json manifest = stored({{"config.json", Json{{"model", model}, {"round", round}}.dump()}});
        const Json version = {{"manifest", manifest}, {"kind", "update"}, {"job", model}, {"round", round}};
        EXPECT_EQ(call(Method::kPost, "/v1/models/" + model + "/versions", version).status, 201);
    };
    for (const std::int64_t round : {1, 2}) {
        update("ada", "hers", round);
        update("tester", "own", round);
    }
    http::Client tester = store_->server().client(Role::kOperator);
    const auto pruned = call(tester, Method::kPost, "/v1/prune", R"({"keep_updates_rounds":1})");
    ASSERT_EQ(pruned.status, 200) << pruned.body;
    const Json gone = Json::parse(pruned.body).at("versions");
    ASSERT_EQ(gone.size(), 1U) << gone;
    EXPECT_EQ(gone[0].at("model"), "own");
}

TEST_F(StoreTest, TheOpenapiDocumentDescribesExactlyTheRoutes) {
    const auto faults = service::openapi_faults(definition().openapi, store_->server().server(), "store");
    EXPECT_EQ(faults, std::vector<std::string>());
}

TEST_F(StoreTest, EveryReadingRouteAnswersAsTheDocumentSays) {
    create_model("llama");
    const std::string digest = create_version("llama", stored({{"config.json", "{}"}}));
    call(Method::kPut, "/v1/models/llama/tags/final", {{"digest", digest}});
    http::Client site = facility({digest}, "out");
    call(site, Method::kPut, "/v1/blobs/" + digest::sha256("x"), "x");
    for (const char* list : {"/v1/models", "/v1/models/llama/versions"})
        EXPECT_FALSE(Json::parse(call(Method::kGet, list).body).at("items").empty()) << list;
    for (const std::string& one :
         {std::string("/v1/models/llama"), std::string("/v1/models/llama/versions/final"), "/v1/versions/" + digest,
          "/v1/blobs/" + digest::sha256("{}"), std::string("/v1/uploads/task1/1"), std::string("/v1/damaged-blobs")})
        EXPECT_EQ(call(Method::kGet, one).status, 200) << one;
    EXPECT_EQ(answers_.unread(), std::vector<std::string>());
}

}  // namespace
}  // namespace atl::store
