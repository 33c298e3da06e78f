// Trainings whose weights are stored in bf16 and fp16, step by step and weight by weight, against those of
// tests/numerics/make_storage_goldens.py.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>

#include "shared/safetensors/file.h"
#include "tests/numerics/golden.h"
#include "trainer/program/testing/program_fixture.h"

namespace atl::program {
namespace {

// Relative: of the losses the root of the mean square over the steps, of all masters together L2. One loss may be
// further off where a weight between two values of the format was rounded to the other one.
constexpr double kTolerance = 1e-5;

class StorageGoldenTest : public ProgramTest {
  protected:
    StorageGoldenTest() { golden_epsilon_ = "1e-2"; }

    nlohmann::json golden(const std::string& precision) const {
        const auto text = read_file(std::filesystem::path(ATOLL_GOLDEN_DIR) / "storage" / (precision + ".json"));
        EXPECT_TRUE(text.ok());
        return nlohmann::json::parse(text.ok() ? *text : "{}");
    }

    // The golden run with further flags; what it saves are the masters.
    CommandResult train_as_golden(std::vector<std::string> flags) const {
        flags.insert(flags.end(), {"--save-dtype", "fp32"});
        return train_golden(flags);
    }

    // |masters − the golden's| / |the golden's|, of the sketches of all parameters together.
    double distance_of_masters(const nlohmann::json& golden) const {
        const auto file = safetensors::File::open(path("out") + "/model.safetensors");
        EXPECT_TRUE(file.ok());
        std::vector<float> ours, wanted;
        for (const auto& [name, sums] : golden["masters"].items()) {
            const auto* const tensor = file->header().find(name);
            EXPECT_NE(tensor, nullptr) << name;
            if (tensor == nullptr) continue;
            const auto bytes = file->bytes(*tensor);
            std::vector<float> values(bytes.size() / sizeof(float));
            std::memcpy(values.data(), bytes.data(), bytes.size());
            std::ranges::copy(numerics::sketch(name, values, sums.size()), std::back_inserter(ours));
            std::ranges::copy(sums.get<std::vector<float>>(), std::back_inserter(wanted));
        }
        return numerics::relative_l2(ours, wanted);
    }
};

double distance_of_losses(const std::vector<double>& losses, const nlohmann::json& golden) {
    const auto wanted = golden["loss"].get<std::vector<double>>();
    double squares = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) squares += std::pow(losses.at(i) / wanted[i] - 1, 2);
    return std::sqrt(squares / static_cast<double>(wanted.size()));
}

TEST_F(StorageGoldenTest, LossesAndMastersAreThoseOfPyTorch) {
    for (const std::string precision : {"bf16", "fp16"}) {
        const nlohmann::json golden = this->golden(precision);
        const auto result = train_as_golden({"--precision", precision});
        ASSERT_EQ(result.exit_code, 0) << result.err;
        EXPECT_LE(distance_of_losses(member(result.out, "loss"), golden), kTolerance) << precision;
        EXPECT_LE(distance_of_masters(golden), kTolerance) << precision;
    }
}

// Controls: what must not pass, to show that the tolerances can tell.

TEST_F(StorageGoldenTest, WhatKeepsNoMastersIsFarOff) {
    for (const std::string precision : {"bf16", "fp16"}) {
        const nlohmann::json golden = this->golden(precision), control = golden["no_masters"];
        EXPECT_GT(distance_of_losses(control["loss"].get<std::vector<double>>(), golden), 3 * kTolerance) << precision;
        EXPECT_GT(control["distance_of_masters"].get<double>(), 50 * kTolerance) << precision;
    }
    const nlohmann::json golden = this->golden("bf16");
    const auto result = train_as_golden({"--precision", "bf16", "--masters", "none"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_GT(distance_of_losses(member(result.out, "loss"), golden), 10 * kTolerance);
    EXPECT_GT(distance_of_masters(golden), 100 * kTolerance);
}

TEST_F(StorageGoldenTest, MomentsInBf16AreFarOff) {
    for (const std::string precision : {"bf16", "fp16"}) {
        const nlohmann::json golden = this->golden(precision);
        EXPECT_GT(golden["moments"]["distance_of_masters"].get<double>(), 5 * kTolerance) << precision;
        const auto result = train_as_golden({"--precision", precision, "--moments-dtype", "bf16"});
        ASSERT_EQ(result.exit_code, 0) << result.err;
        EXPECT_GT(distance_of_masters(golden), 5 * kTolerance) << precision;
    }
}

TEST_F(StorageGoldenTest, WeightsInFp32AreFarOff) {
    const auto result = train_as_golden({});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_GT(distance_of_losses(member(result.out, "loss"), golden("bf16")), 10 * kTolerance);
}

}  // namespace
}  // namespace atl::program
