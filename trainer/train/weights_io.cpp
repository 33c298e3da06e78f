#include "trainer/train/weights_io.h"

#include <algorithm>
#include <utility>

#include "trainer/checkpoint/adapter.h"
#include "trainer/model/config.h"
#include "trainer/model/initialize.h"
#include "trainer/train/gather_pieces.h"
#include "trainer/train/storage.h"

namespace atl::train {
namespace {

// Elements loaded at a time: read, checked and put in their place while they are in the second-level cache.
constexpr std::int64_t kPieceElements = 1 << 16;

// Of the model's own tensors, or of its adapters'.
std::vector<checkpoint::TensorSpec> specs_of(const model::Model& model, bool adapters) {
    std::vector<checkpoint::TensorSpec> specs;
    for (const model::ParameterGroup& group : model.groups) {
        if (group.is_adapter != adapters) continue;
        for (const model::Parameter& parameter : group.parameters) {
            specs.push_back({parameter.name, parameter.shape, checkpoint::DType::kF32});
        }
    }
    return specs;
}

Error beyond_range(const std::string& name) {
    return invalid_argument("--precision", "'" + name + "' has a value beyond the range of this format");
}

// Elements of a parameter from `begin` on.
Status read_values(const ModelDirectory& directory, const model::ParameterGroup& group,
                   const model::Parameter& parameter, std::int64_t begin, std::span<float> values) {
    if (group.is_adapter && !directory.adapters->weights) {
        model::initialize(parameter, directory.adapters->seed, begin, values);
        return {};
    }
    const checkpoint::WeightReader& weights = group.is_adapter ? *directory.adapters->weights : *directory.weights;
    return weights.read(parameter.name, begin, begin + static_cast<std::int64_t>(values.size()), values);
}

// Reads the elements of a group's flat buffer that begin at `begin` into `kept`, whatever it is stored in.
Status load_flat(const ModelDirectory& directory, const model::ParameterGroup& group, std::int64_t begin,
                 const Tensor& kept, kernels::Backend& backend, std::vector<float>& buffer) {
    for (const Piece& piece : pieces_of(group, begin, kept.element_count())) {
        const model::Parameter& parameter = group.parameters[piece.parameter];
        for (std::int64_t done = 0; done < piece.count; done += kPieceElements) {
            const std::int64_t count = std::min(kPieceElements, piece.count - done);
            const std::span<float> values = std::span(buffer).first(static_cast<std::size_t>(count));
            ATOLL_RETURN_IF_ERROR(read_values(directory, group, parameter, piece.begin + done, values));
            if (!store_values(values, flat_range(kept, piece.at + done, count), backend)) {
                return beyond_range(parameter.name);
            }
        }
    }
    return {};
}

// Puts elements [at, at + values.size()) of a group's flat buffer where `kept`, which begins at `begin`, has them.
bool put_kept_part(std::span<const float> values, std::int64_t at, const Tensor& kept, std::int64_t begin,
                   kernels::Backend& backend) {
    const std::int64_t from = std::max(at, begin);
    const std::int64_t to = std::min(at + static_cast<std::int64_t>(values.size()), begin + kept.element_count());
    if (from >= to) return true;
    const auto part = values.subspan(static_cast<std::size_t>(from - at), static_cast<std::size_t>(to - from));
    return store_values(part, flat_range(kept, from - begin, to - from), backend);
}

// One piece of a parameter, read by rank 0. False on all ranks when that failed.
bool broadcast_piece(const ModelDirectory& directory, const model::ParameterGroup& group,
                     const model::Parameter& parameter, std::int64_t begin, std::span<float> values, comm::Comm& comm,
                     Status& status) {
    std::byte read{1};
    if (comm.rank() == 0) {
        const Status mine = read_values(directory, group, parameter, begin, values);
        read = static_cast<std::byte>(mine.ok());
        if (status.ok()) status = mine;
    }
    comm.broadcast(std::span(&read, 1), 0);
    if (read == std::byte{0}) return false;
    comm.broadcast(std::as_writable_bytes(values), 0);
    return true;
}

Result<std::vector<checkpoint::TensorSpec>> specs_to_save(const model::Model& model, const SaveWhere& where) {
    std::vector<checkpoint::TensorSpec> specs = specs_of(model, false);
    if (where.dtype) return specs;
    ATOLL_TRY(const auto base, checkpoint::WeightReader::open(where.base));
    for (checkpoint::TensorSpec& spec : specs) {
        ATOLL_TRY(spec.dtype, base.dtype(spec.name));
    }
    return specs;
}

Result<checkpoint::WeightWriter> open_model_writer(const model::Model& model, const SaveWhere& where) {
    ATOLL_TRY(auto specs, specs_to_save(model, where));
    checkpoint::SaveOptions options;
    options.base = where.base;
    options.dtype = where.dtype;
    return checkpoint::WeightWriter::create(where.out, std::move(specs), options);
}

// In the base's dtype, or in fp32 when it has several.
Result<checkpoint::AdapterWriter> open_adapter_writer(const model::Model& model, const SaveWhere& where) {
    checkpoint::DType dtype = where.dtype.value_or(checkpoint::DType::kF32);
    if (!where.dtype) {
        ATOLL_TRY(const auto base, checkpoint::WeightReader::open(where.base));
        const std::vector<checkpoint::TensorSpec> tensors = base.tensors();
        const auto is_first = [&](const auto& tensor) { return tensor.dtype == tensors.front().dtype; };
        if (std::ranges::all_of(tensors, is_first)) dtype = tensors.front().dtype;
    }
    std::vector<checkpoint::TensorSpec> specs = specs_of(model, true);
    for (checkpoint::TensorSpec& spec : specs) spec.dtype = dtype;
    return checkpoint::AdapterWriter::create(where.out, std::move(specs), *where.adapters, where.base.string());
}

// The one of them that a run needs, on the rank that writes.
class Output {
  public:
    Status open(const model::Model& model, const SaveWhere& where) {
        if (where.adapters != nullptr) {
            ATOLL_TRY(auto writer, open_adapter_writer(model, where));
            adapters_.emplace(std::move(writer));
        } else {
            ATOLL_TRY(auto writer, open_model_writer(model, where));
            model_.emplace(std::move(writer));
        }
        return {};
    }
    Status append(std::span<const float> values) { return model_ ? model_->append(values) : adapters_->append(values); }
    Status finish() { return model_ ? model_->finish() : adapters_->finish(); }

