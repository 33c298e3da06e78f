// Trainings that write the change of the weights instead of the weights.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>

#include "shared/delta/base_digest.h"
#include "shared/delta/delta.h"
#include "shared/safetensors/file.h"
#include "trainer/program/testing/program_fixture.h"
#include "trainer/weights/adapter.h"
#include "trainer/weights/rounding_error.h"
#include "trainer/weights/storage.h"

namespace atl::program {
namespace {

namespace fs = std::filesystem;

using DeltaFlags = std::vector<std::string>;
using Values = std::map<std::string, std::vector<float>>;  // of tensors

DeltaFlags operator+(DeltaFlags flags, const DeltaFlags& more) {
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
}

class DeltaProgramTest : public ProgramTest {
  protected:
    const DeltaFlags steps_ = {"--steps", "3", "--global-batch-size", "4", "--lr", "0.05", "--deterministic"};
    const DeltaFlags int4_ = steps_ + DeltaFlags{"--update-format", "int4"};

    DeltaFlags from(const std::string& out) const { return {"--rounding-error-from", path(out)}; }
    std::string delta_of(const std::string& out) const { return read_file(path(out) + "/" + delta::kFile).value(); }
    std::string error_file(const std::string& out) const { return path(out + ".state/") + weights::kRoundingErrorFile; }
    // As fp32; a delta's are the changes.
    static Values values_in(const std::string& file, const Values& like = {}) {
        Values all;
        const auto opened = safetensors::File::open(file);
        EXPECT_TRUE(opened.ok()) << opened.error().message;
        const auto said = delta::describe(opened->header());
        for (const auto& tensor : opened->header().tensors) {
            const auto bytes = opened->bytes(tensor);
            std::vector<float>& values = all[tensor.name];
            if (said.ok()) {
                values.resize(like.at(tensor.name).size());
                delta::add_changes(said->format, bytes, 0, values);
            } else if (tensor.dtype != safetensors::DType::kU8) {
                values.resize(static_cast<std::size_t>(tensor.element_count()));
                EXPECT_TRUE(weights::widen(tensor.dtype, bytes, values));
            }
        }
        return all;
    }
    Values changes_in(const std::string& out, const Values& like) const {
        return values_in(path(out) + "/" + delta::kFile, like);
    }
    Values error_in(const std::string& out) const {
        Values values = values_in(error_file(out));
        values.erase("sha256");
        return values;
    }
    Values model(const std::string& out) const { return values_in(path(out) + "/model.safetensors"); }
    static double largest(const std::vector<float>& values) {
        double most = 0;
        for (const float value : values) most = std::max(most, std::abs(static_cast<double>(value)));
        return most;
    }
};

TEST_F(DeltaProgramTest, ADeltaAndWhatRoundingLostAreTheChangeOfTheWeights) {
    const Values base = model("model");
    ASSERT_EQ(train("whole", steps_ + DeltaFlags{"--save-dtype", "fp32"}).exit_code, 0);
    const Values whole = model("whole");
    for (const auto& [format, steps] : {std::pair{"int8", 127.0}, {"int4", 7.0}}) {
        SCOPED_TRACE(format);
        const auto ran = train("delta", steps_ + DeltaFlags{"--update-format", format});
        ASSERT_EQ(ran.exit_code, 0) << ran.err;
        EXPECT_FALSE(fs::exists(path("delta/model.safetensors")));
        EXPECT_TRUE(fs::exists(path("delta/config.json")));
        const Values changes = changes_in("delta", base), errors = error_in("delta");
        ASSERT_EQ(changes.size(), base.size());
        for (const auto& [name, values] : base) {
            std::vector<float> exact;
            for (std::size_t i = 0; i < values.size(); ++i) exact.push_back(whole.at(name)[i] - values[i]);
            EXPECT_GT(largest(exact), 0) << name;
            EXPECT_LE(largest(errors.at(name)), 0.5001 * largest(exact) / steps) << name;
            for (std::size_t i = 0; i < values.size(); ++i)
                ASSERT_NEAR(changes.at(name)[i] + errors.at(name)[i], exact[i], 1e-6) << name;
        }
    }
}

TEST_F(DeltaProgramTest, ItSaysOfWhatItIsAChangeAndIsTheSameOnAnyNumberOfRanks) {
    ASSERT_EQ(train("one", int4_).exit_code, 0);
    const auto opened = safetensors::Model::open(path("model"));
    const auto header = safetensors::File::open(path("one") + "/" + delta::kFile)->header();
    EXPECT_EQ(delta::describe(header)->base, delta::model_sha256(*opened).value());
    const auto ran = train("four", int4_ + DeltaFlags{"--sharding", "full_shard"}, 4);
    ASSERT_EQ(ran.exit_code, 0) << ran.err;
    EXPECT_EQ(delta_of("four") == delta_of("one"), true);
    EXPECT_EQ(read_file(error_file("four")).value() == read_file(error_file("one")).value(), true);
    ASSERT_EQ(train("named", int4_ + DeltaFlags{"--update-base", "abcd"}).exit_code, 0);
    EXPECT_EQ(delta::describe(safetensors::File::open(path("named") + "/" + delta::kFile)->header())->base, "abcd");
}

TEST_F(DeltaProgramTest, WhatRoundingLostIsAddedToTheNextChange) {
    const Values base = model("model");
    const DeltaFlags still = {"--steps", "0", "--update-format", "int4"};
    ASSERT_EQ(train("first", int4_).exit_code, 0);
    ASSERT_EQ(train("second", still + from("first")).exit_code, 0);
    const Values lost = error_in("first"), changes = changes_in("second", base), left = error_in("second");
    for (const auto& [name, values] : lost) {
        EXPECT_GT(largest(values), 0) << name;
        for (std::size_t i = 0; i < values.size(); ++i)
            ASSERT_NEAR(changes.at(name)[i] + left.at(name)[i], values[i], 1e-7) << name;
    }
    ASSERT_EQ(train("alone", still).exit_code, 0);
    for (const auto& [name, values] : changes_in("alone", base)) EXPECT_EQ(largest(values), 0) << name;
}

TEST_F(DeltaProgramTest, WhatDoesNotFitIsRefusedOrLeftOutWithAWarning) {
    ASSERT_EQ(train("first", int4_ + DeltaFlags{"--rounding-error-name", "round 1"}).exit_code, 0);
    ASSERT_EQ(train("without", int4_).exit_code, 0);
    const auto expect_anew = [&](const std::string& why, const std::string& name = "round 1") {
        SCOPED_TRACE(why);
        const auto refused = train("second", int4_ + from("first"));
        EXPECT_EQ(refused.exit_code == 0, name != "round 1") << "by hand it is an error";
        const auto ran = train("second", int4_ + from("first") + DeltaFlags{"--rounding-error-if-named", name}, 2);
        EXPECT_EQ(ran.exit_code, 0) << ran.err;
        EXPECT_NE(ran.err.find("the rounding error of the earlier run is not added: "), std::string::npos) << ran.err;
        EXPECT_NE(ran.err.find(why), std::string::npos) << ran.err;
        EXPECT_NE(ran.out.find("\"rounding_error_anew\":true"), std::string::npos) << ran.out;
        EXPECT_EQ(delta_of("second") == delta_of("without"), true);
    };
    const auto taken = train("second", int4_ + from("first") + DeltaFlags{"--rounding-error-if-named", "round 1"});
    ASSERT_EQ(taken.exit_code, 0) << taken.err;
    EXPECT_EQ(taken.out.find("rounding_error_anew"), std::string::npos) << taken.out;
    EXPECT_EQ(delta_of("second") == delta_of("without"), false);
    expect_anew("is that of 'round 1', not of 'round 2'", "round 2");

    const std::string bytes = read_file(error_file("first")).value();
    std::string flipped = bytes;
    flipped[flipped.size() / 2] ^= 1;
    ASSERT_TRUE(write_file_atomic(error_file("first"), flipped).ok());
    expect_anew("is damaged");
    ASSERT_TRUE(write_file_atomic(error_file("first"), bytes.substr(0, bytes.size() / 2)).ok());
    expect_anew(weights::kRoundingErrorFile);
    make_wide_model("wide");
    ASSERT_EQ(run({"train", "--model", path("wide"), "--data", path("data.safetensors"), "--out", path("other"),
                   "--steps", "0", "--update-format", "int4", "--rounding-error-name", "round 1"})
                  .exit_code,
              0);
    ASSERT_TRUE(write_file_atomic(error_file("first"), read_file(error_file("other")).value()).ok());
    expect_anew("is of another model");
    fs::remove(error_file("first"));
    expect_anew(weights::kRoundingErrorFile);
    const auto itself = train("first", int4_ + from("first"));
    EXPECT_EQ(itself.exit_code, 2);
    EXPECT_NE(itself.err.find("is the same as --out"), std::string::npos) << itself.err;
}

TEST_F(DeltaProgramTest, AStoppedRunGoesOnToTheSameDelta) {
    ASSERT_EQ(train("first", int4_).exit_code, 0);
    ASSERT_EQ(train("whole", int4_ + from("first")).exit_code, 0);
    ASSERT_EQ(train("second", int4_ + from("first") + DeltaFlags{"--time-limit", kAtOnce}).exit_code, 0);
    EXPECT_FALSE(fs::exists(path("second/") + delta::kFile));
    const auto rest = train("second", int4_ + from("first") + DeltaFlags{"--resume"});
    ASSERT_EQ(rest.exit_code, 0) << rest.err;
    EXPECT_EQ(delta_of("second") == delta_of("whole"), true);
    EXPECT_EQ(read_file(error_file("second")).value() == read_file(error_file("whole")).value(), true);
    const auto again = train("second", int4_ + from("first") + DeltaFlags{"--resume"});
    EXPECT_NE(again.out.find("already_finished"), std::string::npos) << again.out << again.err;
    const auto other = train("second", steps_ + DeltaFlags{"--update-format", "int8", "--resume"});
    EXPECT_EQ(other.exit_code, 2) << "another result: " << other.err;
}

TEST_F(DeltaProgramTest, AModelAndADeltaReplaceEachOther) {
    ASSERT_EQ(train("out", steps_).exit_code, 0);
    ASSERT_EQ(train("out", int4_).exit_code, 0);
    EXPECT_FALSE(fs::exists(path("out/model.safetensors")));
    ASSERT_EQ(train("out", steps_).exit_code, 0);
    EXPECT_FALSE(fs::exists(path("out/") + delta::kFile));
    EXPECT_FALSE(fs::exists(error_file("out")));
}

TEST_F(DeltaProgramTest, OfAnAdapterTheChangeFromTheOneItBeganWithIsWritten) {
    const DeltaFlags lora = {"--lora-rank", "2"};
    ASSERT_EQ(train("adapter", steps_ + lora).exit_code, 0);
    const auto anew = train("out", int4_ + lora);
    EXPECT_EQ(anew.exit_code, 2);
    EXPECT_NE(anew.err.find("needs --adapter"), std::string::npos) << anew.err;
    const DeltaFlags on = {"--adapter", path("adapter")};
    ASSERT_EQ(train("whole", steps_ + on + DeltaFlags{"--save-dtype", "fp32"}).exit_code, 0);
    const auto ran = train("out", int4_ + on);
    ASSERT_EQ(ran.exit_code, 0) << ran.err;
    EXPECT_TRUE(fs::exists(path("out/adapter_config.json")));
    const auto base = values_in(path("adapter/adapter_model.safetensors"));
    const auto whole = values_in(path("whole/adapter_model.safetensors"));
    const Values changes = changes_in("out", base), errors = error_in("out");
    for (const auto& [name, values] : base)
        for (std::size_t i = 0; i < values.size(); ++i)
            ASSERT_NEAR(changes.at(name)[i] + errors.at(name)[i], whole.at(name)[i] - values[i], 1e-6) << name;
    const auto header = safetensors::File::open(path("out/") + delta::kFile)->header();
    EXPECT_EQ(
        delta::describe(header)->base,
        delta::model_sha256(safetensors::Model::open_file(path("adapter/adapter_model.safetensors")).value()).value());
    EXPECT_TRUE(header.metadata.contains("atoll.base_sha256"));
    ASSERT_EQ(train("out", int4_ + on).exit_code, 0) << "in its own place";
}

TEST_F(DeltaProgramTest, WhatMeansNothingIsRefused) {
    const auto refused = [&](const DeltaFlags& flags, const std::string& words) {
        const auto ran = train("out", flags);
        EXPECT_EQ(ran.exit_code, 2);
        EXPECT_NE(ran.err.find(words), std::string::npos) << ran.err;
    };
    refused(int4_ + DeltaFlags{"--save-dtype", "fp32"}, "--save-dtype");
    refused(steps_ + DeltaFlags{"--update-base", "x"}, "--update-base");
    refused(steps_ + DeltaFlags{"--rounding-error-name", "x"}, "--rounding-error-name");
    refused(int4_ + DeltaFlags{"--rounding-error-if-named", "x"}, "--rounding-error-if-named");
    refused(int4_ + from("nowhere"), weights::kRoundingErrorFile);
    refused(steps_ + DeltaFlags{"--update-format", "int2"}, "--update-format");
}

}  // namespace
}  // namespace atl::program
