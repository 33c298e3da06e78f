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
                return invalid_argument("--precision", "'" + name + "' has a value beyond the range of this format");
            }
        }
    }
    return {};
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

Status load_weights(const checkpoint::WeightReader& weights, const ParameterStore& store, kernels::Backend& backend) {
    std::vector<float> buffer(kPieceElements);
    for (std::size_t group = 0; group < store.group_count(); ++group) {
        const model::ParameterGroup& parameters = store.model().groups[group];
        const auto load = [&](const Tensor& kept) {
            return load_flat(weights, parameters, store.begin_of(kept, group), kept, backend, buffer);
        };
        ATOLL_RETURN_IF_ERROR(load(store.weights(group)));
        if (store.has_masters(group)) ATOLL_RETURN_IF_ERROR(load(store.masters(group)));
    }
    return {};
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
    ATOLL_RETURN_IF_ERROR(comm.agree(status));
    PieceGatherer pieces(backend, comm);
    for (std::size_t group = 0; group < store.group_count(); ++group) {
        pieces.gather(store.exact_weights(group), store.cut(group), [&](std::span<const float> values) {
            if (status.ok()) status = writer->append(values);
        });
    }
    if (writer && status.ok()) status = writer->finish();
    return comm.agree(status);
}

}  // namespace atl::train
