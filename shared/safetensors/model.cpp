#include <algorithm>
#include <nlohmann/json.hpp>

#include "shared/base/file.h"
#include "shared/base/text.h"
#include "shared/safetensors/file.h"
#include "shared/safetensors/header_parser.h"
#include "shared/safetensors/weight_index.h"

namespace atl::safetensors {
namespace {

using Json = nlohmann::json;

constexpr char kSingleFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";

Error index_error(const std::filesystem::path& path, const std::string& what) {
    return invalid_argument(path.string(), path.string() + ": " + what);
}

Result<std::vector<File>> open_shards(const std::filesystem::path& directory, const WeightMap& map) {
    std::vector<std::string> names;
    for (const auto& [tensor, file] : map) names.push_back(file);
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    std::vector<File> files;
    for (const std::string& name : names) {
        auto file = File::open(directory / name);
        if (!file.ok() && file.error().code == ErrorCode::kNotFound)
            return index_error(directory / kIndexFile, "it names " + in_quotes(name) + ", which is not there");
        if (!file.ok()) return file.error();
        files.push_back(std::move(file).value());
    }
    return files;
}

// Index and shards must agree in both directions.
Status check_index(const std::filesystem::path& path, const WeightMap& map, const std::vector<File>& files) {
    for (const File& file : files) {
        for (const TensorInfo& tensor : file.header().tensors) {
            const auto entry = map.find(tensor.name);
            if (entry == map.end() || entry->second != file.path().filename().string())
                return index_error(path, "it does not place tensor " + in_quotes(tensor.name) + " in " +
                                             in_quotes(file.path().filename().string()) + ", which holds it");
        }
    }
    for (const auto& [tensor, name] : map) {
        const auto holds = [&wanted = tensor](const File& file) { return file.header().find(wanted) != nullptr; };
        if (std::none_of(files.begin(), files.end(), holds))
            return index_error(
                path, "it places tensor " + in_quotes(tensor) + " in " + in_quotes(name) + ", which does not hold it");
    }
    return {};
}

}  // namespace

Result<WeightMap> parse_weight_index(std::string_view text) {
    WeightMap map;
    std::string repeated;
    const auto callback = [&](int depth, Json::parse_event_t event, Json& parsed) {
        if (depth != 2 || event != Json::parse_event_t::key) return true;
        const std::string key = parsed.get<std::string>();
        if (!map.emplace(key, "").second && repeated.empty()) repeated = key;
        return true;
    };
    const Json index = Json::parse(text, callback, /*allow_exceptions=*/false);
    if (index.is_discarded()) return invalid_argument("", "not valid JSON");
    if (!repeated.empty()) return invalid_argument("", "the key " + in_quotes(repeated) + " comes twice");
    const auto weight_map = index.is_object() ? index.find("weight_map") : index.end();
    if (weight_map == index.end() || !weight_map->is_object() || weight_map->empty())
        return invalid_argument("", "\"weight_map\" is missing, empty or no object");
    map.clear();
    for (const auto& [tensor, file] : weight_map->items()) {
        if (!file.is_string()) return invalid_argument("", "the file of tensor " + in_quotes(tensor) + " is no string");
        const std::string name = file.get<std::string>();
        if (name.empty() || name.find('/') != std::string::npos || name.find('\0') != std::string::npos || name == "..")
            return invalid_argument("", "the file of tensor " + in_quotes(tensor) + " is no plain file name");
        map.emplace(tensor, name);
    }
    return map;
}

Result<WeightMap> read_weight_index(const std::filesystem::path& path) {
    ATOLL_TRY(const std::string text, read_file(path));
    auto map = parse_weight_index(text);
    if (!map.ok()) return index_error(path, map.error().message);
    return map;
}

Result<Model> Model::open(const std::filesystem::path& directory) {
    Model model;
    std::error_code ignored;
    if (std::filesystem::exists(directory / kSingleFile, ignored)) {
        ATOLL_TRY(File file, File::open(directory / kSingleFile));
        model.files_.push_back(std::move(file));
    } else if (std::filesystem::exists(directory / kIndexFile, ignored)) {
        ATOLL_TRY(const WeightMap map, read_weight_index(directory / kIndexFile));
        ATOLL_TRY(model.files_, open_shards(directory, map));
        ATOLL_RETURN_IF_ERROR(check_index(directory / kIndexFile, map, model.files_));
    } else {
        return not_found(directory.string() + " holds neither " + kSingleFile + " nor " + kIndexFile,
                         directory.string());
    }
    model.index_tensors();
    return model;
}

Result<Model> Model::open_file(const std::filesystem::path& path) {
    Model model;
    ATOLL_TRY(File file, File::open(path));
    model.files_.push_back(std::move(file));
    model.index_tensors();
    return model;
}

void Model::index_tensors() {
    for (const File& file : files_)
        for (const TensorInfo& tensor : file.header().tensors) by_name_.emplace(tensor.name, Entry{&file, &tensor});
}

std::vector<Model::Entry> Model::entries() const {
    std::vector<Entry> entries;
    for (const File& file : files_)
        for (const TensorInfo& tensor : file.header().tensors) entries.push_back({&file, &tensor});
    return entries;
}

const Model::Entry* Model::find(std::string_view name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : &found->second;
}

}  // namespace atl::safetensors
