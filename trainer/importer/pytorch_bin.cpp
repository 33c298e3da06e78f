#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "shared/base/file.h"
#include "shared/base/text.h"
#include "shared/model_config/tensors.h"
#include "shared/safetensors/file.h"
#include "trainer/importer/foreign_model.h"
#include "trainer/importer/pickle.h"
#include "trainer/model/model.h"
#include "trainer/weights/load.h"

namespace atl::importer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kBinFile = "pytorch_model.bin";
constexpr const char* kBinIndexFile = "pytorch_model.bin.index.json";

using Part = ForeignTensor::Part;
using Parts = std::map<std::string, Part, std::less<>>;

// The shards that the index names, each with the tensors that it is said to hold.
Status open_shards(const fs::path& directory, std::deque<TorchFile>& files) {
    const fs::path index = directory / kBinIndexFile;
    ATOLL_TRY(const auto map, safetensors::read_weight_index(index));
    std::map<std::string, const TorchFile*> opened;
    for (const auto& [tensor, name] : map) {
        const TorchFile*& file = opened[name];
        if (file == nullptr) {
            std::error_code ignored;  // what else is wrong with it, open() says
            if (fs::symlink_status(directory / name, ignored).type() == fs::file_type::not_found)
                return in_file(index, "it names " + in_quotes(name) + ", which is not there");
            ATOLL_TRY(files.emplace_back(), TorchFile::open(directory / name));
            file = &files.back();
        }
        if (file->find(tensor) == nullptr)
            return in_file(
                index, "it places tensor " + in_quotes(tensor) + " in " + in_quotes(name) + ", which does not hold it");
    }
    return {};
}

Result<Parts> index_tensors(const std::deque<TorchFile>& files) {
    Parts parts;
    for (const TorchFile& file : files) {
        for (const StoredTensor& tensor : file.tensors()) {
            if (!parts.emplace(tensor.name, Part{&file, &tensor}).second)
                return in_file(file.path(), "tensor " + in_quotes(tensor.name) + " is in another shard too");
        }
    }
    return parts;
}

// Files of a model without its head lack the prefix, as transformers knows.
Parts::const_iterator find_part(const Parts& parts, const std::string& name) {
    constexpr std::string_view kPrefix = "model.";
    const auto found = parts.find(name);
    if (found != parts.end() || !name.starts_with(kPrefix)) return found;
    return parts.find(name.substr(kPrefix.size()));
}

// As WeightReader::check_tied_head.
Status check_tied_head(const ForeignTensor& table, const Part& head) {
    if (join_parts(table.spec, {table.parts.front(), head}, Join::kCopies).ok()) return {};
    return in_file(head.file->path(), "tensor " + in_quotes(head.tensor->name) + " " + weights::kDiffersFromTable);
}

}  // namespace

Result<ForeignModel> open_pytorch_bin(const ImportOptions& options) {
    ForeignModel model;
    const fs::path config = options.from / "config.json";
    ATOLL_TRY(model.config, read_file(config));
    ATOLL_TRY(ExpectedModel expected, expected_model(model.config, config));
    std::error_code ignored;
    if (fs::exists(options.from / kBinFile, ignored)) {
        ATOLL_TRY(model.files.emplace_back(), TorchFile::open(options.from / kBinFile));
    } else {
        ATOLL_RETURN_IF_ERROR(open_shards(options.from, model.files));
    }
    ATOLL_TRY(const Parts parts, index_tensors(model.files));
    std::set<std::string_view> used;
    for (weights::TensorSpec& spec : expected.tensors) {
        const auto found = find_part(parts, spec.name);
        if (found == parts.end())
            return in_file(options.from, "tensor " + in_quotes(spec.name) + " is missing, but config.json needs it");
        used.insert(found->first);
        ATOLL_TRY(model.tensors.emplace_back(), join_parts(std::move(spec), {found->second}, Join::kRows));
    }
    for (const auto& [name, part] : parts) {
        if (!used.contains(name) && !model_config::is_ignorable(name, expected.ignorable))
            return in_file(part.file->path(),
                           "tensor " + in_quotes(name) + " is not one of the model that config.json says");
        if (!used.contains(name) && name == model_config::kHeadWeight)
            ATOLL_RETURN_IF_ERROR(check_tied_head(model.tensors.front(), part));
    }
    return model;
}

}  // namespace atl::importer
