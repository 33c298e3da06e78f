#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/subprocess.h"

namespace atl::program {

inline constexpr const char* kAtOnce = "0.000001";  // a --time-limit that is over after the first step

// Runs atoll-trainer as a user does, on a tiny model with random weights and rows that it can learn.
class ProgramTest : public testing::Test {
  protected:
    ProgramTest();

    // Under mpirun when ranks > 1. A failure to start fails the test.
    CommandResult run(const std::vector<std::string>& arguments, int ranks = 1) const;
    // A program with what starts it before it, such as {"sh", "-c", "… exec \"$@\"", "sh"}. The same.
    static CommandResult run_under(std::vector<std::string> starter, const std::vector<std::string>& command);
    // `train` of `model` on `data` into `out` with further flags; without --resume in the place of an earlier one.
    std::vector<std::string> train_arguments(const std::string& out, const std::vector<std::string>& flags) const;
    CommandResult train(const std::string& out, const std::vector<std::string>& flags, int ranks = 1) const;
    // The run of tests/numerics/make_training_goldens.py, with further flags, and what transformers and torch make of
    // it: {"loss": [20], "grad_norm": [20]}.
    void make_golden_base() const;  // "golden", and its rows in "golden.safetensors"
    CommandResult train_golden(const std::vector<std::string>& flags, int ranks = 1) const;
    // Those rows in "unequal.safetensors", where of row r only the last 1 + 7 r mod 15 labels count.
    void write_unequal_rows() const;
    // Those rows in "shifted.safetensors", each label one place too early.
    void write_shifted_rows() const;
    nlohmann::json golden_steps() const;
    std::string golden_ = "training";                 // or "training/opt": where those are
    std::string golden_rows_ = "golden.safetensors";  // what train_golden trains on
    std::string golden_epsilon_ = "1e-8";
    // A model of 2 million weights in its largest unit.
    void make_wide_model(const std::string& out) const;
    // A run of 16 MB of weights takes the memory that `plan` says, to 5 % and 2 MB, and that is at least `bytes_min`.
    void expect_plan_holds(const std::vector<std::string>& flags, double bytes_min = 80e6) const;
    // A `train` is told the peak of its ranks, whose measurement would take longer than its steps: 0 asks for it.
    static std::vector<std::string> command(const std::vector<std::string>& arguments, int ranks);

    static constexpr const char* kHoldSkipped = "a sanitizer's own library must come first, not the one that holds";
    // Shell functions. `hold COMMAND…` runs COMMAND and holds it right after its first step line until there is
    // $LOG.go. `run_while CHANGE COMMAND…` does CHANGE meanwhile, and has COMMAND's exit code; its output is in $LOG.
    // Not for builds with a sanitizer: kHoldSkipped.
    static constexpr const char* kRunWhile = R"sh(holder=$(realpath ")sh" ATOLL_HOLD_AT_LINE R"sh(")
        hold() {
            LD_PRELOAD=$holder ATOLL_HOLD_AFTER='"step":' ATOLL_HOLD="$LOG" "$@"
        }
        run_while() {
            change=$1; shift
            rm -f "$LOG" "$LOG.here" "$LOG.go"
            hold "$@" >"$LOG" &
            until [ -e "$LOG.here" ]; do kill -0 $! || exit 79; sleep 0.01; done
            $change || exit 78
            : >"$LOG.go"
            wait $!
        }
        )sh";

    std::string path(const std::string& name) const { return (directory_.path() / name).string(); }
    std::string weights(const std::string& model) const;  // the bytes of its model.safetensors

    // A .safetensors file with int32 tensors [rows, seq_len].
    struct Tensor {
        std::string name;
        std::vector<std::int32_t> values;
    };
    void write_data(const std::string& name, std::int64_t seq_len, const std::vector<Tensor>& tensors) const;

    TemporaryDirectory directory_;
};

// The JSON lines of an output, and one member of each line that has it.
std::vector<nlohmann::json> lines_of(const std::string& out);
std::vector<double> member(const std::string& out, const std::string& name);

}  // namespace atl::program