  private:
    std::optional<checkpoint::WeightWriter> model_;
    std::optional<checkpoint::AdapterWriter> adapters_;
};

}  // namespace

void ModelDirectory::close_files() {
    weights.reset();
    if (adapters) adapters->weights.reset();
}

Result<ModelDirectory> open_model(const std::filesystem::path& directory) {
    ATOLL_TRY(const model::ModelConfig config, model::load_config(directory));
    ATOLL_TRY(model::Model built, model::make_model(config));
    ATOLL_TRY(checkpoint::WeightReader weights, checkpoint::WeightReader::open(directory));
    const std::vector<std::string> ignorable = model::ignorable_tensors(config);
    ATOLL_RETURN_IF_ERROR(weights.check_tensors(specs_of(built, false), ignorable));
    return ModelDirectory{directory, std::move(built), std::move(weights), {}};
}

Status add_adapters(ModelDirectory& directory, AdapterSource adapters) {
    ATOLL_RETURN_IF_ERROR(model::add_adapters(directory.model, adapters.options));
    if (adapters.weights) ATOLL_RETURN_IF_ERROR(adapters.weights->check_tensors(specs_of(directory.model, true)));
    directory.adapters = std::move(adapters);
    return {};
}

Status load_weights(const ModelDirectory& directory, const ParameterStore& store, kernels::Backend& backend,
                    comm::Comm& comm) {
    std::vector<float> buffer(kPieceElements);
    Status status;
    for (std::size_t group = 0; group < store.group_count() && status.ok(); ++group) {
        const model::ParameterGroup& parameters = store.model().groups[group];
        const auto load = [&](const Tensor& kept) {
            if (!status.ok()) return;
            status = load_flat(directory, parameters, store.begin_of(kept, group), kept, backend, buffer);
        };
        load(store.weights(group));
        if (store.has_masters(group)) load(store.masters(group));
    }
    return comm.agree(status);
}

Status load_weights_from_rank0(const ModelDirectory& directory, const ParameterStore& store, kernels::Backend& backend,
                               comm::Comm& comm) {
    std::vector<float> buffer(kPieceElements);
    Status status;
    for (std::size_t group = 0; group < store.group_count(); ++group) {
        const model::ParameterGroup& parameters = store.model().groups[group];
        for (const model::Parameter& parameter : parameters.parameters) {
            for (std::int64_t done = 0; done < parameter.element_count(); done += kPieceElements) {
                const std::int64_t count = std::min(kPieceElements, parameter.element_count() - done);
                const std::span<float> values = std::span(buffer).first(static_cast<std::size_t>(count));
                if (!broadcast_piece(directory, parameters, parameter, done, values, comm, status))
                    return comm.agree(status);
                const auto put = [&](const Tensor& kept) {
                    return put_kept_part(values, parameter.offset + done, kept, store.begin_of(kept, group), backend);
                };
                const bool fits = put(store.weights(group)) && (!store.has_masters(group) || put(store.masters(group)));
                if (!fits && status.ok()) status = beyond_range(parameter.name);
            }
        }
    }
    return comm.agree(status);
}

Status save_weights(const ParameterStore& store, kernels::Backend& backend, comm::Comm& comm, const SaveWhere& where) {
    Status status;
    Output output;
    if (comm.rank() == 0) status = output.open(store.model(), where);
    ATOLL_RETURN_IF_ERROR(comm.agree(write_outcome(status)));
    PieceGatherer pieces(backend, comm);
    for (std::size_t group = 0; group < store.group_count(); ++group) {
        if (store.model().groups[group].is_adapter != (where.adapters != nullptr)) continue;
        pieces.gather(store.exact_weights(group), store.cut(group), [&](std::span<const float> values) {
            if (status.ok()) status = output.append(values);
        });
    }
    if (comm.rank() == 0 && status.ok()) status = output.finish();
    return comm.agree(write_outcome(status));
}

}  // namespace atl::train
