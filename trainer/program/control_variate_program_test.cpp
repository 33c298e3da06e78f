// Trainings that correct their gradients by what all sites' and their own were in the round before.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "shared/base/testing/sanitizers.h"
#include "shared/delta/base_digest.h"
#include "shared/delta/delta.h"
#include "shared/model_config/token_counts.h"
#include "shared/safetensors/file.h"
#include "trainer/program/testing/program_fixture.h"
#include "trainer/weights/control_variate.h"
#include "trainer/weights/storage.h"

namespace atl::program {
namespace {

namespace fs = std::filesystem;

using safetensors::DType;
using ControlFlags = std::vector<std::string>;
using Tensors = std::map<std::string, std::vector<float>>;

constexpr double kRate = 0.5, kFactor = 0.7, kNormMax = 0.25;

ControlFlags operator+(ControlFlags flags, const ControlFlags& more) {
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
}

class ControlVariateProgramTest : public ProgramTest {
  protected:
    ControlVariateProgramTest() {
        EXPECT_EQ(run({"init", "--config", path("config.json"), "--out", path("w0"), "--seed", "1", "--dtype", "fp32"})
                      .exit_code,
                  0);
    }

    // From w0, or the model that `flags` name.
    CommandResult train_from(const std::string& model, const std::string& out, const ControlFlags& flags,
                             int ranks = 1) const {
        ControlFlags all = {"train",   "--model",   path(model), "--data",       path(data_), "--out",
                            path(out), "--threads", "1",         "--save-dtype", "fp32"};
        if (std::ranges::find(flags, "--resume") == flags.end()) all.emplace_back("--overwrite");
        auto result = run(all + flags, ranks);
        EXPECT_TRUE(result.exit_code == 0 || expects_failure_) << result.err;
        return result;
    }
    ControlFlags from(const std::string& out, const std::string& name = {}) const {
        ControlFlags flags = {"--control-variate-from", path(out)};
        return name.empty() ? flags : flags + ControlFlags{"--control-variate-if-named", name};
    }
    std::string own_file(const std::string& out) const { return path(out + "/") + delta::kControlVariateFile; }
    std::string kept_file(const std::string& out) const { return path(out + ".state/") + delta::kControlVariateFile; }
    std::string own_bytes(const std::string& out) const { return read_file(own_file(out)).value(); }

    Tensors model(const std::string& directory) const {
        Tensors all;
        const auto file = safetensors::File::open(path(directory + "/model.safetensors"));
        EXPECT_TRUE(file.ok()) << file.error().message;
        for (const auto& tensor : file->header().tensors) {
            all[tensor.name].resize(static_cast<std::size_t>(tensor.element_count()));
            EXPECT_TRUE(weights::widen(tensor.dtype, file->bytes(tensor), all[tensor.name]));
        }
        return all;
    }
    Tensors own(const std::string& out, const Tensors& like) const {
        Tensors all = like;
        const auto file = safetensors::File::open(own_file(out));
        EXPECT_TRUE(file.ok()) << file.error().message;
        EXPECT_EQ(file->header().tensors.size(), like.size());
        for (auto& [name, values] : all) {
            std::ranges::fill(values, 0.0F);
            delta::add_changes(delta::Format::kInt8, file->bytes(*file->header().find(name)), 0, values);
        }
        return all;
    }

