#include "services/cli/watch/metrics_table.h"

#include <nlohmann/json.hpp>

#include "services/cli/rest.h"

namespace atl::cli {

std::vector<Column> training_header() {
    return {droppable("last loss"), droppable("last tokens/s"), droppable("mean loss"), droppable("mean tokens/s")};
}

std::vector<std::string> training_cells(const nlohmann::json& progress, const nlohmann::json& metrics) {
    return {text(progress, "loss"), text(progress, "tokens_per_s"), text(metrics, "loss"),
            text(metrics, "tokens_per_s")};
}

}  // namespace atl::cli
