#include "services/dispatch/domain/site_output.h"

#include <cmath>

#include "shared/digest/digest.h"
#include "shared/site/hand_in.h"

namespace atl::dispatch {
namespace {

using json::Json;

constexpr std::int64_t kExitCodeMax = 255;
constexpr std::size_t kLineBytesMax = 16 << 10;  // the trainer's have some 300
constexpr std::size_t kPushBytesMax = 16 << 10;
constexpr int kDepthMax = 8;
constexpr std::int64_t kCountMax = std::int64_t{1} << 53;  // exact as a double, as JavaScript reads it

bool is_count(const Json& value) {
    // As unsigned, what is beyond the signed ones is not below 0.
    if (value.is_number_unsigned()) return value.get<std::uint64_t>() <= static_cast<std::uint64_t>(kCountMax);
    return value.is_number_integer() && value.get<std::int64_t>() >= 0 && value.get<std::int64_t>() <= kCountMax;
}

bool is_finite_number(const Json& value) {
    return value.is_number() && std::isfinite(value.get<double>());
}

// Takes members of a JSON object that are what they should be; the first that is not is the fault. null counts as
// absent: so the trainer prints what it does not know.
class MemberReader {
  public:
    explicit MemberReader(const Json& object) : object_(object) {}

    void operator()(const char* key, std::int64_t& into) {
        if (const Json* value = find(key, &is_count, "an integer from 0 to 2^53")) into = value->get<std::int64_t>();
    }
    void operator()(const char* key, std::optional<std::int64_t>& into) {
        if (const Json* value = find(key, &is_count, "an integer from 0 to 2^53")) into = value->get<std::int64_t>();
    }
    void operator()(const char* key, std::optional<double>& into) {
        if (const Json* value = find(key, &is_finite_number, "a number or null")) into = value->get<double>();
    }
    void operator()(const char* key, bool& into) {
        const auto is_boolean = [](const Json& value) { return value.is_boolean(); };
        if (const Json* value = find(key, is_boolean, "true or false")) into = value->get<bool>();
    }
    void operator()(const char* key, std::optional<bool>& into) {
        bool value = false;
        (*this)(key, value);
        if (value) into = value;
    }
    const Status& status() const { return status_; }

  private:
    const Json* find(const char* key, bool (*is_good)(const Json&), const char* what) {
        const auto found = object_.find(key);
        if (found == object_.end() || found->is_null()) return nullptr;
        if (is_good(*found)) return &*found;
        if (status_.ok()) status_ = invalid_argument(key, std::string("must be ") + what);
        return nullptr;
    }

    const Json& object_;
    Status status_;
};

class MemberWriter {
  public:
    explicit MemberWriter(Json& object) : object_(object) {}

    template <class T>
    void operator()(const char* key, const T& value) {
        object_[key] = value;
    }
    template <class T>
    void operator()(const char* key, const std::optional<T>& value) {
        if (value) object_[key] = *value;
    }

