#include "trainer/model_io/model_directory.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "shared/digest/digest.h"
#include "shared/log/warn.h"
#include "shared/model_config/tensors.h"
#include "trainer/comm/read_progress.h"
#include "trainer/model/config.h"

namespace atl::model_io {
namespace {

constexpr std::size_t kDigestChars = 64;

std::vector<std::string> sorted_names(const model::Model& model, bool adapters) {
    std::vector<std::string> names;
    for (weights::TensorSpec& spec : weights::tensor_specs(model, adapters)) names.push_back(std::move(spec.name));
    std::ranges::sort(names);
    return names;
}

// Of `names`, which are sorted, those that this rank hashes of `ranks`: every ranks-th.
std::vector<std::string> own_names(const std::vector<std::string>& names, int rank, int ranks) {
    std::vector<std::string> own;
    for (auto i = static_cast<std::size_t>(rank); i < names.size(); i += static_cast<std::size_t>(ranks))
        own.push_back(names[i]);
    return own;
}

// In the files.
std::int64_t size_bytes(const weights::WeightReader& weights, const std::vector<std::string>& sorted) {
    std::int64_t bytes = 0;
    for (const weights::TensorSpec& spec : weights.tensors()) {
        if (!std::ranges::binary_search(sorted, spec.name)) continue;
        bytes += std::accumulate(spec.shape.begin(), spec.shape.end(),
                                 std::int64_t{safetensors::size_bytes(spec.dtype)}, std::multiplies<>());
    }
    return bytes;
}

// One after another.
Result<std::string> hash_each(const weights::WeightReader& weights, const std::vector<std::string>& names,
                              comm::ReadProgress& progress) {
    std::string digests;
    for (const std::string& name : names) {
        ATOLL_TRY(const std::string digest, weights.sha256(name, [&](std::int64_t bytes) { progress.add(bytes); }));
        digests += digest;
    }
    return digests;
}

// With from_rank0 the others' tensors may be anything: rank 0 hashes all.
Result<std::string> hash_tensors(const weights::WeightReader& weights, const std::vector<std::string>& names,
                                 comm::Comm& comm, bool from_rank0) {
    const int hashing = from_rank0 ? 1 : comm.size();  // ranks
    const auto own = comm.rank() < hashing ? own_names(names, comm.rank(), hashing) : std::vector<std::string>();
    comm::ReadProgress progress(comm, "hashing the weights", size_bytes(weights, own));
    ATOLL_TRY(std::string mine, comm::agreed(comm, hash_each(weights, own, progress)));
    const auto ranks = static_cast<std::size_t>(hashing);
    const std::size_t rows = (names.size() + ranks - 1) / ranks;  // of a rank, the last ones perhaps empty
    mine.resize(rows * kDigestChars);
    std::string all = mine;
    if (from_rank0) {
        comm.broadcast(std::as_writable_bytes(std::span(all)), 0);
    } else {
        all.resize(mine.size() * ranks);
        comm.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
    }
    digest::Sha256 sha256;
    for (std::size_t i = 0; i < names.size(); ++i) {
        sha256.update(names[i]);
        sha256.update(std::string_view(all).substr((i % ranks * rows + i / ranks) * kDigestChars, kDigestChars));
    }
    return sha256.finish();
}

}  // namespace

void ModelDirectory::close_files() {
    weights.reset();
    if (adapters) adapters->weights.reset();
}

Result<ModelDirectory> open_model_directory(const std::filesystem::path& directory, Weights wanted) {
    ATOLL_TRY(const model::ModelConfig config, model_config::load_config(directory));
    model::Model built = model::make_model(config);
    auto opened = weights::WeightReader::open(directory);
    const bool has_none = !opened.ok() && opened.error().code == ErrorCode::kNotFound;
    if (has_none && wanted == Weights::kIfThere) return ModelDirectory{directory, std::move(built), {}, {}};
    ATOLL_TRY(weights::WeightReader weights, std::move(opened));
    const std::vector<std::string> ignorable = model_config::ignorable_tensors(config);
    ATOLL_RETURN_IF_ERROR(weights.check_tensors(weights::tensor_specs(built, false), ignorable));
    return ModelDirectory{directory, std::move(built), std::move(weights), {}};
}

Status check_tied_head(const ModelDirectory& directory, comm::Comm& comm, bool from_rank0) {
    if (!directory.model.config.tie_word_embeddings || !directory.weights) return {};
    const std::string& table = directory.model.units.front().parameters.front().name;
    const int reading = from_rank0 ? 1 : comm.size();  // ranks
    return comm.agree(comm.rank() < reading ? directory.weights->check_tied_head(table, comm.rank(), reading)
                                            : Status());
}

Status add_adapters(ModelDirectory& directory, AdapterSource adapters) {
    const Status added = model::add_adapters(directory.model, adapters.options);
    if (!added.ok() && adapters.weights) {
        const std::string file = (adapters.weights->directory() / weights::kAdapterConfig).string();
        return invalid_argument(file, file + ": " + describe(added.error()));
    }
    ATOLL_RETURN_IF_ERROR(added);
    static const std::vector<std::string> kOfTheBase = {"*.base_layer.weight"};  // of lm_head, which peft saves as well
    if (adapters.weights)
        ATOLL_RETURN_IF_ERROR(
            adapters.weights->check_tensors(weights::tensor_specs(directory.model, true), kOfTheBase));
    directory.adapters = std::move(adapters);
    return {};
}

Result<std::string> base_digest(const ModelDirectory& directory, comm::Comm& comm, bool from_rank0) {
    return hash_tensors(*directory.weights, sorted_names(directory.model, false), comm, from_rank0);
}

Result<std::string> adapter_digest(const ModelDirectory& directory, comm::Comm& comm, bool from_rank0) {
    return hash_tensors(*directory.adapters->weights, sorted_names(directory.model, true), comm, from_rank0);
}

void warn_of_other_weights(const ModelDirectory& directory, const weights::AdapterBase& trained_on,
                           const std::string& sha256, const comm::Comm& comm) {
    if (comm.rank() != 0 || trained_on.sha256.empty() || trained_on.sha256 == sha256) return;
    log::warn("the adapter was trained on '" + trained_on.directory + "' (sha256 " + trained_on.sha256 +
              "); the weights of '" + directory.path.string() + "' (sha256 " + sha256 +
              ") are others: give the model that it was trained on, unless this is the same in another dtype");
}

Status warn_of_other_weights(const ModelDirectory& directory, const weights::AdapterBase& trained_on, comm::Comm& comm,
                             bool from_rank0) {
    if (trained_on.sha256.empty()) return {};
    ATOLL_TRY(const std::string sha256, base_digest(directory, comm, from_rank0));
    warn_of_other_weights(directory, trained_on, sha256, comm);
    return {};
}

}  // namespace atl::model_io
