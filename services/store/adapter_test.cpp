// Adapters as versions: what they are checked against, and what comes of them.
#include "shared/adapter/adapter.h"

#include <cstring>

#include "services/store/testing/store_fixture.h"
#include "shared/adapter/initial_adapter.h"

namespace atl::store {
namespace {

using model_config::TensorSpec;

const std::vector<TensorSpec> kMatrices = {{"model.embed_tokens.weight", {8, 4}},
                                           {"model.layers.0.self_attn.q_proj.weight", {6, 4}},
                                           {"model.layers.0.mlp.up_proj.weight", {5, 4}}};

std::string model_file() {
    std::vector<safetensors::TensorInfo> infos;
    for (const TensorSpec& tensor : kMatrices)
        infos.push_back({tensor.name, safetensors::DType::kBF16, tensor.shape, 0, 0});
    const std::string head = safetensors::make_header(infos);
    return head + std::string(infos.back().end, '\1');
}

std::string weights_of(const adapter::LoraOptions& options, std::uint64_t seed = 1) {
    const adapter::InitialAdapter made(adapter::tensors_on(options, kMatrices).value(), safetensors::DType::kF32, seed);
    std::string bytes(made.size(), '\0');
    made.read(0, std::as_writable_bytes(std::span(bytes)));
    return bytes;
}

const adapter::LoraOptions kOptions{2, 4, 0, {"all-linear"}};

std::map<std::string, std::string> files_of(const adapter::LoraOptions& options, const std::string& weights,
                                            const std::string& base = "llama") {
    return {{adapter::kConfigFile, adapter::config_text(options, base)}, {adapter::kWeightsFile, weights}};
}

class AdapterVersionTest : public StoreTest {
  protected:
    void SetUp() override {
        StoreTest::SetUp();
        if (IsSkipped()) return;
        create_model("llama");
        create_model("out");
        model_ = create_version("llama", stored({{"config.json", "{}"}, {"model.safetensors", model_file()}}));
    }
    http::ClientResponse push(const std::map<std::string, std::string>& files, const Json& parents) {
        return call(Method::kPost, "/v1/models/out/versions",
                    {{"manifest", stored(files)}, {"kind", "adapter"}, {"parents", parents}});
    }
    std::string fault(const std::map<std::string, std::string>& files, const Json& parents) {
        const auto response = push(files, parents);
        EXPECT_EQ(response.status, 422) << response.body;
        return Json::parse(response.body).value("detail", "");
    }
    Json made(const http::ClientResponse& response) {
        EXPECT_EQ(response.status, 201) << response.body;
        return Json::parse(response.body);
    }
    // As the aggregation makes it in the job's first round.
    Json made_of(const std::string& base, const Json& update) {
        return made(call(Method::kPost, "/v1/models/out/versions",
                         {{"manifest", stored(files_of(kOptions, weights_of(kOptions, 3)))},
                          {"kind", "global"},
                          {"parents", {base, update.at("digest")}},
                          {"job", "job1"},
                          {"round", 1}}));
    }

