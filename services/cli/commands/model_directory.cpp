#include "services/cli/commands/model_directory.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "services/cli/commands/model_tokenizer.h"
#include "shared/aggregate/files.h"
#include "shared/base/text.h"
#include "shared/log/warn.h"
#include "shared/model_config/ignored_tensor.h"
#include "shared/model_config/tensors.h"
#include "shared/safetensors/file.h"
#include "shared/store_client/transfer.h"

namespace atl::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

bool is_within(const fs::path& path, const fs::path& directory) {
    const auto [end, unused] = std::mismatch(directory.begin(), directory.end(), path.begin(), path.end());
    return end == directory.end();
}

// Where links may lead: the directory, and the blobs of Hugging Face's cache of which it is a snapshot. `blobs` that is
// itself a link is no place, as whoever made it chose where it leads. `directory` is canonical.
std::vector<fs::path> allowed_places(const fs::path& directory) {
    std::vector<fs::path> places = {directory};
    std::error_code error;
    const fs::path snapshots = directory.parent_path();
    const fs::path blobs = snapshots.parent_path() / "blobs";
    if (snapshots.filename() == "snapshots" && fs::symlink_status(blobs, error).type() == fs::file_type::directory)
        places.push_back(blobs);
    return places;
}

Status check_link(const fs::path& link, const std::vector<fs::path>& places) {
    std::error_code error;
    const fs::path target = fs::canonical(link, error);
    if (error) return invalid_argument(link.string(), "is a link that leads nowhere: remove it");
    if (std::any_of(places.begin(), places.end(), [&](const fs::path& place) { return is_within(target, place); }))
        return {};
    return invalid_argument(link.string(), "is a link to " + target.string() +
                                               ", outside the directory: whoever fetches the version would get that "
                                               "file. If it belongs to the model, copy it here (cp -rL copies what "
                                               "links lead to)");
}

Status check_json_file(const fs::path& file) {
    constexpr std::uintmax_t kBytesMax = 64U << 20;  // what atoll-trainer reads of a tokenizer
    std::ifstream stream(file, std::ios::binary);
    if (!stream) return invalid_argument(file.string(), "cannot be read");
    std::error_code error;
    if (const std::uintmax_t bytes = fs::file_size(file, error); !error && bytes > kBytesMax)
        return invalid_argument(
            file.string(), "has " + human_bytes(bytes) + "; a model's JSON file has at most " + human_bytes(kBytesMax));
    if (json::accept(stream)) return {};
    return invalid_argument(file.string(), "is not JSON: mend it, or take it out of the directory");
}

// Every token has a row in the embedding.
Status check_tokenizer(const fs::path& directory, std::int64_t vocab_size) {
    ATOLL_TRY(const auto largest, largest_token_id(directory));
    if (!largest)
        log::warn(
            directory.string() +
            " has no tokenizer (tokenizer.json, or tokenizer.model, or vocab.json and merges.txt): no dataset can "
            "be prepared for this model");
    if (!largest) return {};
    if (*largest < vocab_size) {
        const std::string why = unread_tokenizer(directory);
        if (!why.empty())
            log::warn("no dataset can be prepared for this model, as its tokenizer cannot be read: " + why);
        return {};
    }
    return invalid_argument(directory.string(),
                            "the tokenizer has the token " + std::to_string(*largest) +
                                ", but config.json's vocab_size is " + std::to_string(vocab_size) +
                                ": texts would have tokens that the model does not know; is this the tokenizer of "
                                "another model?");
}

}  // namespace

Status check_files_to_send(const fs::path& directory) {
    std::error_code error;
    const fs::path real = fs::canonical(directory, error);
    if (error) return invalid_argument(directory.string(), error.message());
    const std::vector<fs::path> places = allowed_places(real);
    for (auto entry = fs::recursive_directory_iterator(real, error); !error && entry != fs::end(entry);
         entry.increment(error)) {
        const fs::path& path = entry->path();
        if (path.filename().string().starts_with(".")) {  // hidden: not sent
            entry.disable_recursion_pending();
            continue;
        }
        std::error_code none;
        if (entry->is_symlink(none)) ATOLL_RETURN_IF_ERROR(check_link(path, places));
        if (entry->is_regular_file(none)) continue;
        if (entry->is_symlink(none))
            return invalid_argument(path.string(), "is a link to a directory, which is not followed: copy it here");
        if (!entry->is_directory(none))
            return invalid_argument(path.string(), "is neither a file nor a directory: remove it");
    }
    if (error) return invalid_argument(directory.string(), "cannot be listed: " + error.message());
    return {};
}

// A trainer reads past them and does not write them: no site's update could hold what the base has.
Status check_no_ignored_tensor(const safetensors::Model& weights, const model_config::ModelConfig& config,
                               const fs::path& directory) {
    const std::vector<std::string> ignorable = model_config::ignorable_tensors(config);
    for (const auto& entry : weights.entries())
        if (model_config::is_ignorable(entry.tensor->name, ignorable))
            return invalid_argument(entry.file->path().string(),
                                    entry.file->path().string() + ": " +
                                        model_config::ignored_tensor_text(entry.tensor->name, directory.string()));
    return {};
}

Result<safetensors::Model> check_model_directory(const fs::path& directory) {
    const fs::path file = directory / "config.json";
    const bool is_adapter = !fs::exists(file) && fs::exists(directory / "adapter_config.json");
    if (!is_adapter && !fs::exists(file))
        return invalid_argument(directory.string(), "has no config.json: is it a model's directory?");
    ATOLL_TRY(const auto paths, store_client::list_files(directory));
    for (const std::string& path : paths)
        if (path.ends_with(".json")) ATOLL_RETURN_IF_ERROR(check_json_file(directory / path));
    if (is_adapter) {
        ATOLL_RETURN_IF_ERROR(aggregate::explain_torch_files(directory));
        return safetensors::Model::open_file(directory / "adapter_model.safetensors");
    }
    ATOLL_TRY(const auto config, model_config::load_config(directory));
    ATOLL_TRY(auto weights, safetensors::Model::open(directory));
    ATOLL_RETURN_IF_ERROR(model_config::check_tensors(weights, model_config::tensors_of(config),
                                                      model_config::ignorable_tensors(config), "config.json",
                                                      directory.string()));
    ATOLL_RETURN_IF_ERROR(check_no_ignored_tensor(weights, config, directory));
    ATOLL_RETURN_IF_ERROR(check_tokenizer(directory, config.vocab_size));
    return weights;
}

}  // namespace atl::cli
