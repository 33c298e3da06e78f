#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "shared/base/file.h"
#include "shared/base/subprocess.h"
#include "shared/numeric/float16.h"
#include "shared/safetensors/file.h"
#include "tests/e2e/small_federation.h"

namespace atl {
namespace {

using json::Json;
namespace fs = std::filesystem;

constexpr double kAlpha = 16, kRank = 8;

class AdapterJobTest : public testing::Test {
  protected:
    void SetUp() override {
        const Status ready = federation_.set_up();
        ASSERT_TRUE(ready.ok()) << ready.error().message;
    }
    Json adapter_spec(const std::string& name) {
        Json spec = federation_.job_spec(name, 2);
        spec["training"].update({{"lora_rank", 8},
                                 {"lora_alpha", 16},
                                 {"lora_targets", "all-linear"},
                                 {"seed", 3},
                                 {"warmup_steps", 2},
                                 {"deterministic", true}});
        return spec;
    }
    // The finished job.
    Json train(const Json& spec) {
        const auto id = federation_.coordinator().submit(spec);
        if (!id.ok()) {
            ADD_FAILURE() << id.error().message;
            return Json();
        }
        const auto state = federation_.coordinator().follow(*id, std::chrono::seconds(300), [](const Json&) {});
        const Json job = federation_.coordinator().job(*id).value();
        EXPECT_TRUE(state.ok() && *state == "completed") << job.value("error", "");
        return job;
    }
    Json version(const std::string& reference) {
        const CommandResult shown = federation_.run_atoll({"model", "show", reference, "--json"});
        EXPECT_EQ(shown.exit_code, 0) << shown.err;
        return Json::parse(shown.out);
    }
    fs::path pull(const std::string& reference, const std::string& name, std::vector<std::string> more = {}) {
        const fs::path out = federation_.path(name);
        std::vector<std::string> command = {"model", "pull", reference, "--out", out.string()};
        command.insert(command.end(), more.begin(), more.end());
        const CommandResult pulled = federation_.run_atoll(command);
        EXPECT_EQ(pulled.exit_code, 0) << pulled.err;
        return out;
    }

    e2e::SmallFederation federation_;
};

std::vector<double> values_of(const safetensors::Model& model, const std::string& name) {
    const auto* entry = model.find(name);
    if (entry == nullptr) {
        ADD_FAILURE() << name;
        return {};
    }
    std::vector<double> values(static_cast<std::size_t>(entry->tensor->element_count()));
    const auto bytes = entry->file->bytes(*entry->tensor);
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (entry->tensor->dtype == safetensors::DType::kF32) {
            float value = 0;
            std::memcpy(&value, bytes.data() + 4 * i, 4);
            values[i] = value;
        } else {
            std::uint16_t value = 0;
            std::memcpy(&value, bytes.data() + 2 * i, 2);
            values[i] = numeric::widen_f16(value);
        }
    }
    return values;
}

// Two sites, two rounds, and the model of it all: W + alpha / rank · B A.
TEST_F(AdapterJobTest, AJobTrainsAdaptersAndNothingElseTravels) {
    const Json job = train(adapter_spec("adapters"));
    ASSERT_FALSE(job.is_null());
    const Json base = version("tiny@base"), first = version("adapters@" + job.at("base").get<std::string>());
    EXPECT_EQ(first.at("kind"), "adapter");
    EXPECT_EQ(first.at("adapter_of"), base.at("digest"));
    const Json global = version("adapters@round2");
    EXPECT_EQ(global.at("adapter_of"), base.at("digest"));
    EXPECT_EQ(global.at("manifest").at("files").size(), 2U);
    EXPECT_EQ(global.at("contributions").size(), 2U);
    for (const Json& part : global.at("contributions"))
        EXPECT_GT(part.at("norm").get<double>(), 0) << "the defence looks";
    const Json rounds = federation_.coordinator().rounds(job.at("id")).value().at("items");
    for (const Json& round : rounds)
        for (const Json& task : round.at("tasks")) {
            if (!task.value("version", Json()).is_string()) continue;
            const Json update = version("adapters@" + task.at("version").get<std::string>());
            EXPECT_EQ(update.at("adapter_of"), base.at("digest"));
            EXPECT_LT(update.at("size").get<double>(), first.at("size").get<double>() * 1.1);
        }

    const auto plain = safetensors::Model::open(federation_.path("base"));
    const auto adapter =
        safetensors::Model::open_file(pull("adapters@round2", "adapter") / "adapter_model.safetensors");
    const auto merged = safetensors::Model::open(pull("adapters@round2", "merged", {"--merge"}));
    ASSERT_TRUE(plain.ok() && adapter.ok() && merged.ok());
    EXPECT_TRUE(fs::exists(federation_.path("merged") / "config.json"));
    double moved = 0;
    for (const auto& entry : plain->entries()) {
        const std::string& name = entry.tensor->name;
        const std::vector<double> before = values_of(*plain, name), after = values_of(*merged, name);
        ASSERT_EQ(before.size(), after.size());
        const std::string prefix = "base_model.model." + name.substr(0, name.size() - std::string(".weight").size());
        if (adapter->find(prefix + ".lora_A.weight") == nullptr) {
            EXPECT_EQ(before, after) << name;
            continue;
        }
        const std::vector<double> a = values_of(*adapter, prefix + ".lora_A.weight");
        const std::vector<double> b = values_of(*adapter, prefix + ".lora_B.weight");
        const auto rank = static_cast<std::size_t>(kRank), columns = a.size() / rank;
        for (std::size_t i = 0; i < before.size(); ++i) {
            double sum = before[i];
            for (std::size_t k = 0; k < rank; ++k)
                sum += kAlpha / kRank * b[i / columns * rank + k] * a[k * columns + i % columns];
            EXPECT_NEAR(after[i], sum, 1e-3 * (1 + std::fabs(sum))) << name;
            moved += std::fabs(after[i] - before[i]);
        }
    }
    EXPECT_GT(moved, 0);

    // The adapter is trained further by another job.
    Json more = adapter_spec("more");
    more["model"] = {{"name", "adapters"}, {"version", "round2"}};
    const Json further = train(more);
    EXPECT_EQ(further.value("base", ""), global.at("digest").get<std::string>()) << "no adapter of its own";
    EXPECT_EQ(version("more@newest").at("adapter_of"), base.at("digest"));
    more["training"]["lora_rank"] = 4;
    const auto refused = federation_.coordinator().submit(more);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("8"), std::string::npos) << refused.error().message;
}

