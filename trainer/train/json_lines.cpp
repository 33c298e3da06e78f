#include "trainer/train/json_lines.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "shared/base/check.h"
#include "shared/json/printable.h"

namespace atl::train {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson or_null(double value) {
    return value > 0 && std::isfinite(value) ? OrderedJson(value) : OrderedJson(nullptr);
}

// A share of the peak; above it the peak was measured too low.
OrderedJson share_or_null(double value) {
    return value > 1 ? OrderedJson(nullptr) : or_null(value);
}

OrderedJson as_json(const Summary& summary) {
    OrderedJson json = {{"summary", true},
                        {"steps", summary.steps},
                        {"samples", summary.samples},
                        {"tokens", summary.tokens},
                        {"loss", summary.loss ? OrderedJson(*summary.loss) : OrderedJson(nullptr)},
                        {"final_loss", summary.final_loss ? OrderedJson(*summary.final_loss) : OrderedJson(nullptr)},
                        {"tokens_per_s", summary.tokens_per_s},
                        {"wall_s", summary.wall_s},
                        {"peak_tflops", or_null(summary.peak_tflops)},
                        {"peak_bytes", summary.peak_bytes},
                        {"resumable", summary.resumable}};
    if (summary.loss_scale > 0) json["loss_scale"] = summary.loss_scale;
    if (summary.loss_scale > 0 || summary.skipped_steps > 0) json["skipped_steps"] = summary.skipped_steps;
    if (summary.earlier_updates > 0) json["earlier_updates"] = summary.earlier_updates;
    if (summary.best_step > 0) {
        json["best_step"] = summary.best_step;
        json["best_val_loss"] = summary.best_val_loss;
    }
    if (summary.optimizer_anew) json["optimizer_anew"] = true;
    if (summary.rounding_error_anew) json["rounding_error_anew"] = true;
    if (summary.control_variate_anew) json["control_variate_anew"] = true;
    return json;
}

}  // namespace

Perplexity compute_perplexity(double loss_sum, double tokens) {
    check(tokens > 0, "the perplexity of no token");
    const double loss = loss_sum / tokens;
    return {loss, std::exp(loss), static_cast<std::int64_t>(tokens)};
}

std::string to_json_line(const StepMetrics& metrics) {
    OrderedJson json = {{"step", metrics.step},
                        {"time_unix_s", metrics.time_unix_s},
                        {"loss", metrics.loss ? OrderedJson(*metrics.loss) : OrderedJson(nullptr)},
                        {"loss_tokens", metrics.loss_tokens},
                        {"lr", metrics.learning_rate},
                        {"grad_norm", metrics.gradient_norm},
                        {"step_s", metrics.step_s},
                        {"tokens_per_s", metrics.tokens_per_s},
                        {"samples_per_s", metrics.samples_per_s},
                        {"tflops", metrics.tflops},
                        {"mfu", share_or_null(metrics.mfu)},
                        {"hfu", share_or_null(metrics.hfu)},
                        {"peak_bytes", metrics.peak_bytes},
                        {"exposed_comm_s", metrics.exposed_comm_s},
                        {"eta_s", metrics.eta_s}};
    if (metrics.loss_scale > 0) json["loss_scale"] = metrics.loss_scale;
    return json.dump();
}

std::string to_json_line(const Summary& summary) {
    return as_json(summary).dump();
}

std::string to_exit_json(const Summary& summary, const std::string& out) {
    OrderedJson json = {{"exit_code", 0}, {"out", out}};
    json.update(as_json(summary));
    return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

bool is_exit_json_of(const std::string& text, const std::string& out) {
    const OrderedJson json = OrderedJson::parse(text, nullptr, false);
    return json.is_object() && json.value("out", OrderedJson()) == out;
}

std::string to_json_line(const Perplexity& perplexity) {
    return OrderedJson{
        {"loss", perplexity.loss}, {"perplexity", or_null(perplexity.perplexity)}, {"tokens", perplexity.tokens}}
        .dump();
}

std::string to_json_line(std::int64_t step, const Perplexity& perplexity) {
    return OrderedJson{{"step", step},
                       {"val_loss", perplexity.loss},
                       {"val_perplexity", or_null(perplexity.perplexity)},
                       {"val_tokens", perplexity.tokens}}
        .dump();
}

void print_line(const std::string& line) {
    // A model's text or a file's name may hold control characters: a terminal gets none of them, a program all. mpirun
    // gives its ranks a terminal of its own, whatever its own output is.
    const bool is_terminal = ::isatty(STDOUT_FILENO) == 1 && std::getenv("PMIX_RANK") == nullptr;
    std::fputs((is_terminal ? atl::json::printable(line) + "\n" : line + "\n").c_str(), stdout);
    std::fflush(stdout);
}

}  // namespace atl::train