    std::string model_;
};

TEST_F(AdapterVersionTest, ItNamesItsModelAndFitsIt) {
    const Json version = made(push(files_of(kOptions, weights_of(kOptions)), {model_}));
    EXPECT_EQ(version.at("kind"), "adapter");
    EXPECT_EQ(version.at("adapter_of"), model_);
    EXPECT_EQ(Json::parse(call(Method::kGet, "/v1/models/llama/versions/" + model_).body).at("adapter_of"), nullptr);
    EXPECT_EQ(Json::parse(call(Method::kGet, "/v1/models/out/versions/newest").body).at("digest"), version["digest"]);
    EXPECT_EQ(call(Method::kDelete, "/v1/models/llama/versions/" + model_).status, 409) << "its model is needed";

    const std::string digest = version.at("digest");
    EXPECT_NE(fault(files_of(kOptions, weights_of(kOptions, 2)), {digest}).find("adapter itself"), std::string::npos);
    EXPECT_NE(fault(files_of(kOptions, weights_of(kOptions)), Json::array()).find("the model that it was trained on"),
              std::string::npos);
    EXPECT_NE(fault({{adapter::kConfigFile, adapter::config_text(kOptions, "")}}, {model_}).find(adapter::kWeightsFile),
              std::string::npos);
    adapter::LoraOptions other = kOptions;
    other.rank = 3;
    EXPECT_NE(fault(files_of(other, weights_of(kOptions)), {model_}).find("has the shape"), std::string::npos);
    other = kOptions;
    other.targets = {"q_proj"};
    EXPECT_NE(fault(files_of(other, weights_of(kOptions)), {model_}).find("any weight matrix that the adapter targets"),
              std::string::npos);
    EXPECT_NE(fault(files_of(kOptions, weights_of(other)), {model_}).find("is missing"), std::string::npos);
    other.targets = {"k_proj"};
    EXPECT_NE(fault(files_of(other, weights_of(kOptions)), {model_}).find("k_proj"), std::string::npos);
    auto files = files_of(kOptions, weights_of(kOptions));
    files["more.safetensors"] = model_file();
    EXPECT_NE(fault(files, {model_}).find("more.safetensors"), std::string::npos);
    files = files_of(kOptions, weights_of(kOptions));
    files[adapter::kConfigFile] = R"({"peft_type": "LORA", "r": 2, "target_modules": "all-linear", "use_dora": true})";
    EXPECT_NE(fault(files, {model_}).find("use_dora"), std::string::npos);
}

TEST_F(AdapterVersionTest, WhatARoundMakesOfItBelongsToTheSameModel) {
    const std::string start = made(push(files_of(kOptions, weights_of(kOptions)), {model_})).at("digest");
    http::Client site = facility({start, model_}, "out");
    EXPECT_EQ(call(site, Method::kGet, "/v1/versions/" + model_).status, 200) << "the site trains on it";
    const auto hand_in = [&](const std::map<std::string, std::string>& files) {
        const Json body = {{"manifest", stored(site, files)}, {"kind", "update"}};
        return call(site, Method::kPost, "/v1/models/out/versions", body.dump());
    };
    adapter::LoraOptions other = kOptions;
    other.alpha = 8;
    const auto refused = hand_in(files_of(other, weights_of(kOptions, 2)));
    EXPECT_EQ(refused.status, 422);
    EXPECT_NE(refused.body.find("lora_alpha"), std::string::npos) << refused.body;
    EXPECT_EQ(hand_in({{"model.safetensors", model_file()}}).status, 422) << "a model is no update of an adapter";
    other = kOptions;
    other.dropout = 0.5;
    const Json update = made(hand_in(files_of(other, weights_of(kOptions, 2), "/work/models/" + model_)));
    EXPECT_EQ(update.at("kind"), "update");
    EXPECT_EQ(update.at("parents"), Json{start});
    EXPECT_EQ(update.at("adapter_of"), model_);
    const Json global = made_of(start, update);
    EXPECT_EQ(global.at("adapter_of"), model_);
    const Json merged = made(call(Method::kPost, "/v1/models/out/versions",
                                  {{"manifest", stored({{"model.safetensors", model_file() + ""}, {"a", "b"}})},
                                   {"kind", "base"},
                                   {"parents", {global.at("digest")}}}));
    EXPECT_EQ(merged.at("adapter_of"), nullptr) << "a model that comes from an adapter is none";
}

// A job's first adapter has the same bytes whoever begins with it: they tell nothing of its model.
TEST_F(AdapterVersionTest, TheSameAdapterOfAnothersModelChangesNoOnesModel) {
    create_model("forged");
    const std::string zeros = create_version("forged", stored({{"model.safetensors", model_file()}, {"a", "b"}}));
    const auto files = files_of(kOptions, weights_of(kOptions));
    const Json before = {{"manifest", stored(files)}, {"kind", "adapter"}, {"parents", {zeros}}};
    ASSERT_EQ(made(call(Method::kPost, "/v1/models/forged/versions", before)).at("adapter_of"), zeros);
    const std::string start = made(push(files, {model_})).at("digest");
    http::Client site = facility({start, model_}, "out");
    const Json body = {{"manifest", stored(site, files_of(kOptions, weights_of(kOptions, 2)))}, {"kind", "update"}};
    const Json update = made(call(site, Method::kPost, "/v1/models/out/versions", body.dump()));
    EXPECT_EQ(update.at("adapter_of"), model_);
    const Json global = made_of(start, update);
    EXPECT_EQ(global.at("adapter_of"), model_);
}

// Each of them is parsed, while others wait for their turn.
TEST_F(AdapterVersionTest, HeadersTogetherHaveABound) {
    std::string large(15U << 20, ' ');
    const std::uint64_t length = large.size() - 8;
    std::memcpy(large.data(), &length, sizeof length);
    std::map<std::string, std::string> files;
    for (const char* name : {"a", "b", "c", "d", "e"}) files[name + std::string(".safetensors")] = large;
    const auto refused = call(Method::kPost, "/v1/models/out/versions", {{"manifest", stored(files)}});
    EXPECT_EQ(refused.status, 422);
    EXPECT_NE(refused.body.find("75.0 MiB together, of 64.0 MiB at most"), std::string::npos) << refused.body;
}

// A site's quota follows the adapter, not the model behind it.
TEST_F(AdapterVersionTest, ASiteMayNotUploadAModelForAnAdapter) {
    const std::string large = create_version("llama", stored({{"large", std::string(9 << 20, 'x')}}));
    const std::string start = made(push(files_of(kOptions, weights_of(kOptions)), {model_})).at("digest");
    http::Client site = facility({start, large}, "out");
    const std::string blob(8 << 20, '\0');
    int taken = 0;
    for (char c = 'a'; c < 'm'; ++c) {
        std::string bytes = blob;
        bytes[0] = c;
        taken += call(site, Method::kPut, "/v1/blobs/" + digest::sha256(bytes), bytes).ok() ? 1 : 0;
    }
    EXPECT_EQ(taken, 8) << "64 MiB and four adapters";
}

}  // namespace
}  // namespace atl::store