    // A file with those of the model's tensors that `has` takes; values are value(name, index).
    void write_common(
        const std::string& file, DType dtype, const Tensors& like,
        const std::function<float(const std::string&, std::size_t)>& value,
        const std::function<bool(const std::string&)>& has = [](const std::string&) { return true; }) {
        const auto shapes = safetensors::File::open(path(shapes_of_ + "/model.safetensors"));
        std::vector<safetensors::TensorInfo> infos;
        std::string data;
        for (const auto& [name, values] : like) {
            if (!has(name)) continue;
            infos.push_back({name, dtype, shapes->header().find(name)->shape, 0, 0});
            std::vector<float> floats;
            for (std::size_t i = 0; i < values.size(); ++i) floats.push_back(value(name, i));
            std::vector<std::byte> bytes(floats.size() * static_cast<std::size_t>(safetensors::size_bytes(dtype)));
            if (dtype == DType::kF32) {
                std::memcpy(bytes.data(), floats.data(), bytes.size());
            } else {
                EXPECT_TRUE(weights::narrow(dtype, floats, bytes));
            }
            data.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        }
        fs::create_directories(fs::path(file).parent_path());
        EXPECT_TRUE(write_file_atomic(file, safetensors::make_header(infos) + data).ok());
    }
    std::string common_file(const std::string& model) const {
        return path(model + "/control_variate/model.safetensors");
    }
    // What bf16 holds, so that its file has the same values.
    static float common_value(const std::string& name, std::size_t index) {
        return static_cast<float>((index * 7 + name.size()) % 129) / 4096 - 64.0F / 4096;
    }
    // "w1", which has a common control variate, and "first", whose own is named "round 1".
    void make_second_round(DType dtype = DType::kF32) {
        train_from("w0", "first", control_ + ControlFlags{"--control-variate-name", "round 1"});
        fs::remove_all(path("w1"));
        fs::copy(path("first"), path("w1"));
        fs::remove(own_file("w1"));
        write_common(common_file("w1"), dtype, model("w0"), common_value);
    }
    void expect_refused(const CommandResult& result, const std::string& words) const {
        EXPECT_EQ(result.exit_code, 2) << result.err;
        EXPECT_NE(result.err.find(words), std::string::npos) << result.err;
    }

