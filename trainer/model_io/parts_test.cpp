#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "shared/base/file.h"
#include "trainer/comm/testing/run_tests.h"
#include "trainer/model_io/weights_io.h"
#include "trainer/weights/init.h"

// Four ranks read and write the files of a model that they have parts of.
namespace atl::model_io {

comm::Comm* world = nullptr;

namespace {

constexpr const char* kUntied = R"({"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "vocab_size": 700,
    "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "hidden_act": "silu", "use_sliding_window": false, "tie_word_embeddings": false})";
constexpr const char* kTied = R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 9000,
    "hidden_size": 24, "intermediate_size": 7000, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
    "tie_word_embeddings": true})";

struct Cut {
    parallel::Sharding sharding = parallel::Sharding::kFullShard;
    parallel::Mesh mesh;
};
const Cut kCuts[] = {{.mesh = {.shards = 4}},
                     {.mesh = {.shards = 2, .tensor = 2}},
                     {.mesh = {.context = 2, .tensor = 2}},
                     {.mesh = {.tensor = 2, .pipeline = 2}},
                     {.mesh = {.pipeline = 4}},
                     {parallel::Sharding::kNone, {.shards = 2, .pipeline = 2}},
                     {parallel::Sharding::kHybridShardZero2, {.replicas = 2, .tensor = 2}}};

class PartsTest : public testing::TestWithParam<const char*> {
  protected:
    // In a directory of rank 0.
    void SetUp() override {
        std::array<char, 4096> path{};
        std::strncpy(path.data(), directory_.path().c_str(), path.size() - 1);
        world->broadcast(std::as_writable_bytes(std::span(path)), 0);
        base_ = path.data();
        if (world->rank() == 0) {
            ASSERT_TRUE(write_file_atomic(base_ / "config.json", GetParam()).ok());
            ASSERT_TRUE(weights::init_model({base_ / "config.json", {}, base_ / "model", 3, {}}).ok());
        }
        ASSERT_TRUE(world->agree({}).ok());
    }

    // Every rank reads its part and they write the whole: the file, on rank 0.
    std::string read_and_write(const Cut& cut, const model::LoraOptions* adapters) {
        const auto layout = parallel::parallel_layout(cut.sharding, cut.mesh, world->rank());
        ModelDirectory directory = open_model_directory(base_ / "model").value();
        directory.model = model::make_model(
            directory.model.config, model::model_part(directory.model.config, layout.place.tensor, cut.mesh.tensor,
                                                      layout.place.stage, cut.mesh.pipeline));
        if (adapters != nullptr) {
            EXPECT_TRUE(add_adapters(directory, {*adapters, {}, {}, 5}).ok());
        }
        const auto backend = kernels::make_cpu_backend(1).value();
        tensor::Arena measured = tensor::Arena::measuring();
        parallel::ParameterStore::lay_out(measured, directory.model, layout, nullptr, {});
        tensor::Arena arena(backend->allocate(measured.peak_bytes()).value());
        auto store = parallel::ParameterStore::lay_out(arena, directory.model, layout, nullptr, {});
        EXPECT_TRUE(load_weights(directory, store, *backend, *world, false).ok());
        const SaveWhere where{base_ / "model", base_ / "out", {}, adapters, {}};
        auto saver = WeightSaver::create(directory.model, *world, where);
        EXPECT_TRUE(saver.ok() && saver->save(store, *backend, *world).ok());
        const char* name = adapters == nullptr ? "model.safetensors" : "adapter_model.safetensors";
        return world->rank() == 0 ? read_file(where.out / name).value() : std::string();
    }

    TemporaryDirectory directory_;
    std::filesystem::path base_;
};

TEST_P(PartsTest, AModelIsTheSameHoweverRanksCutIt) {
    for (const Cut& cut : kCuts) {
        const std::string written = read_and_write(cut, nullptr);
        if (world->rank() != 0) continue;
        EXPECT_TRUE(written == read_file(base_ / "model" / "model.safetensors").value())
            << cut.mesh.shards << " shards, " << cut.mesh.tensor << " parts, " << cut.mesh.pipeline << " stages";
    }
}

TEST_P(PartsTest, NewAdaptersAreTheSameHoweverRanksCutThem) {
    const model::LoraOptions adapters{.rank = 3, .alpha = 6, .targets = {"down_proj", "o_proj", "q_proj"}};
    const std::string wanted = read_and_write(kCuts[0], &adapters);
    for (const Cut& cut : kCuts) {
        EXPECT_TRUE(read_and_write(cut, &adapters) == wanted)
            << cut.mesh.shards << " shards, " << cut.mesh.tensor << " parts, " << cut.mesh.pipeline << " stages";
    }
}

INSTANTIATE_TEST_SUITE_P(Models, PartsTest, testing::Values(kUntied, kTied),
                         [](const auto& one) { return std::string(one.index == 0 ? "Untied" : "Tied"); });

}  // namespace
}  // namespace atl::model_io

int main(int argc, char** argv) {
    return atl::comm::run_tests(argc, argv, atl::model_io::world);
}
