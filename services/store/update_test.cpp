// What a site may hand in.
#include "services/store/testing/store_fixture.h"
#include "shared/delta/delta.h"

namespace atl::store {
namespace {

using safetensors::DType;
using std::string_literals::operator""s;

struct Tensor {
    std::string name;
    DType dtype = DType::kF16;
    std::vector<std::int64_t> shape = {2, 3};
};

std::string file_of(const std::vector<Tensor>& tensors, const std::map<std::string, std::string>& metadata = {}) {
    std::vector<safetensors::TensorInfo> infos;
    for (const Tensor& tensor : tensors) infos.push_back({tensor.name, tensor.dtype, tensor.shape, 0, 0});
    const std::string head = safetensors::make_header(infos, metadata);
    return head + std::string(infos.empty() ? 0 : infos.back().end, '\1');
}

const std::string kPath = "model.safetensors";
const std::string kIndex = "model.safetensors.index.json";

std::string index_of(const std::map<std::string, std::string>& tensors) {
    return Json{{"metadata", Json::object()}, {"weight_map", tensors}}.dump();
}

class UpdateTest : public StoreTest {
  protected:
    void SetUp() override {
        StoreTest::SetUp();
        if (IsSkipped()) return;
        create_model("base");
        base_ = create_version("base", stored({{"tokenizer.json", "words"}, {kPath, file_of({{"a"}, {"b"}})}}));
        site_.emplace(facility({base_}, "out"));
    }
    http::ClientResponse post(const Json& manifest, const Json& more = Json::object()) {
        Json body = {{"manifest", manifest}, {"kind", "update"}};
        body.update(more);
        return call(*site_, Method::kPost, "/v1/models/out/versions", body.dump());
    }
    // Where the refusal says that it is wrong; empty: it was taken.
    std::string fault(const std::map<std::string, std::string>& files) {
        const auto response = post(stored(*site_, files));
        if (response.status == 201) return {};
        EXPECT_EQ(response.status, 422) << response.body;
        return problem_field(response);
    }

