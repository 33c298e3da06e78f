// FedProx's term as users train with it, against the formula in fp64.

#include <cmath>
#include <cstring>
#include <map>

#include "shared/safetensors/file.h"
#include "trainer/program/testing/program_fixture.h"

namespace atl::program {
namespace {

using Values = std::map<std::string, std::vector<double>>;

constexpr double kRate = 0.5, kMu = 0.3, kNormMax = 0.25;
constexpr int kRowsOfData = 32;  // so that each step takes the same rows

Values read_values(const std::string& file) {
    const auto opened = safetensors::File::open(file);
    EXPECT_TRUE(opened.ok()) << file;
    Values values;
    if (!opened.ok()) return values;
    for (const auto& tensor : opened->header().tensors) {
        const auto bytes = opened->bytes(tensor);
        std::vector<float> floats(bytes.size() / sizeof(float));
        std::memcpy(floats.data(), bytes.data(), bytes.size());
        values[tensor.name].assign(floats.begin(), floats.end());
    }
    return values;
}

// combine(a, b, c) of all elements.
template <class Combine>
Values combined(const Values& a, const Values& b, const Values& c, const Combine& combine) {
    Values out = a;
    for (auto& [name, values] : out) {
        for (std::size_t i = 0; i < values.size(); ++i)
            values[i] = combine(a.at(name)[i], b.at(name)[i], c.at(name)[i]);
    }
    return out;
}

double norm_of(const Values& all) {
    double squares = 0;
    for (const auto& [name, values] : all)
        for (const double value : values) squares += value * value;
    return std::sqrt(squares);
}

double largest_difference(const Values& a, const Values& b) {
    double largest = 0;
    for (const auto& [name, values] : a) {
        for (std::size_t i = 0; i < values.size(); ++i) {
            const double difference = std::abs(values[i] - b.at(name)[i]);
            if (!(difference <= largest)) largest = difference;  // also of what is no number
        }
    }
    return largest;
}

class ProximalProgramTest : public ProgramTest {
  protected:
    ProximalProgramTest() {
        EXPECT_EQ(run({"init", "--config", path("config.json"), "--out", path("w0"), "--seed", "1", "--dtype", "fp32"})
                      .exit_code,
                  0);
    }

    // SGD on all rows; `from` names what is trained on.
    CommandResult train_sgd(const std::string& out, int steps, const std::vector<std::string>& from,
                            const std::vector<std::string>& more = {}) const {
        std::vector<std::string> arguments = {"train",
                                              "--data",
                                              path("data.safetensors"),
                                              "--out",
                                              path(out),
                                              "--steps",
                                              std::to_string(steps),
                                              "--lr",
                                              "0.5",
                                              "--global-batch-size",
                                              "32",
                                              "--shuffle",
                                              "off",
                                              "--optimizer",
                                              "sgd",
                                              "--weight-decay",
                                              "0",
                                              "--threads",
                                              "1",
                                              "--overwrite",
                                              "--save-dtype",
                                              "fp32"};
        arguments.insert(arguments.end(), from.begin(), from.end());
        arguments.insert(arguments.end(), more.begin(), more.end());
        auto result = run(arguments);
        EXPECT_EQ(result.exit_code, 0) << result.err;
        return result;
    }

