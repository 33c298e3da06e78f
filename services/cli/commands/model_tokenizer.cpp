#include "services/cli/commands/model_tokenizer.h"

#include <algorithm>
#include <string_view>

#include "services/cli/commands/trainer_program.h"
#include "shared/base/file.h"
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

std::string unread_tokenizer(const fs::path& directory) {
    const TemporaryDirectory temporary("atoll-tokenizer");
    const fs::path row = temporary.path() / "row.jsonl";
    if (!write_file_atomic(row, "{\"text\": \"\"}\n").ok()) return {};
    const Status checked = run_trainer({"tokenize", "--check", "--tokenizer", directory.string(), "--input",
                                        row.string(), "--seq-len", "2", "--out", (temporary.path() / "out").string()},
                                       directory.string());
    if (checked.ok() || checked.error().code != ErrorCode::kInvalidArgument) return {};
    constexpr std::string_view kFlag = "--tokenizer: ";
    const std::size_t at = checked.error().message.find(kFlag);
    return at == std::string::npos ? "" : checked.error().message.substr(at + kFlag.size());
}

}  // namespace atl::cli