    std::string base_;
    std::optional<http::Client> site_;
};

TEST_F(UpdateTest, ItsRoundJobAndBaseAreTheTokens) {
    const Json manifest = stored(*site_, {{kPath, file_of({{"a", DType::kF32}, {"b"}})}});
    EXPECT_EQ(problem_field(post(manifest, {{"round", 999999}})), "round");
    EXPECT_EQ(problem_field(post(manifest, {{"job", "another"}})), "job");
    EXPECT_EQ(problem_field(post(manifest, {{"parents", {std::string(64, '0')}}})), "parents");
    const auto made = post(manifest);
    ASSERT_EQ(made.status, 201) << made.body;
    const Json version = Json::parse(made.body);
    EXPECT_EQ(version.at("round"), 1);
    EXPECT_EQ(version.at("job"), "job1");
    EXPECT_EQ(version.at("parents"), Json{base_});
    const auto upload = call(Method::kGet, "/v1/uploads/task1/1");
    ASSERT_EQ(upload.status, 200) << upload.body;
    EXPECT_EQ(Json::parse(upload.body).at("version"), version.at("digest"));
    EXPECT_EQ(call(Method::kGet, "/v1/uploads/task1/2").status, 404);
    EXPECT_EQ(call(*site_, Method::kGet, "/v1/uploads/task1/1").status, 403);
}

TEST_F(UpdateTest, ASingleUpdateIsReadByTheModelsOwnerAndAdminsAlone) {
    auto owner = operator_named("ada"), other = operator_named("bo"), service = operator_named("aggregation");
    auto viewer = store_->server().client(Role::kViewer);
    ASSERT_EQ(call(owner, Method::kPost, "/v1/models", R"({"name":"out"})").status, 201);
    const std::string weights = file_of({{"a"}, {"b", DType::kF32}});
    const auto made = post(stored(*site_, {{kPath, weights}}));
    ASSERT_EQ(made.status, 201) << made.body;
    const std::string update = Json::parse(made.body).at("digest");
    const auto statuses = [&](http::Client& by, const std::string& version, const std::string& bytes) {
        std::vector<int> seen;
        for (const std::string& path : {"/v1/versions/" + version, "/v1/blobs/" + digest::sha256(bytes)})
            seen.push_back(call(by, Method::kGet, path).status);
        return seen;
    };
    const std::vector<int> all = {200, 200}, none = {403, 403};
    EXPECT_EQ(statuses(owner, update, weights), all);
    EXPECT_EQ(statuses(*admin_, update, weights), all);
    EXPECT_EQ(statuses(service, update, weights), all);
    for (auto* by : {&other, &viewer}) {
        EXPECT_EQ(statuses(*by, update, weights), none);
        for (const std::string& reference : {update, update.substr(0, 12)})
            EXPECT_EQ(call(*by, Method::kGet, "/v1/models/out/versions/" + reference).status, 403) << reference;
        EXPECT_EQ(call(*by, Method::kHead, "/v1/blobs/" + digest::sha256(weights)).status, 403);
        EXPECT_EQ(call(*by, Method::kGet, "/v1/models/out/versions").status, 200) << "that there are some is known";
        EXPECT_EQ(statuses(*by, base_, "words"), all) << "and the base is everybody's";
    }
    // What a site has sent and not handed in yet is nobody's.
    const std::string half = file_of({{"a", DType::kF32}, {"b"}});
    EXPECT_TRUE(call(*site_, Method::kPut, "/v1/blobs/" + digest::sha256(half), half).ok());
    EXPECT_EQ(call(viewer, Method::kGet, "/v1/blobs/" + digest::sha256(half)).status, 403);
    EXPECT_EQ(call(viewer, Method::kGet, "/v1/blobs/" + std::string(64, 'f')).status, 404);
    // The mean of one update is that update.
    ASSERT_EQ(
        call(*admin_, Method::kPost, "/v1/models/out/versions",
             Json{{"manifest", stored(*site_, {{kPath, weights}})}, {"kind", "global"}, {"parents", {base_}}}.dump())
            .status,
        201);
    EXPECT_EQ(statuses(viewer, update, weights), all);
}

TEST_F(UpdateTest, AModelsControlVariatesAreReadByItsOwnerAndAdminsAlone) {
    auto owner = operator_named("ada"), other = operator_named("bo"), service = operator_named("aggregation");
    auto viewer = store_->server().client(Role::kViewer);
    ASSERT_EQ(call(owner, Method::kPost, "/v1/models", R"({"name":"out"})").status, 201);
    const std::string weights = file_of({{"a"}, {"b", DType::kF32}}), variates = file_of({{"a", DType::kF32}});
    const Json manifest = stored(service, {{kPath, weights}, {"control_variate/" + std::string(kPath), variates}});
    const auto made = call(*admin_, Method::kPost, "/v1/models/out/versions",
                           Json{{"manifest", manifest}, {"kind", "global"}, {"parents", {base_}}}.dump());
    ASSERT_EQ(made.status, 201) << made.body;
    const std::string global = Json::parse(made.body).at("digest");
    const auto status = [&](http::Client& by, const std::string& bytes) {
        return call(by, Method::kGet, "/v1/blobs/" + digest::sha256(bytes)).status;
    };
    for (auto* by : {&owner, &*admin_, &service}) EXPECT_EQ(status(*by, variates), 200);
    for (auto* by : {&other, &viewer}) {
        EXPECT_EQ(call(*by, Method::kGet, "/v1/versions/" + global).status, 200);
        EXPECT_EQ(status(*by, weights), 200);
        EXPECT_EQ(status(*by, variates), 403);
    }
    // Nor by a version of one's own that names them.
    ASSERT_EQ(call(other, Method::kPost, "/v1/models", R"({"name":"mine"})").status, 201);
    const auto copied = call(other, Method::kPost, "/v1/models/mine/versions", Json{{"manifest", manifest}}.dump());
    EXPECT_GE(copied.status, 400) << copied.body;
    EXPECT_EQ(status(other, variates), 403);
}

TEST_F(UpdateTest, ARoundsModelGoesOnlyWhereItsUpdatesAre) {
    auto service = operator_named("aggregation");
    const auto made = post(stored(*site_, {{kPath, file_of({{"a"}, {"b", DType::kF32}})}}));
    ASSERT_EQ(made.status, 201) << made.body;
    const Json update = Json::parse(made.body).at("digest");
    create_model("another");
    const Json global = {{"manifest", stored(service, {{kPath, file_of({{"a", DType::kF32}, {"b"}})}})},
                         {"kind", "global"},
                         {"job", "job1"},
                         {"round", 1},
                         {"parents", {base_, update}},
                         {"contributions", {{{"facility", "leonardo"}, {"version", update}}}}};
    const auto to = [&](const std::string& model) {
        return call(service, Method::kPost, "/v1/models/" + model + "/versions", global.dump());
    };
    EXPECT_EQ(problem_field(to("another")), "contributions");
    EXPECT_EQ(to("out").status, 201);
}

TEST_F(UpdateTest, WhoHandedInAVersionIsKnownAsLongAsItIsThere) {
    ASSERT_EQ(post(stored(*site_, {{kPath, file_of({{"a"}, {"b", DType::kF32}})}})).status, 201);
    auto connection = store_->pool().acquire().value();
    ASSERT_TRUE(connection->query("UPDATE uploads SET began_at = now() - interval '90 days'").ok());
    ASSERT_TRUE(connection->query("UPDATE uploaded_blobs SET at = now() - interval '90 days'").ok());
    ASSERT_TRUE(delete_old_uploads(*connection).ok());
    EXPECT_EQ(row_count("uploaded_blobs"), 0);
    EXPECT_EQ(call(Method::kGet, "/v1/uploads/task1/1").status, 200);
}

TEST_F(UpdateTest, AnUploadThatTakesDaysKeepsWhatItHasSentUntilItIsHandedIn) {
    const auto manifest = stored(*site_, {{kPath, file_of({{"a"}, {"b", DType::kF32}})}});
    auto connection = store_->pool().acquire().value();
    const auto pass_days = [&] {
        for (const char* query : {"UPDATE uploads SET began_at = began_at - interval '20 days'",
                                  "UPDATE uploaded_blobs SET at = at - interval '20 days'"})
            ASSERT_TRUE(connection->query(query).ok());
        ASSERT_TRUE(delete_old_uploads(*connection).ok());
    };
    pass_days();
    EXPECT_EQ(row_count("uploads"), 1);
    EXPECT_EQ(post(manifest).status, 201);
    pass_days();
    EXPECT_EQ(row_count("uploaded_blobs"), 0);
}

TEST_F(UpdateTest, ItsFilesAreItsBases) {
    const std::string weights = file_of({{"a"}, {"b", DType::kF32}});
    EXPECT_EQ(fault({{kPath, weights}, {"zz.bin", "junk"}}), "manifest.files[1].path");
    EXPECT_EQ(fault({{kPath, weights}, {"tokenizer.json", "other words"}}), "manifest.files[1].path");
    EXPECT_EQ(fault({{"tokenizer.json", "words"}}), "a") << "no weights";
    EXPECT_EQ(fault({{"weights.safetensors", weights}}), "manifest.files[0].path");
    EXPECT_EQ(fault({{kPath, "short"}}), "manifest.files[0].path");
    EXPECT_EQ(version_count(), 2);
    EXPECT_EQ(fault({{kPath, weights}, {"tokenizer.json", "words"}}), "");
}

TEST_F(UpdateTest, TheTrainerCanReadItsConfiguration) {
    const auto config = [](const std::string& more) { return R"({"layers":2,"eps":1e-05,"ids":[1,{"a":2}])" + more; };
    const std::string base = config(R"(,"torch_dtype":"float16"})");
    const std::string weights = file_of({{"a"}, {"b"}});
    const std::string version = create_version("base", stored({{"config.json", base}, {kPath, weights}}));
    site_.emplace(facility({version}, "out"));
    EXPECT_EQ(fault({{kPath, weights}}), "manifest.files") << "none";
    const std::string deep = std::string(100, '[') + std::string(100, ']');
    for (const std::string& wrong :
         {R"({"layers":3,"eps":1e-05,"ids":[1,{"a":2}],"torch_dtype":"float16"})"s,
          R"({"layers":2.0,"eps":1e-05,"ids":[1,{"a":2}],"torch_dtype":"float16"})"s,
          R"({"layers":0.2e1,"eps":1e-05,"ids":[1,{"a":2}],"torch_dtype":"float16"})"s,
          R"({"layers":2,"eps":1e-05,"ids":[1,{"a":2.0}],"torch_dtype":"float16"})"s,
          R"({"layers":2,"eps":1e-05,"ids":[1.0,{"a":2}],"torch_dtype":"float16"})"s,
          R"({"layers":2,"eps":1e-05,"ids":[1,{"b":2}],"torch_dtype":"float16"})"s, config(R"(,"more":null})"),
          config(R"(,"layers":2})"), config(R"(,"torch_dtype":5})"), config(R"(,"torch_dtype":{}})"),
          config(R"(,"torch_dtype":"int8"})"), config(R"(,"dtype":"float64"})"), config(R"(,"dtype":null})"),
          config(",\"dtype\":" + deep + "}"), "[]"s})
        EXPECT_EQ(fault({{"config.json", wrong}, {kPath, weights}}), "manifest.files[0].path") << wrong;
    int attempt = 1;
    for (const std::string& right : {base, Json::parse(base).dump(2), config("}"),
                                     config(R"(,"torch_dtype":"float32"})"), config(R"(,"dtype":"bfloat16"})")}) {
        site_.emplace(facility(store_->server(), {version}, "out", std::to_string(++attempt)));
        EXPECT_EQ(fault({{"config.json", right}, {kPath, weights}}), "") << right;
    }
}

TEST_F(UpdateTest, ItsTensorsAreItsBases) {
    EXPECT_EQ(fault({{kPath, file_of({{"a"}})}}), "b");
    for (const auto& wrong : std::vector<std::vector<Tensor>>{{{"a"}, {"b"}, {"c"}},
                                                              {{"a", DType::kF16, {3, 2}}, {"b"}},
                                                              {{"a", DType::kF64}, {"b"}},
                                                              {{"a", DType::kI32}, {"b"}}})
        EXPECT_EQ(fault({{kPath, file_of(wrong)}}), "manifest.files[0].path");
    EXPECT_EQ(fault({{kPath, file_of({{"a"}, {"b"}}, {{"note", std::string(65U << 10, 'x')}})}}),
              "manifest.files[0].path");
    EXPECT_EQ(fault({{kPath, file_of({{"a"}, {"b"}}, {{"note", std::string(4U << 20, 'x')}})}}),
              "manifest.files[0].path");
    EXPECT_EQ(fault({{kPath, file_of({{"a"}, {"b"}}, {{"format", "pt"}})}}), "");
}

TEST_F(UpdateTest, ItMayBeAChangeOfItsBase) {
    const std::string path = delta::kFile;
    const auto change = [&](const std::vector<Tensor>& tensors, std::map<std::string, std::string> metadata = {}) {
        metadata.insert({{delta::kFormatKey, "int4"}, {delta::kBaseKey, base_}});
        return file_of(tensors, metadata);
    };
    const Tensor a{"a", DType::kU8, {1, 68}}, b{"b", DType::kU8, {1, 68}};
    for (const std::string& wrong :
         {change({a, {"b", DType::kU8, {2, 68}}}), change({a, {"b", DType::kU8, {1, 132}}}), change({a, {"b"}}),
          change({a, b, {"c", DType::kU8, {1, 68}}}), change({a, b}, {{delta::kFormatKey, "int2"}}),
          change({a, b}, {{delta::kBaseKey, std::string(64, '0')}}), file_of({a, b}), std::string("short"),
          change({a, b}, {{"note", std::string(200'000, 'x')}})})
        EXPECT_EQ(fault({{path, wrong}}), "manifest.files[0].path");
    EXPECT_EQ(fault({{path, change({a})}}), "b");
    EXPECT_EQ(fault({{path, change({a, b})}, {kPath, file_of({{"a"}, {"b"}})}}), "manifest.files[0].path");
    EXPECT_EQ(fault({{path, change({a, b})}}), "");
}

TEST_F(UpdateTest, TokenCountsMayBeBesideItIfTheyFitItsEmbedding) {
    const std::string counts = "token_counts.safetensors";
    const auto counted = [](std::int64_t tokens, DType dtype = DType::kF32, const std::string& name = "token_counts") {
        return file_of({{name, dtype, {tokens}}});
    };
    EXPECT_EQ(fault({{kPath, file_of({{"a"}, {"b"}})}, {counts, counted(2)}}), "manifest.files[1].path")
        << "a model that has no rows for tokens";
    const std::vector<Tensor> tensors = {{"a"}, {"b"}, {"model.embed_tokens.weight", DType::kF16, {7, 3}}};
    // A base that a training has left with its own counts beside it is as good.
    const std::string base = create_version("base", stored({{kPath, file_of(tensors)}, {counts, counted(7)}}));
    site_.emplace(facility({base}, "out"));
    for (const std::string& wrong :
         {counted(6), counted(7, DType::kF16), counted(7, DType::kF32, "counts"), std::string("short"),
          file_of({{"token_counts", DType::kF32, {7}}, {"more", DType::kF32, {7}}}),
          file_of({{"token_counts", DType::kF32, {7}}}, {{"note", std::string(20'000, 'x')}})})
        EXPECT_EQ(fault({{kPath, file_of(tensors)}, {counts, wrong}}), "manifest.files[1].path");
    EXPECT_EQ(fault({{kPath, file_of(tensors)}, {counts, counted(7)}}), "");
}

TEST_F(UpdateTest, AControlVariateMayBeBesideItIfItFitsItsBase) {
    const std::string path = "control_variate.safetensors", model = file_of({{"a"}, {"b"}});
    const Tensor a{"a", DType::kU8, {1, 132}}, b{"b", DType::kU8, {1, 132}};
    const auto variate = [](const std::vector<Tensor>& tensors, const std::string& base,
                            const std::string& format = "int8") {
        return file_of(tensors, {{delta::kFormatKey, format}, {delta::kBaseKey, base}});
    };
    for (const std::string& wrong :
         {std::string("short"), file_of({a, b}), variate({a, b}, "another"), variate({a, b}, base_, "int4"),
          variate({a, {"b", DType::kU8, {2, 132}}}, base_), variate({a, {"b", DType::kI8, {1, 132}}}, base_),
          variate({a, b, {"c", DType::kU8, {1, 132}}}, base_),
          file_of({a, b},
                  {{delta::kFormatKey, "int8"}, {delta::kBaseKey, base_}, {"note", std::string(100'000, 'x')}})})
        EXPECT_EQ(fault({{path, wrong}, {kPath, model}}), "manifest.files[0].path");
    EXPECT_EQ(fault({{path, variate({a, b}, base_)}, {kPath, model}}), "");
    // Not in the place of the mean that its base has.
    EXPECT_EQ(fault({{"control_variate/" + kPath, model}, {kPath, model}}), "manifest.files[0].path");
}

TEST_F(UpdateTest, ABaseWithTheMeanOfControlVariatesTakesTheUpdatesThatItsWeightsTake) {
    const std::string mean = file_of({{"a", DType::kBF16}, {"b", DType::kBF16}});
    const std::string base = create_version(
        "base", stored({{"control_variate/" + kPath, mean}, {kPath, file_of({{"a", DType::kF32}, {"b"}})}}));
    site_.emplace(facility({base}, "out"));
    EXPECT_EQ(fault({{kPath, file_of({{"a"}, {"b", DType::kF32}})}}), "");
    EXPECT_EQ(fault({{kPath, file_of({{"a"}})}}), "b");
    // Also where the mean has a tensor that no weight has.
    const std::string odd = create_version(
        "base", stored({{"control_variate/" + kPath, file_of({{"more"}})}, {kPath, file_of({{"a"}, {"b"}})}}));
    const auto made = call(Method::kPost, "/v1/models/base/versions",
                           {{"manifest", stored({{kPath, file_of({{"a"}, {"b", DType::kF32}})}})},
                            {"kind", "update"},
                            {"parents", {odd}}});
    EXPECT_EQ(made.status, 201) << made.body;
}

TEST_F(UpdateTest, ItMayBeShardedOtherwiseIfItsIndexSaysSo) {
    const std::map<std::string, std::string> shards = {{"model-1.safetensors", file_of({{"a"}})},
                                                       {"model-2.safetensors", file_of({{"b"}})}};
    const auto with_index = [&](const std::string& index) {
        auto files = shards;
        files[kIndex] = index;
        return files;
    };
    const Json right = {{"a", "model-1.safetensors"}, {"b", "model-2.safetensors"}};
    EXPECT_EQ(fault(shards), "manifest.files[0].path") << "nothing says what they are";
    EXPECT_EQ(fault(with_index(R"({"weight_map":{}})")), "manifest.files[2].path");
    EXPECT_EQ(fault(with_index(index_of({{"a", "model-1.safetensors"}, {"b", "gone.safetensors"}}))),
              "manifest.files[2].path");
    EXPECT_EQ(fault(with_index(index_of({{"a", "model-2.safetensors"}, {"b", "model-1.safetensors"}}))),
              "manifest.files[2].path");
    Json more = right;
    more["bogus.weight"] = "model-1.safetensors";
    EXPECT_EQ(fault(with_index(index_of(more))), "manifest.files[2].path") << "a tensor that is not there";
    const std::string twice_named = R"({"metadata":{"a":1},"weight_map":)" + right.dump() + "}";
    EXPECT_EQ(fault(with_index(twice_named)), "manifest.files[2].path") << "the trainer refuses that";
    EXPECT_EQ(fault(with_index(std::string(1U << 20, ' '))), "manifest.files[2].path");
    auto twice = with_index(index_of(right));
    twice[kPath] = file_of({{"a"}, {"b"}});
    EXPECT_EQ(fault(twice), "manifest.files[2].path");
    twice[kPath] = file_of({});
    EXPECT_EQ(fault(twice), "manifest.files[3].path") << "model.safetensors is read alone";
    EXPECT_EQ(fault(with_index(index_of(right))), "");
}

TEST_F(UpdateTest, ASmallQuotaMakesNoLargeVersion) {
    const std::string junk(1U << 20, '\0');
    const std::string sha256 = digest::sha256(junk);
    EXPECT_TRUE(call(*site_, Method::kPut, "/v1/blobs/" + sha256, junk).ok());
    Json manifest = stored(*site_, {{"a.safetensors", file_of({{"a"}, {"b"}})}});
    const Json chunks(1000, Json{{"sha256", sha256}, {"size", junk.size()}});
    manifest["files"].push_back({{"path", kPath}, {"size", chunks.size() * junk.size()}, {"chunks", chunks}});
    const auto refused = post(manifest);
    EXPECT_EQ(refused.status, 422) << refused.body;
    EXPECT_EQ(problem_field(refused), "manifest.files[1].path");
}

TEST_F(UpdateTest, ItNamesOnlyBlobsOfItsBaseAndItsOwn) {
    const std::string foreign = file_of({{"a"}, {"b"}}, {{"from", "another"}});
    const std::string of_base = file_of({{"a"}, {"b"}});
    const Json manifest = stored({{kPath, foreign}});
    const std::string sha256 = digest::sha256(foreign);
    const Json asked = {{"digests", {sha256, digest::sha256(of_base)}}};
    const auto missing = [&] {
        return Json::parse(call(*site_, Method::kPost, "/v1/blobs/missing", asked.dump()).body).at("missing");
    };
    EXPECT_EQ(missing(), Json{sha256}) << "whether others have it is not told";
    EXPECT_EQ(post(manifest).status, 403);
    EXPECT_EQ(call(*site_, Method::kPut, "/v1/blobs/" + sha256, foreign).status, 200);
    EXPECT_EQ(missing(), Json::array());
    EXPECT_EQ(post(manifest).status, 201) << "it has shown that it has these bytes";
}

TEST_F(UpdateTest, ATrainingThatChangedNothingHandsInItsBase) {
    const Json base = Json::parse(call(Method::kGet, "/v1/versions/" + base_).body).at("manifest");
    const auto made = post(base);
    EXPECT_EQ(made.status, 201) << made.body;
}

}  // namespace
}  // namespace atl::store
