#pragma once

#include <cstdint>
#include <optional>
#include <string>

// What a run writes to standard output, a line of JSON each.
namespace atl::train {

// What a step tells. trainer/README.md says how each number is measured.
struct StepMetrics {
    std::int64_t step = 0;
    // Nothing, printed as null: no row of the step has a target, and no weight changed; or the loss is told later, with
    // that of the next steps.
    std::optional<double> loss;
    std::int64_t loss_tokens = 0;  // the loss is the mean over these
    double learning_rate = 0;
    double gradient_norm =
        0;  // before clipping; not finite, printed as null, in a step that was skipped or too small to be told
    double loss_scale = 0;  // of the step's backward pass; 0: an fp32 or bf16 run, not printed
    double step_s = 0;      // of the slowest rank
    double tokens_per_s = 0;
    double samples_per_s = 0;
    double tflops = 0;  // of one rank
    double mfu = 0;     // 0: unknown; this and what is above 1, a peak measured too low, is printed as null
    double hfu = 0;
    std::int64_t peak_bytes = 0;
    double exposed_comm_s = 0;
    double time_unix_s = 0;  // when its values were known, by rank 0's clock
    double eta_s = 0;        // what the steps after this one are likely to take
};

struct Summary {
    std::int64_t steps = 0;
    std::int64_t samples = 0;
    std::int64_t tokens = 0;
    std::optional<double> loss;        // token-weighted mean of all losses that were told; nothing: none was
    std::optional<double> final_loss;  // the last of them
    double tokens_per_s = 0;
    double wall_s = 0;
    double peak_tflops = 0;  // of one rank, that mfu was taken of; 0: unknown, printed as null
    std::int64_t peak_bytes = 0;
    std::int64_t best_step = 0;  // after which the model of --save-best was kept, and its loss; 0: not printed
    double best_val_loss = 0;
    bool resumable = false;
    double loss_scale = 0;             // as it stands now; 0: not printed
    std::int64_t skipped_steps = 0;    // printed with it, or when there are any
    std::int64_t earlier_updates = 0;  // of which the optimizer had moments when the run began; 0: not printed
    bool optimizer_anew = false;       // there should have been some; printed if true
    // What rounding lost of the change before should have been added to this one, and was not; printed if true.
    bool rounding_error_anew = false;
    bool control_variate_anew = false;  // the site's own of the round before was asked for and not used; likewise
};

struct Perplexity {
    double loss = 0;
    double perplexity = 0;
    std::int64_t tokens = 0;
};
Perplexity compute_perplexity(double loss_sum, double tokens);  // of at least one token

// One JSON line each, without the newline.
std::string to_json_line(const StepMetrics& metrics);
std::string to_json_line(const Summary& summary);
std::string to_json_line(const Perplexity& perplexity);                     // of `eval`
std::string to_json_line(std::int64_t step, const Perplexity& perplexity);  // of a validation during training

// Of a run that stopped for time: {"exit_code": 0, "out": "trained", …}. `out` is the name of its --out, by which it is
// told from the others beside it.
std::string to_exit_json(const Summary& summary, const std::string& out);
bool is_exit_json_of(const std::string& text, const std::string& out);

void print_line(const std::string& line);  // to standard output, flushed

}  // namespace atl::train
