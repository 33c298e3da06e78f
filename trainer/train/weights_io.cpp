#include "trainer/train/weights_io.h"

#include <algorithm>
#include <utility>

#include "trainer/model/config.h"
#include "trainer/train/gather_pieces.h"
#include "trainer/train/storage.h"

namespace atl::train {
namespace {

// Elements loaded at a time: read, checked and put in their place while they are in the second-level cache.
constexpr std::int64_t kPieceElements = 1 << 16;

std::vector<checkpoint::TensorSpec> specs_of(const model::Model& model) {
    std::vector<checkpoint::TensorSpec> specs;
    for (const model::ParameterGroup& group : model.groups) {
        for (const model::Parameter& parameter : group.parameters) {
            specs.push_back({parameter.name, parameter.shape, checkpoint::DType::kF32});
        }
    }
    return specs;
}

Error beyond_range(const std::string& name) {
    return invalid_argument("--precision", "'" + name + "' has a value beyond the range of this format");
}

// Reads the elements of a group's flat buffer that begin at `begin` into `kept`, whatever it is stored in.
Status load_flat(const checkpoint::WeightReader& weights, const model::ParameterGroup& group, std::int64_t begin,
                 const Tensor& kept, kernels::Backend& backend, std::vector<float>& buffer) {
    for (const Piece& piece : pieces_of(group, begin, kept.element_count())) {
        const std::string& name = group.parameters[piece.parameter].name;
        for (std::int64_t done = 0; done < piece.count; done += kPieceElements) {
            const std::int64_t count = std::min(kPieceElements, piece.count - done);
            const std::span<float> values = std::span(buffer).first(static_cast<std::size_t>(count));
            ATOLL_RETURN_IF_ERROR(weights.read(name, piece.begin + done, piece.begin + done + count, values));
            if (!store_values(values, flat_range(kept, piece.at + done, count), backend)) {
                return beyond_range(name);
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
bool broadcast_piece(const checkpoint::WeightReader& weights, const std::string& name, std::int64_t begin,
                     std::span<float> values, comm::Comm& comm, Status& status) {
    std::byte read{1};
    if (comm.rank() == 0) {
        const Status mine = weights.read(name, begin, begin + static_cast<std::int64_t>(values.size()), values);
        read = static_cast<std::byte>(mine.ok());
        if (status.ok()) status = mine;
    }
    comm.broadcast(std::span(&read, 1), 0);
    if (read == std::byte{0}) return false;
    comm.broadcast(std::as_writable_bytes(values), 0);
    return true;
}

Result<std::vector<checkpoint::TensorSpec>> specs_to_save(const model::Model& model, const SaveWhere& where) {
    std::vector<checkpoint::TensorSpec> specs = specs_of(model);
    if (where.dtype) return specs;
    ATOLL_TRY(const auto base, checkpoint::WeightReader::open(where.base));
    for (checkpoint::TensorSpec& spec : specs) {
        ATOLL_TRY(spec.dtype, base.dtype(spec.name));
    }
    return specs;
}

Result<checkpoint::WeightWriter> open_writer(const model::Model& model, const SaveWhere& where) {
    ATOLL_TRY(auto specs, specs_to_save(model, where));
    checkpoint::SaveOptions options;
    options.base = where.base;
    options.dtype = where.dtype;
    return checkpoint::WeightWriter::create(where.out, std::move(specs), options);
}

}  // namespace

Result<ModelDirectory> open_model(const std::filesystem::path& directory) {
    ATOLL_TRY(const model::ModelConfig config, model::load_config(directory));
    ATOLL_TRY(model::Model built, model::make_model(config));
    ATOLL_TRY(checkpoint::WeightReader weights, checkpoint::WeightReader::open(directory));
    const std::vector<std::string> ignorable = model::ignorable_tensors(config);
    ATOLL_RETURN_IF_ERROR(weights.check_tensors(specs_of(built), ignorable));
    return ModelDirectory{directory, std::move(built), std::move(weights)};
}

Status load_weights(const checkpoint::WeightReader& weights, const ParameterStore& store, kernels::Backend& backend,
                    comm::Comm& comm) {
    std::vector<float> buffer(kPieceElements);
    Status status;
    for (std::size_t group = 0; group < store.group_count() && status.ok(); ++group) {
        const model::ParameterGroup& parameters = store.model().groups[group];
        const auto load = [&](const Tensor& kept) {
            if (!status.ok()) return;
            status = load_flat(weights, parameters, store.begin_of(kept, group), kept, backend, buffer);
        };
        load(store.weights(group));
        if (store.has_masters(group)) load(store.masters(group));
    }
    return comm.agree(status);
}

Status load_weights_from_rank0(const checkpoint::WeightReader& weights, const ParameterStore& store,
                               kernels::Backend& backend, comm::Comm& comm) {
    std::vector<float> buffer(kPieceElements);
    Status status;
    for (std::size_t group = 0; group < store.group_count(); ++group) {
        for (const model::Parameter& parameter : store.model().groups[group].parameters) {
            for (std::int64_t done = 0; done < parameter.element_count(); done += kPieceElements) {
                const std::int64_t count = std::min(kPieceElements, parameter.element_count() - done);
                const std::span<float> values = std::span(buffer).first(static_cast<std::size_t>(count));
                if (!broadcast_piece(weights, parameter.name, done, values, comm, status)) return comm.agree(status);
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
    std::optional<checkpoint::WeightWriter> writer;
    if (comm.rank() == 0) {
        auto opened = open_writer(store.model(), where);
        if (opened.ok()) {
            writer.emplace(std::move(opened).value());
        } else {
            status = opened.error();
        }
    }
    ATOLL_RETURN_IF_ERROR(comm.agree(write_outcome(status)));
    PieceGatherer pieces(backend, comm);
    for (std::size_t group = 0; group < store.group_count(); ++group) {
        pieces.gather(store.exact_weights(group), store.cut(group), [&](std::span<const float> values) {
            if (status.ok()) status = writer->append(values);
        });
    }
    if (writer && status.ok()) status = writer->finish();
    return comm.agree(write_outcome(status));
}

}  // namespace atl::train