    // Each step of a run with the term is that of a run of one step without it, from the same weights, whose gradient
    // has mu (w − w₀) added before it is clipped. `from(directory)` trains on the result in it.
    template <class From>
    void expect_formula(const std::string& start, const std::string& file, const From& from) const {
        const Values w0 = read_values(path(start) + file);
        std::string before = start;
        for (int step = 1; step <= 3; ++step) {
            const std::string after = "w" + std::to_string(step);
            const auto pulled = train_sgd(after, step, from(start),
                                          {"--proximal-mu", "0.3", "--max-grad-norm", std::to_string(kNormMax)});
            const auto plain = train_sgd("plain", 1, from(before), {"--max-grad-norm", "0"});
            const Values w = read_values(path(before) + file), moved = read_values(path("plain") + file);
            const Values gradient =
                combined(w, moved, w0, [](double x, double y, double x0) { return (x - y) / kRate + kMu * (x - x0); });
            const double norm = norm_of(gradient), factor = std::min(1.0, kNormMax / (norm + 1e-6));
            const Values wanted =
                combined(w, gradient, w0, [&](double x, double g, double) { return x - kRate * factor * g; });
            EXPECT_LT(largest_difference(read_values(path(after) + file), wanted), 1e-6) << "step " << step;
            EXPECT_NEAR(member(pulled.out, "grad_norm").back() / norm, 1, 1e-5) << "step " << step;
            EXPECT_EQ(member(pulled.out, "loss")[static_cast<std::size_t>(step) - 1], member(plain.out, "loss")[0])
                << "the loss is that of the data alone";
            before = after;
        }
        train_sgd("free", 3, from(start), {"--max-grad-norm", std::to_string(kNormMax)});
        EXPECT_GT(largest_difference(read_values(path("free") + file), read_values(path("w3") + file)), 1e-4)
            << "the term is large enough to be seen";
    }
};

TEST_F(ProximalProgramTest, EachStepIsThatOfTheFormulaInFp64) {
    expect_formula("w0", "/model.safetensors",
                   [&](const std::string& model) { return std::vector<std::string>{"--model", path(model)}; });
}

TEST_F(ProximalProgramTest, OfAdaptersItHoldsThoseAloneThatTrain) {
    train_sgd("a0", 2, {"--model", path("w0"), "--lora-rank", "2"});  // so that neither of A and B is zero
    expect_formula("a0", "/adapter_model.safetensors", [&](const std::string& adapter) {
        return std::vector<std::string>{"--model", path("w0"), "--adapter", path(adapter)};
    });
}

TEST_F(ProximalProgramTest, AResumedRunIsPulledTowardsTheModelItBeganWith) {
    const auto flags = [](const std::vector<std::string>& more) {
        std::vector<std::string> all = {"--steps", "4", "--global-batch-size", "4", "--lr", "3e-2", "--deterministic"};
        all.insert(all.end(), more.begin(), more.end());
        return all;
    };
    for (const std::string precision : {"fp32", "bf16"}) {
        const auto whole = train("whole", flags({"--proximal-mu", "2", "--precision", precision}));
        ASSERT_EQ(whole.exit_code, 0) << whole.err;
        ASSERT_EQ(
            train("out", flags({"--proximal-mu", "2", "--precision", precision, "--time-limit", kAtOnce})).exit_code,
            0);
        const auto rest = train("out",
                                flags({"--proximal-mu", "2", "--precision", precision, "--resume", "--sharding",
                                       "full_shard", "--offload-optimizer", "nvme", "--offload-dir", path("")}),
                                2);
        ASSERT_EQ(rest.exit_code, 0) << rest.err;
        EXPECT_EQ(member(rest.out, "grad_norm").back(), member(whole.out, "grad_norm").back());
        EXPECT_EQ(weights("out") == weights("whole"), true);
    }
    ASSERT_EQ(train("out", flags({"--proximal-mu", "2", "--time-limit", kAtOnce})).exit_code, 0);
    const auto other = train("out", flags({"--proximal-mu", "1", "--resume"}));
    EXPECT_EQ(other.exit_code, 2);
    EXPECT_NE(other.err.find("--proximal-mu 2.0 (now 1.0)"), std::string::npos) << other.err;
}

// In fp16 gradients are those of the loss times a scale, by which the term is multiplied too.
TEST_F(ProximalProgramTest, TheScaleOfTheLossChangesNoBit) {
    const auto scaled = [&](const char* out, const char* scale) {
        const auto result = train(out, {"--steps", "4", "--global-batch-size", "4", "--lr", "3e-2", "--proximal-mu",
                                        "2", "--precision", "fp16", "--loss-scale", scale});
        EXPECT_EQ(result.exit_code, 0) << result.err;
        return member(result.out, "grad_norm");
    };
    EXPECT_EQ(scaled("one", "256"), scaled("two", "1024"));
    EXPECT_EQ(weights("one") == weights("two"), true);
}

}  // namespace
}  // namespace atl::program