  private:
    Json& object_;
};

// The members of a line under their names, for the reader and for the writer. `Line` is const or not.
template <class Line, class Visitor>
void visit_step(Line& line, Visitor& visit) {
    visit("step", line.step);
    visit("time_unix_s", line.time_unix_s);
    visit("loss", line.loss);
    visit("loss_tokens", line.loss_tokens);
    visit("lr", line.lr);
    visit("grad_norm", line.grad_norm);
    visit("loss_scale", line.loss_scale);
    visit("step_s", line.step_s);
    visit("tokens_per_s", line.tokens_per_s);
    visit("mfu", line.mfu);
    visit("hfu", line.hfu);
    visit("peak_bytes", line.peak_bytes);
    visit("exposed_comm_s", line.exposed_comm_s);
    visit("eta_s", line.eta_s);
    visit("val_loss", line.val_loss);
    visit("val_perplexity", line.val_perplexity);
    visit("val_tokens", line.val_tokens);
}

// What becomes an update's metrics.
template <class Line, class Visitor>
void visit_metrics(Line& line, Visitor& visit) {
    visit("steps", line.steps);
    visit("samples", line.samples);
    visit("tokens", line.tokens);
    visit("loss", line.loss);
    visit("tokens_per_s", line.tokens_per_s);
    visit("wall_s", line.wall_s);
    visit("earlier_updates", line.earlier_updates);
    visit("optimizer_anew", line.optimizer_anew);
    visit("rounding_error_anew", line.rounding_error_anew);
    visit("control_variate_anew", line.control_variate_anew);
}

template <class Line, class Visitor>
void visit_evaluation(Line& line, Visitor& visit) {
    visit("loss", line.loss);
    visit("perplexity", line.perplexity);
    visit("tokens", line.tokens);
    visit("failed_with", line.failed_with);
    visit("place", line.place);
}

bool has(const Json& value, const char* key) {
    return value.is_object() && value.contains(key);
}

bool is_summary(const Json& value) {
    return has(value, "summary") && value.at("summary") == true;
}

Result<SummaryLine> read_summary(const Json& value) {
    SummaryLine line;
    MemberReader read(value);
    read("resumable", line.resumable);
    visit_metrics(line, read);
    ATOLL_RETURN_IF_ERROR(read.status());
    return line;
}

Result<EvaluationLine> read_evaluation(const Json& value) {
    EvaluationLine line;
    MemberReader read(value);
    visit_evaluation(line, read);
    ATOLL_RETURN_IF_ERROR(read.status());
    // e to the power of a mean of negative logarithms, but for what rounding does to it.
    if (line.perplexity.value_or(1) < 1 - 1e-6) return invalid_argument("perplexity", "must be at least 1");
    if (line.tokens.value_or(1) < 1) return invalid_argument("tokens", "must be at least 1: nothing was evaluated");
    if (const std::int64_t code = line.failed_with.value_or(1); code < 1 || code > kExitCodeMax)
        return invalid_argument("failed_with", "must be an exit code from 1 to 255");
    if (line.place.value_or(0) < 0) return invalid_argument("place", "must be at least 0");
    return line;
}

bool is_too_small(const std::optional<std::int64_t>& tokens) {
    return tokens.value_or(kLossTokensMin) < kLossTokensMin;
}

void drop_small_losses(StepLine& line) {
    if (is_too_small(line.loss_tokens)) line.loss = line.grad_norm = std::nullopt;
    if (is_too_small(line.val_tokens)) line.val_loss = line.val_perplexity = std::nullopt;
}

// null: it is no JSON, and so none of ours.
Json parse_or_null(std::string_view line) {
    if (line.size() > kLineBytesMax) return nullptr;
    auto value = json::parse(line, kDepthMax);
    return value.ok() ? std::move(value).value() : Json();
}

std::string required_digest(json::ObjectReader& reader, const char* key) {
    std::string text = reader.required_string(key);
    if (!digest::is_sha256(text)) reader.fail(key, "must be 64 lower-case hexadecimal characters");
    return text;
}

}  // namespace

std::optional<StepLine> parse_step_line(const Json& value) {
    if (!has(value, "step") || !is_count(value.at("step"))) return std::nullopt;
    StepLine line;
    MemberReader read(value);
    visit_step(line, read);
    constexpr double kYear5000_s = 1e11;
    if (const double at = line.time_unix_s.value_or(0); !(at >= 0 && at < kYear5000_s)) line.time_unix_s.reset();
    return line;
}

std::optional<SummaryLine> parse_summary_line(const Json& value) {
    if (!is_summary(value)) return std::nullopt;
    const auto line = read_summary(value);
    return line.ok() ? std::optional(*line) : std::nullopt;
}

std::optional<EvaluationLine> parse_evaluation_line(const Json& value) {
    if (!value.is_object()) return std::nullopt;
    const auto line = read_evaluation(value);
    return line.ok() ? std::optional(*line) : std::nullopt;
}

Result<TrainingLine> read_training_line(std::string_view line) {
    const Json value = parse_or_null(line);
    if (is_summary(value)) {
        ATOLL_TRY(SummaryLine summary, read_summary(value));
        if (is_too_small(summary.tokens)) summary.loss = std::nullopt;
        return TrainingLine(summary);
    }
    auto step = parse_step_line(value);
    if (!step) return TrainingLine();
    drop_small_losses(*step);
    return TrainingLine(*step);
}

Result<std::optional<EvaluationLine>> read_evaluation_line(std::string_view line) {
    const Json value = parse_or_null(line);
    if (!has(value, "perplexity") && !has(value, "failed_with")) return std::optional<EvaluationLine>();
    ATOLL_TRY(EvaluationLine evaluation, read_evaluation(value));
    if (is_too_small(evaluation.tokens))
        return invalid_argument("tokens", "are " + std::to_string(*evaluation.tokens) + "; the loss of fewer than " +
                                              std::to_string(kLossTokensMin) +
                                              " would spell out the text: evaluate on more");
    return std::optional(evaluation);
}

Json to_json(const StepLine& line) {
    Json value = Json::object();
    MemberWriter write(value);
    visit_step(line, write);
    return value;
}

Json to_json(const SummaryLine& line) {
    Json value = update_metrics(line);
    value["summary"] = true;
    value["resumable"] = line.resumable;
    return value;
}

Json to_json(const EvaluationLine& line) {
    Json value = Json::object();
    MemberWriter write(value);
    visit_evaluation(line, write);
    return value;
}

Json update_metrics(const SummaryLine& summary) {
    Json metrics = Json::object();
    MemberWriter write(metrics);
    visit_metrics(summary, write);
    return metrics;
}

std::int64_t read_exit_code(std::string_view text) {
    constexpr std::int64_t kNoGood = 1;
    if (text.size() > kEndRecordBytesMax) return kNoGood;
    const auto exit = json::parse(text, kDepthMax);
    if (!exit.ok() || !has(*exit, "exit_code")) return kNoGood;
    const Json& code = exit->at("exit_code");
    return is_count(code) && code <= kExitCodeMax ? code.get<std::int64_t>() : kNoGood;
}

std::optional<PushAnswer> read_push_answer(std::string_view out) {
    if (out.size() > kPushBytesMax) return std::nullopt;
    const auto said = json::parse(out, kDepthMax);
    if (!said.ok()) return std::nullopt;
    PushAnswer answer;
    if (has(*said, "digest")) {
        json::ObjectReader reader(*said);
        answer.digest = required_digest(reader, "digest");
        reader.allow_unknown();
        return reader.finish().ok() ? std::optional(answer) : std::nullopt;
    }
    auto failure = site::parse_hand_in_failure(*said);
    if (!failure.ok()) return std::nullopt;
    answer.error = std::move(failure->error);
    answer.is_refused = failure->is_refused;
    return answer;
}

}  // namespace atl::dispatch
