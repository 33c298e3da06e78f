#include "services/cli/commands/model_tokenizer.h"

#include <algorithm>

#include "shared/model_config/vocabulary.h"

namespace atl::cli {

namespace fs = std::filesystem;

Result<std::optional<std::int64_t>> largest_token_id(const fs::path& directory) {
    ATOLL_TRY(const auto vocabulary, model_config::read_vocabulary(directory));
    if (!vocabulary) return std::optional<std::int64_t>();
    std::int64_t largest = -1;
    for (const auto& [token, id] : vocabulary->tokens) largest = std::max(largest, id);
    return std::optional(largest);
}

}  // namespace atl::cli