// Frozen matrices in NF4 at the sites, the same adapters, of which all sites keep the A that the job began with.
TEST_F(AdapterJobTest, TheModelMayBeQuantisedAtTheSitesAndAFrozen) {
    Json spec = adapter_spec("quantised");
    spec["training"].update({{"quantize", "nf4"}, {"lora_freeze_a", "on"}});
    spec["rounds"] = 1;
    const Json job = train(spec);
    ASSERT_FALSE(job.is_null());
    EXPECT_TRUE(version("quantised@newest").at("adapter_of").is_string());
    const std::string first = "quantised@" + job.at("base").get<std::string>();
    const auto begin = safetensors::Model::open_file(pull(first, "begin") / "adapter_model.safetensors");
    const auto end = safetensors::Model::open_file(pull("quantised@newest", "end") / "adapter_model.safetensors");
    ASSERT_TRUE(begin.ok() && end.ok());
    for (const auto& entry : begin->entries()) {
        const std::string& name = entry.tensor->name;
        const std::vector<double> before = values_of(*begin, name), after = values_of(*end, name);
        double moved = 0, largest = 0;
        for (std::size_t i = 0; i < before.size(); ++i) {
            moved = std::max(moved, std::fabs(after[i] - before[i]));
            largest = std::max(largest, std::fabs(before[i]));
        }
        if (name.ends_with(".lora_A.weight"))
            EXPECT_LE(moved, 0x1p-11 * largest) << name << ": updates are in fp16";
        else
            EXPECT_GT(moved, 1e-6) << name;
    }
}

// The round's model is what the command line makes of the same updates, with the same loss.
TEST_F(AdapterJobTest, ProductsAreBroughtBackToOneAdapter) {
    Json spec = adapter_spec("products");
    spec["rounds"] = 1;
    spec["strategy"] = {{"name", "product"}, {"weighting", "uniform"}};
    const Json job = train(spec);
    ASSERT_FALSE(job.is_null());
    const std::string base = pull("products@" + job.at("base").get<std::string>(), "begin");
    const std::string expected = federation_.path("expected");
    std::vector<std::string> command = {e2e::SmallFederation::program("atoll"), "aggregate", "--strategy", "product"};
    command.insert(command.end(), {"--json", "--base", base, "--out", expected});
    const Json global = version("products@round1");
    for (const Json& part : global.at("contributions")) {
        EXPECT_EQ(part.at("counted"), 1);
        const std::string facility = part.at("facility");
        command.push_back(pull("products@" + part.at("version").get<std::string>(), "of-" + facility));
    }
    ASSERT_EQ(command.size(), 11U) << "two updates";
    const CommandResult made = run_command(command, {}).value();
    ASSERT_EQ(made.exit_code, 0) << made.err;
    const double error = global.at("metrics").at("product_relative_error");
    EXPECT_GT(error, 1e-4);
    EXPECT_LT(error, 0.9);
    EXPECT_EQ(Json::parse(made.out).at("relative_error"), error);
    const CommandResult verified = federation_.run_atoll({"round", "verify", job.at("id"), "1", "--json"});
    EXPECT_EQ(verified.exit_code, 0) << verified.err;
    EXPECT_TRUE(read_file(pull("products@round1", "got") / "adapter_model.safetensors").value() ==
                read_file(fs::path(expected) / "adapter_model.safetensors").value());
}

}  // namespace
}  // namespace atl
