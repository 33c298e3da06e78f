#include "services/cli/watch/metrics_table.h"

#include <nlohmann/json.hpp>

#include "services/cli/rest.h"

namespace atl::cli {

std::vector<std::string> training_header() {
    return {"last loss", "last tokens/s", "mean loss", "mean tokens/s"};
}

std::vector<std::string> training_cells(const nlohmann::json& progress, const nlohmann::json& metrics) {
    return {text(progress, "loss"), text(progress, "tokens_per_s"), text(metrics, "loss"),
            text(metrics, "tokens_per_s")};
}

}  // namespace atl::cli
