#include "services/cli/watch/metrics_table.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "services/cli/rest.h"

namespace atl::cli {

std::vector<Column> training_header(bool validates) {
    std::vector<Column> header = {droppable("last loss")};
    if (validates) header.push_back(droppable("validation loss"));
    for (const char* name : {"last tokens/s", "mean loss", "mean tokens/s"}) header.push_back(droppable(name));
    return header;
}

std::vector<std::string> training_cells(const nlohmann::json& progress, const nlohmann::json& metrics, bool validates) {
    std::vector<std::string> cells = {text(progress, "loss")};
    if (validates) cells.push_back(text(progress, "val_loss"));
    for (std::string cell : {text(progress, "tokens_per_s"), text(metrics, "loss"), text(metrics, "tokens_per_s")})
        cells.push_back(std::move(cell));
    return cells;
}

bool has_validation(const nlohmann::json& progress) {
    return progress.is_object() && progress.contains("val_loss") && progress.at("val_loss").is_number();
}

std::string resumption_text(std::int64_t first_step, std::int64_t reached) {
    if (first_step > 1) return fmt::format("goes on at step {}", first_step);
    if (first_step == 0 || reached == 0) return {};
    return fmt::format(
        "begins again at step 1: no state was saved up to step {}; set training.save_every or a shorter "
        "training.save_interval",
        reached);
}

std::string opposition_text(const nlohmann::json& contribution) {
    const auto rounds = contribution.value("opposed_rounds", std::int64_t{0});
    if (rounds == 0) return {};
    return fmt::format(
        "updates have opposed the other sites' for {} rounds in a row (cosine {:.2f}) and may be undoing their "
        "training. To continue without it, run `atoll job pause JOB`, then `atoll job resume JOB --without FACILITY`",
        rounds, contribution.value("cosine", 0.0));
}

}  // namespace atl::cli