    const ControlFlags steps_ = {"--steps", "3", "--global-batch-size", "4", "--lr", "0.02", "--deterministic"};
    const ControlFlags control_ = steps_ + ControlFlags{"--control-variate", "0.7"};
    std::string data_ = "data.safetensors";
    std::string shapes_of_ = "w0";
    bool expects_failure_ = false;
};

double largest_distance(const Tensors& a, const Tensors& b) {
    double largest = 0;
    for (const auto& [name, values] : a)
        for (std::size_t i = 0; i < values.size(); ++i) {
            const double difference = std::abs(static_cast<double>(values[i]) - b.at(name)[i]);
            if (!(difference <= largest)) largest = difference;  // also of what is no number
        }
    return largest;
}

// combine(a, b, name, index) of all elements.
template <class Combine>
Tensors each_element(const Tensors& a, const Tensors& b, const Combine& combine) {
    Tensors out = a;
    for (auto& [name, values] : out)
        for (std::size_t i = 0; i < values.size(); ++i)
            values[i] = static_cast<float>(combine(static_cast<double>(a.at(name)[i]), b.at(name)[i], name, i));
    return out;
}

// By SGD on all rows a step moves the weights by the rate times what it takes for the gradient.
TEST_F(ControlVariateProgramTest, EachStepIsThatOfTheFormula) {
    const ControlFlags sgd = {
        "--global-batch-size", "32", "--shuffle",       "off", "--optimizer", "sgd", "--lr", "0.5",
        "--weight-decay",      "0",  "--max-grad-norm", "0.25"};
    const auto go = [&](const std::string& model, const std::string& out, int steps, const ControlFlags& flags) {
        return train_from(model, out, sgd + ControlFlags{"--steps", std::to_string(steps)} + flags);
    };
    const ControlFlags on = {"--control-variate", "0.7"};
    go("w0", "first", 3, on);
    go("w0", "plain", 3, {});
    EXPECT_EQ(weights("first") == weights("plain"), true) << "the first round adds nothing";
    const Tensors w0 = model("w0"), w3 = model("first"), own_first = own("first", w0);
    const Tensors mean = each_element(w0, w3, [](double before, double after, const std::string&, std::size_t) {
        return (before - after) / kRate / 3;
    });
    double most = 0;
    for (const auto& [name, values] : mean)
        for (const float value : values) most = std::max(most, std::abs(static_cast<double>(value)));
    EXPECT_LT(largest_distance(own_first, mean), most / 127 / 2 + 1e-6);
    EXPECT_GT(most, 1e-3);

    fs::copy(path("first"), path("v0"));
    write_common(common_file("v0"), DType::kF32, w0, common_value);
    std::string before = "v0";
    Tensors sum = each_element(w0, w0, [](double, double, const std::string&, std::size_t) { return 0.0; });
    for (int step = 1; step <= 3; ++step) {
        const std::string after = "v" + std::to_string(step);
        const auto corrected = go("v0", after, step, on + from("first"));
        const auto plain = go(before, "plain", 1, {});
        const Tensors at = model(before), moved = model("plain");
        const Tensors clipped = each_element(
            at, moved, [](double x, double y, const std::string&, std::size_t) { return (x - y) / kRate; });
        const Tensors wanted =
            each_element(moved, own_first, [](double x, double c_i, const std::string& name, std::size_t i) {
                return x - kRate * kFactor * (static_cast<double>(common_value(name, i)) - c_i);
            });
        EXPECT_LT(largest_distance(model(after), wanted), 1e-6) << "step " << step;
        EXPECT_NEAR(member(corrected.out, "grad_norm").back() / member(plain.out, "grad_norm").back(), 1, 1e-5)
            << "the norm is that of the gradient alone";
        sum = each_element(sum, clipped, [](double x, double g, const std::string&, std::size_t) { return x + g / 3; });
        before = after;
    }
    EXPECT_LT(largest_distance(own("v3", w0), sum), most / 127 + 1e-6) << "of the gradients as they were";
    EXPECT_GT(largest_distance(model("v3"), model("v0")), 1e-2);
    EXPECT_LE(kNormMax, member(go("v0", "v3", 3, on).out, "grad_norm").front()) << "something is clipped";
}

// Of the rows of embedding and head. A training whose changes are weighed by row says so by counting tokens.
TEST_F(ControlVariateProgramTest, WhoSawLittleOfATokenCorrectsItsRowByLess) {
    const ControlFlags sgd = {"--global-batch-size", "32", "--optimizer", "sgd", "--lr",    "0.5",
                              "--weight-decay",      "0",  "--shuffle",   "off", "--steps", "1"};
    const ControlFlags corrected = sgd + ControlFlags{"--control-variate", "0.7"};
    train_from("w0", "first", corrected);
    const Tensors w0 = model("w0"), own_first = own("first", w0);
    write_common(common_file("w0"), DType::kF32, w0, common_value);
    const auto shapes = safetensors::File::open(path("w0/model.safetensors"));
    int shortened = 0;
    Tensors corrections = w0;
    for (auto& [name, values] : corrections) {
        const auto& shape = shapes->header().find(name)->shape;
        const auto width = static_cast<std::size_t>(shape.back());
        for (std::size_t begin = 0; begin < values.size(); begin += width) {
            double common = 0, mine = 0;
            for (std::size_t i = begin; i < begin + width; ++i) {
                common += std::pow(common_value(name, i), 2);
                mine += std::pow(own_first.at(name)[i], 2);
            }
            const bool is_short = model_config::has_token_rows(name, shape) && mine < common;
            shortened += is_short ? 1 : 0;
            for (std::size_t i = begin; i < begin + width; ++i)
                values[i] = static_cast<float>((is_short ? std::sqrt(mine / common) : 1) *
                                               (common_value(name, i) - own_first.at(name)[i]));
        }
    }
    EXPECT_GT(shortened, 3);
    train_from("w0", "plain", sgd);
    train_from("w0", "after", corrected + from("first") + ControlFlags{"--token-counts"});
    const Tensors wanted = each_element(model("plain"), corrections,
                                        [](double weight, double correction, const std::string&, std::size_t) {
                                            return weight - 0.5 * 0.7 * correction;
                                        });
    EXPECT_LT(largest_distance(model("after"), wanted), 1e-6);
    train_from("w0", "whole", corrected + from("first"));
    EXPECT_GT(largest_distance(model("whole"), wanted), 1e-4);
}

// tests/numerics/make_control_variate_goldens.py
TEST_F(ControlVariateProgramTest, TwoRoundsAreThoseOfPyTorch) {
    const auto golden = nlohmann::json::parse(read_file(ATOLL_GOLDEN_DIR "/control_variate/steps.json").value());
    make_golden_base();
    data_ = "golden.safetensors";
    shapes_of_ = "golden";
    const ControlFlags flags = {"--steps",
                                "6",
                                "--global-batch-size",
                                "4",
                                "--shuffle",
                                "off",
                                "--lr",
                                "5e-3",
                                "--beta2",
                                "0.98",
                                "--weight-decay",
                                "0.1",
                                "--max-grad-norm",
                                "1",
                                "--control-variate",
                                "0.7"};
    const auto expect_round = [&](const std::string& name, const CommandResult& ran) {
        SCOPED_TRACE(name);
        for (const char* key : {"loss", "grad_norm"}) {
            const auto values = member(ran.out, key);
            for (std::size_t i = 0; i < 6; ++i)
                EXPECT_NEAR(values.at(i) / golden[name][key][i].get<double>(), 1, 2e-5) << key << " " << i;
        }
        for (const auto& [tensor, values] : own(name, model("golden"))) {
            double squares = 0;
            for (const float value : values) squares += static_cast<double>(value) * value;
            EXPECT_NEAR(std::sqrt(squares) / golden[name]["mean"][tensor].get<double>(), 1, 3e-3) << tensor;
        }
    };
    expect_round("first", train_from("golden", "first", flags));
    const Tensors first = own("first", model("golden"));
    write_common(common_file("golden"), DType::kF32, first,
                 [&](const std::string& name, std::size_t i) { return (i % 2 == 0 ? 3 : -1) * first.at(name)[i]; });
    expect_round("second", train_from("golden", "second", flags + from("first")));
}

TEST_F(ControlVariateProgramTest, TheFileSaysOfWhatItIsAndRanksAndShardingsChangeNoBit) {
    make_second_round(DType::kBF16);
    const auto header = safetensors::File::open(own_file("first"))->header();
    const auto base = safetensors::Model::open(path("w0"));
    EXPECT_EQ(header.metadata.at("atoll.delta"), "int8");
    EXPECT_EQ(header.metadata.at("atoll.delta_base"), delta::model_sha256(*base).value());
    for (const ControlFlags& optimizer : {ControlFlags{"--optimizer", "adamw"}, ControlFlags{"--optimizer", "muon"}}) {
        SCOPED_TRACE(optimizer[1]);
        const ControlFlags second = control_ + optimizer + from("first");
        train_from("w1", "one", second);
        train_from("w1", "without", steps_ + optimizer);
        EXPECT_EQ(weights("without") == weights("one"), false);
        for (const auto& [ranks, sharding] :
             {std::pair{2, "none"}, {4, "full_shard"}, {2, "shard_optimizer"}, {4, "shard_grad_op"}}) {
            SCOPED_TRACE(sharding);
            train_from("w1", "many", second + ControlFlags{"--sharding", sharding, "--broadcast-from-rank0"}, ranks);
            EXPECT_EQ(weights("many") == weights("one"), true);
            EXPECT_EQ(own_bytes("many") == own_bytes("one"), true);
            EXPECT_EQ(read_file(kept_file("many")).value() == read_file(kept_file("one")).value(), true);
        }
    }
    train_from("w0", "named", control_ + ControlFlags{"--update-base", "abcd"});
    EXPECT_EQ(safetensors::File::open(own_file("named"))->header().metadata.at("atoll.delta_base"), "abcd");
}

TEST_F(ControlVariateProgramTest, AStoppedRunGoesOnBitForBit) {
    make_second_round();
    const ControlFlags second = control_ + from("first", "round 1");
    train_from("w1", "whole", second);
    for (const auto& [out, saving] :
         {std::pair{"second", ControlFlags{}}, {"third", ControlFlags{"--save-every", "1", "--save-async", "on"}}}) {
        train_from("w1", out, second + saving + ControlFlags{"--time-limit", kAtOnce});
        EXPECT_FALSE(fs::exists(own_file(out)));
        EXPECT_FALSE(fs::exists(kept_file(out)));
        train_from("w1", out, second + ControlFlags{"--resume", "--sharding", "full_shard"}, 2);
        EXPECT_EQ(weights(out) == weights("whole"), true);
        EXPECT_EQ(own_bytes(out) == own_bytes("whole"), true);
        EXPECT_EQ(read_file(kept_file(out)).value() == read_file(kept_file("whole")).value(), true);
    }
    const auto again = train_from("w1", "second", second + ControlFlags{"--resume"});
    EXPECT_NE(again.out.find("already_finished"), std::string::npos) << again.out << again.err;

    const ControlFlags strict = control_ + from("first");
    train_from("w1", "fourth", strict + ControlFlags{"--time-limit", kAtOnce});
    train_from("w1", "fifth", second + ControlFlags{"--time-limit", kAtOnce});
    expects_failure_ = true;
    expect_refused(train_from("w1", "fourth", control_ + ControlFlags{"--resume"}), "--control-variate-from");
    expect_refused(
        train_from("w1", "fourth", steps_ + from("first") + ControlFlags{"--control-variate", "0.5", "--resume"}),
        "--control-variate 0.7 (now 0.5)");
    write_common(common_file("w1"), DType::kF32, model("w0"), [](const std::string&, std::size_t) { return 0.001F; });
    expect_refused(train_from("w1", "fourth", strict + ControlFlags{"--resume"}), "--control-variate-from");
    expects_failure_ = false;
    fs::remove(kept_file("first"));
    const auto without = train_from("w1", "fifth", second + ControlFlags{"--resume"});
    EXPECT_EQ(without.exit_code, 0) << "a site that has lost what it kept goes on without it: " << without.err;
    EXPECT_NE(without.out.find("control_variate_anew"), std::string::npos) << without.out;
}

TEST_F(ControlVariateProgramTest, AKilledRunGoesOnBitForBitWhereverItDies) {
    if (ATOLL_SANITIZED) GTEST_SKIP() << "a sanitizer's own library must come first, not the one that ends the program";
    make_second_round();
    const ControlFlags second = control_ + from("first", "round 1");
    train_from("w1", "whole", second);
    const ControlFlags saving = {"train", "--model",      path("w1"),  "--data", path("data.safetensors"),
                                 "--out", path("out"),    "--threads", "1",      "--save-dtype",
                                 "fp32",  "--save-every", "1"};
    const auto train_until = [&](int call) {
        return run_under({"env", "LD_PRELOAD=" ATOLL_DIE_AT_CALL, "ATOLL_DIE_AT=" + std::to_string(call)},
                         command(saving + second, 1));
    };
    int call = 1;
    for (; train_until(call).exit_code != 0; ++call) {
        ASSERT_LT(call, 100);
        train_from("w1", "out", second + ControlFlags{"--resume"});
        EXPECT_EQ(weights("out") == weights("whole"), true) << call;
        EXPECT_EQ(own_bytes("out") == own_bytes("whole"), true) << call;
        EXPECT_EQ(read_file(kept_file("out")).value() == read_file(kept_file("whole")).value(), true) << call;
        for (const char* name : {"out", "out.state"}) fs::remove_all(path(name));
    }
    EXPECT_GE(call, 12) << "it died at several places";
}

TEST_F(ControlVariateProgramTest, WhatWasKeptAndDoesNotFitIsRefusedOrLeftOutWithAWarning) {
    make_second_round();
    train_from("w1", "anew", control_);
    const auto expect_anew = [&](const std::string& why, const std::string& name = "round 1") {
        SCOPED_TRACE(why);
        expects_failure_ = true;
        EXPECT_EQ(train_from("w1", "second", control_ + from("first")).exit_code == 0, name != "round 1")
            << "by hand it is an error";
        expects_failure_ = false;
        const auto ran = train_from("w1", "second", control_ + from("first", name), 2);
        EXPECT_NE(ran.err.find("the control variate begins anew: "), std::string::npos) << ran.err;
        EXPECT_NE(ran.err.find(why), std::string::npos) << ran.err;
        EXPECT_NE(ran.out.find("\"control_variate_anew\":true"), std::string::npos) << ran.out;
        EXPECT_EQ(weights("second") == weights("anew"), true);
        EXPECT_TRUE(fs::exists(own_file("second")));
    };
    const auto taken = train_from("w1", "second", control_ + from("first", "round 1"));
    EXPECT_EQ(taken.out.find("control_variate_anew"), std::string::npos) << taken.out;
    EXPECT_EQ(weights("second") == weights("anew"), false);
    expect_anew("is that of 'round 1', not of 'round 2'", "round 2");
    const std::string bytes = read_file(kept_file("first")).value();
    std::string flipped = bytes;
    flipped[flipped.size() / 2] ^= 1;
    ASSERT_TRUE(write_file_atomic(kept_file("first"), flipped).ok());
    expect_anew("is damaged");
    make_wide_model("wide");
    ASSERT_EQ(run({"train", "--model", path("wide"), "--data", path("data.safetensors"), "--out", path("other"),
                   "--steps", "1", "--control-variate", "1", "--control-variate-name", "round 1"})
                  .exit_code,
              0);
    ASSERT_TRUE(write_file_atomic(kept_file("first"), read_file(kept_file("other")).value()).ok());
    expect_anew("is of another model");
    fs::remove(kept_file("first"));
    expect_anew(delta::kControlVariateFile);
    ASSERT_TRUE(write_file_atomic(kept_file("first"), bytes).ok());

    fs::remove_all(path("w1/control_variate"));
    const auto alone = train_from("w1", "second", control_ + from("first", "round 1"));
    EXPECT_NE(alone.err.find("the model has no control_variate/ directory"), std::string::npos) << alone.err;
    EXPECT_EQ(alone.out.find("control_variate_anew"), std::string::npos) << alone.out;
    EXPECT_EQ(weights("second") == weights("anew"), true);
}

TEST_F(ControlVariateProgramTest, ACommonOneMustFitTheModel) {
    make_second_round();
    const Tensors like = model("w0");
    expects_failure_ = true;
    const auto refused = [&](const std::string& words) {
        for (const int ranks : {1, 2})
            expect_refused(train_from("w1", "second", control_ + from("first"), ranks), words);
    };
    const std::string some = "model.norm.weight";
    write_common(common_file("w1"), DType::kF32, like, common_value, [&](const auto& name) { return name != some; });
    refused("tensor \"model.norm.weight\" of the model is in none of its files");
    write_common(common_file("w1"), DType::kF16, like, common_value);
    refused("must be F32 or BF16");
    write_common(common_file("w1"), DType::kF32, like, [&](const std::string& name, std::size_t i) {
        return name == some && i == 3 ? NAN : common_value(name, i);
    });
    refused("holds a value that is not finite");
    fs::remove(common_file("w1"));
    refused(common_file("w1"));
}

// Each file of the model has one of its name beside it; which tensors are where need not be the same.
TEST_F(ControlVariateProgramTest, ACommonOneLiesInFilesOfTheModelsNames) {
    make_second_round();
    train_from("w1", "one", control_ + from("first"));
    const Tensors values = model("w1");
    const auto is_early = [](const std::string& name) { return name < "model.layers.1"; };
    fs::create_directory(path("cut"));
    fs::copy(path("w1/config.json"), path("cut/config.json"));
    nlohmann::json map;
    for (const auto& [name, tensor] : values)
        map[name] = is_early(name) ? "model-1.safetensors" : "model-2.safetensors";
    ASSERT_TRUE(
        write_file_atomic(path("cut/model.safetensors.index.json"), nlohmann::json{{"weight_map", map}}.dump()).ok());
    const auto value = [&](const std::string& name, std::size_t i) { return values.at(name)[i]; };
    write_common(path("cut/model-1.safetensors"), DType::kF32, values, value, is_early);
    write_common(path("cut/model-2.safetensors"), DType::kF32, values, value,
                 [&](const auto& name) { return !is_early(name); });
    write_common(path("cut/control_variate/model-2.safetensors"), DType::kF32, values, common_value, is_early);
    write_common(path("cut/control_variate/model-1.safetensors"), DType::kF32, values, common_value,
                 [&](const auto& name) { return !is_early(name); });
    train_from("cut", "two", control_ + from("first"));
    EXPECT_EQ(weights("two") == weights("one"), true);
}

// A step of fp16 whose gradient overflows has none.
TEST_F(ControlVariateProgramTest, SkippedStepsDoNotCountAndMicroStepsAreOne) {
    const ControlFlags sgd = {
        "--steps",        "6", "--shuffle",       "off", "--optimizer",         "sgd", "--lr", "0.05",
        "--weight-decay", "0", "--max-grad-norm", "0.5", "--global-batch-size", "8"};
    const ControlFlags on = {"--control-variate", "1"};
    const auto expect_mean = [&](const std::string& out, double steps) {
        const Tensors w0 = model("w0"), moved = model(out);
        const Tensors mean = each_element(w0, moved, [&](double before, double after, const std::string&, std::size_t) {
            return (before - after) / 0.05 / steps;
        });
        double most = 0;
        for (const auto& [name, values] : mean)
            for (const float value : values) most = std::max(most, std::abs(static_cast<double>(value)));
        EXPECT_LT(largest_distance(own(out, w0), mean), most / 127 + 1e-5);
    };
    const auto ran =
        train_from("w0", "skipped",
                   sgd + on + ControlFlags{"--precision", "fp16", "--compute-dtype", "fp16", "--loss-scale", "1e7"});
    const double skipped = lines_of(ran.out).back().value("skipped_steps", -1.0);
    EXPECT_GE(skipped, 1);
    EXPECT_LE(skipped, 5);
    expect_mean("skipped", 6 - skipped);
    train_from("w0", "micro", sgd + on + ControlFlags{"--grad-accum", "4"});
    expect_mean("micro", 6);
}

TEST_F(ControlVariateProgramTest, ItGoesWithADeltaAndANewRunRemovesWhatWasThere) {
    const ControlFlags plain = {"train", "--model",   path("w0"),   "--data", path("data.safetensors"),
                                "--out", path("out"), "--overwrite"};
    ASSERT_EQ(run(plain + control_ + ControlFlags{"--update-format", "int4"}).exit_code, 0);
    const auto base_of = [&](const char* file) {
        return safetensors::File::open(path("out/") + file)->header().metadata.at("atoll.delta_base");
    };
    EXPECT_EQ(base_of(delta::kFile), base_of(delta::kControlVariateFile));
    ASSERT_EQ(run(plain + steps_).exit_code, 0);
    EXPECT_FALSE(fs::exists(own_file("out")));
    EXPECT_FALSE(fs::exists(kept_file("out")));
}

TEST_F(ControlVariateProgramTest, WhatMeansNothingIsRefused) {
    train_from("w0", "first", control_);
    expects_failure_ = true;
    expect_refused(train_from("w0", "first", control_ + from("first")), "is the same as --out");
    const auto refused = [&](const ControlFlags& flags, const std::string& words) {
        expect_refused(train_from("w0", "out", flags), words);
    };
    refused(control_ + ControlFlags{"--lora-rank", "2"}, "--control-variate: needs the gradients of a whole model");
    refused(control_ + ControlFlags{"--proximal-mu", "0.1"}, "--proximal-mu");
    refused(steps_ + ControlFlags{"--control-variate", "1.5"}, "--control-variate");
    refused(steps_ + ControlFlags{"--control-variate-name", "x"}, "means nothing without --control-variate");
    refused(steps_ + from("first"), "means nothing without --control-variate");
    refused(control_ + ControlFlags{"--control-variate-if-named", "x"}, "means nothing without --control-variate-from");
    refused(control_ + from("nowhere"), delta::kControlVariateFile);
    refused({"--steps", "0", "--control-variate", "1"}, "means nothing with --steps 0");
    refused(steps_ + ControlFlags{"--update-base", "x"}, "means nothing without --update-format or --control-variate");
}

}  // namespace
}  // namespace atl::program
