#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "shared/json/json.h"

// Everything that a site says in JSON is read here and nowhere else, into records of known members: numbers are finite
// and in their range, texts are of a known form. What these records hold can be kept, summed and shown; a site can put
// nothing else into a row, an event or a message.
namespace atl::dispatch {

// A loss of fewer target tokens is not published: it would spell out a site's text, token by token, to whoever compares
// it with the model's own. The trainer prints none, and what a site prints all the same is dropped.
constexpr std::int64_t kLossTokensMin = 64;

// What a training prints after a step. Members that it does not have, or that are not what they should be, are left
// out: they are shown and nothing depends on them.
struct StepLine {
    std::int64_t step = 0;
    std::optional<double> time_unix_s;  // when it ended, by the site's clock
    std::optional<double> loss;
    std::optional<std::int64_t> loss_tokens;  // which it is the mean over
    std::optional<double> lr;
    std::optional<double> grad_norm;
    std::optional<double> loss_scale;
    std::optional<double> step_s;
    std::optional<double> tokens_per_s;
    std::optional<double> mfu;
    std::optional<double> hfu;
    std::optional<std::int64_t> peak_bytes;
    std::optional<double> exposed_comm_s;  // seconds of the step in which a rank only waited for others
    std::optional<double> eta_s;           // what the steps that are left are likely to take
    std::optional<double> val_loss;        // of a validation after the step
    std::optional<double> val_perplexity;
    std::optional<std::int64_t> val_tokens;
};

// What a training prints at its end.
struct SummaryLine {
    bool resumable = false;  // it stopped for time: another run goes on from its state
    std::optional<std::int64_t> steps;
    std::optional<std::int64_t> samples;
    std::optional<std::int64_t> tokens;
    std::optional<double> loss;
    std::optional<double> tokens_per_s;
    std::optional<double> wall_s;
    std::optional<std::int64_t> earlier_updates;  // of the optimizer that it began with
    std::optional<bool> optimizer_anew;           // true: that which its site had kept could not be used
    std::optional<bool> rounding_error_anew;      // true: the same of what rounding its update before had lost
    std::optional<bool> control_variate_anew;     // true: the same of its own control variate of the round before
};

// What an evaluation prints of one model, or its batch script of one that could not be evaluated.
struct EvaluationLine {
    std::optional<std::int64_t> failed_with;  // the exit code: there is no result
    std::optional<std::int64_t> place;        // whose it is, from 0; nothing: the next model's
    std::optional<double> loss;
    std::optional<double> perplexity;  // nothing: too large for a number
    std::optional<std::int64_t> tokens;
};

// A line of a program's standard output; std::monostate and nullopt: it is none of these, as whatever else a site's
// programs print. kInvalidArgument naming the member: it is one of these, and the member cannot be what it says.
using TrainingLine = std::variant<std::monostate, StepLine, SummaryLine>;
Result<TrainingLine> read_training_line(std::string_view line);
Result<std::optional<EvaluationLine>> read_evaluation_line(std::string_view line);

// As they are kept, with the names of the trainer's members; what is not there is left out. parse_* of it gives the
// same again, and nothing where a row holds something else.
json::Json to_json(const StepLine& line);
json::Json to_json(const SummaryLine& line);
json::Json to_json(const EvaluationLine& line);
std::optional<StepLine> parse_step_line(const json::Json& value);
std::optional<SummaryLine> parse_summary_line(const json::Json& value);
std::optional<EvaluationLine> parse_evaluation_line(const json::Json& value);

// An update's numbers, for the version and for people.
json::Json update_metrics(const SummaryLine& summary);

// The status in an attempt's end.json. What is none of ours says only that the attempt ended, and not well: 1.
std::int64_t read_exit_code(std::string_view text);
constexpr std::size_t kEndRecordBytesMax = 4 << 10;

// A transfer that goes on, and how far it is; zeros where that is not known.
struct Moving {
    std::int64_t bytes_done = 0;
    std::int64_t bytes_total = 0;
    std::optional<std::int64_t> next_in_ms{};  // when it is looked at again; nothing: as other work is
};

// What a staging has come to.
struct StageAnswer {
    std::optional<Moving> moving{};  // nothing: everything is there,
    std::int64_t bytes = 0;          // of which so many were brought for this attempt
};

// What `atoll push` says of the update that it was to hand in.
struct PushAnswer {
    std::string digest;              // of the version that it is now,
    std::optional<Error> error;      // or why it is none,
    bool is_refused = false;         // and never will be;
    std::optional<Moving> moving{};  // or it has not come to an end
};
// Nothing: it did not come to say anything.
std::optional<PushAnswer> read_push_answer(std::string_view out);

}  // namespace atl::dispatch
