#include "trainer/model_io/weights_io.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "shared/log/warn.h"
#include "trainer/comm/read_progress.h"
#include "trainer/model/initialize.h"
#include "trainer/parallel/gather_to_rank0.h"
#include "trainer/weights/load.h"
#include "trainer/weights/storage.h"

namespace atl::model_io {
namespace {

// Elements loaded at a time: read, checked and put in their place while they are in the second-level cache.
constexpr std::int64_t kPieceElements = 1 << 16;

// Elements of a parameter from `begin` on.
Status read_values(const ModelDirectory& directory, const model::FsdpUnit& unit, const model::Parameter& parameter,
                   std::int64_t begin, std::span<float> values) {
    const std::optional<weights::WeightReader>& weights =
        unit.is_adapter ? directory.adapters->weights : directory.weights;
    for (const model::SliceRun& run : model::runs_of(parameter.slice(), begin, std::ssize(values))) {
        const auto part = values.subspan(static_cast<std::size_t>(run.at), static_cast<std::size_t>(run.count));
        if (weights) {
            ATOLL_RETURN_IF_ERROR(weights->read(parameter.name, run.in_matrix, run.in_matrix + run.count, part));
        } else {  // new adapters
            model::initialize(parameter, directory.adapters->seed, run.in_matrix, part);
        }
    }
    return {};
}

// Hands over a parameter of a quantised unit as the unit keeps it. Such units are the model's own.
Status read_stored(const ModelDirectory& directory, const model::Parameter& parameter, const quant::TakeBytes& take) {
    if (tensor::is_quantized(parameter.stored)) return weights::read_quantized(*directory.weights, parameter, take);
    std::vector<float> values(static_cast<std::size_t>(parameter.element_count()));
    ATOLL_RETURN_IF_ERROR(directory.weights->read(parameter.name, 0, parameter.element_count(), values));
    take(0, std::as_bytes(std::span(values)));
    return {};
}

// Puts bytes of a quantised unit's flat buffer, from `at` on, where this rank keeps them, if it does. `kept` begins at
// `begin`.
void put_kept_bytes(const tensor::Tensor& kept, std::int64_t begin, std::int64_t at, std::span<const std::byte> bytes,
                    kernels::Backend& backend) {
    const std::int64_t from = std::max(at, begin);
    const std::int64_t to = std::min(at + std::ssize(bytes), begin + kept.element_count());
    if (from < to)
        backend.copy_from_host(bytes.data() + (from - at), parallel::flat_range(kept, from - begin, to - from));
}

// What this rank keeps of a quantised unit. A rank that keeps part of a matrix quantises all of it.
Status load_quantized(const ModelDirectory& directory, const model::FsdpUnit& unit, std::int64_t begin,
                      const tensor::Tensor& kept, kernels::Backend& backend, comm::ReadProgress& progress) {
    for (const parallel::Piece& piece : parallel::split_by_parameter(unit, begin, kept.element_count())) {
        const model::Parameter& parameter = unit.parameters[piece.parameter];
        const auto put = [&](std::int64_t at, std::span<const std::byte> bytes) {
            put_kept_bytes(kept, begin, parameter.offset + at, bytes, backend);
            progress.add(0);
        };
        ATOLL_RETURN_IF_ERROR(read_stored(directory, parameter, put));
        progress.add(piece.count);
    }
    return {};
}

// Where values go: to the weights that the model computes with, or to the masters that those are rounded from.
enum class Target : std::uint8_t { kWeights, kMasters };

std::vector<Target> targets_of(const parallel::ParameterStore& store, std::size_t unit) {
    if (store.has_masters(unit)) return {Target::kWeights, Target::kMasters};
    return {Target::kWeights};
}

parallel::ParameterStore::Range target_range(const parallel::ParameterStore& store, std::size_t unit, Target target) {
    if (target == Target::kMasters) return store.saved_range(parallel::ParameterStore::Saved::kExactWeights, unit);
    const tensor::Tensor& weights = store.weights(unit);
    return {store.kept_begin(weights, unit), weights.element_count()};
}

// Elements from `at` on, counted from where the target's range begins; they are of this parameter.
Status put(parallel::ParameterStore& store, std::size_t unit, Target target, const std::string& parameter,
           std::int64_t at, std::span<const float> values, kernels::Backend& backend) {
    if (target == Target::kMasters) {
        return store.write(backend, parallel::ParameterStore::Saved::kExactWeights, unit, at, std::as_bytes(values));
    }
    const tensor::Tensor weights =
        parallel::flat_range(store.weights(unit), at, static_cast<std::int64_t>(values.size()));
    if (weights::store_values(values, weights, backend)) return {};
    return invalid_argument("--precision", "'" + parameter + "' has a value beyond the range of this format");
}

// Reads what this rank keeps of a unit.
Status load_flat(const ModelDirectory& directory, parallel::ParameterStore& store, std::size_t index, Target target,
                 kernels::Backend& backend, std::span<float> buffer, comm::ReadProgress& progress) {
    const model::FsdpUnit& unit = store.model().units[index];
    const parallel::ParameterStore::Range range = target_range(store, index, target);
    if (unit.is_quantized())
        return load_quantized(directory, unit, range.begin, store.weights(index), backend, progress);
    for (const parallel::Piece& piece : parallel::split_by_parameter(unit, range.begin, range.count)) {
        const model::Parameter& parameter = unit.parameters[piece.parameter];
        for (std::int64_t done = 0; done < piece.count; done += kPieceElements) {
            const std::int64_t count = std::min(kPieceElements, piece.count - done);
            const std::span<float> values = buffer.first(static_cast<std::size_t>(count));
            ATOLL_RETURN_IF_ERROR(read_values(directory, unit, parameter, piece.begin + done, values));
            ATOLL_RETURN_IF_ERROR(put(store, index, target, parameter.name, piece.at + done, values, backend));
            progress.add(count);
        }
    }
    return {};
}

// Puts elements [at, at + values.size()) of a unit's flat buffer where this rank keeps them, if it does.
Status put_kept_part(parallel::ParameterStore& store, std::size_t unit, Target target, const std::string& parameter,
                     std::int64_t at, std::span<const float> values, kernels::Backend& backend) {
    const parallel::ParameterStore::Range range = target_range(store, unit, target);
    const std::int64_t from = std::max(at, range.begin);
    const std::int64_t to = std::min(at + static_cast<std::int64_t>(values.size()), range.begin + range.count);
    if (from >= to) return {};
    const auto part = values.subspan(static_cast<std::size_t>(from - at), static_cast<std::size_t>(to - from));
    return put(store, unit, target, parameter, from - range.begin, part, backend);
}

// What rank 0 has to send, or that it failed: false on all ranks, with the reason on rank 0.
bool rank0_has_it(const Status& read, comm::Comm& comm, Status& status) {
    std::byte ok{static_cast<unsigned char>(read.ok())};
    comm.broadcast(std::span(&ok, 1), 0);
    if (!read.ok()) status = read;
    return ok != std::byte{0};
}

// The values of one unit, a piece at a time. False on all ranks when a read failed.
bool broadcast_values(const ModelDirectory& directory, parallel::ParameterStore& store, std::size_t unit,
                      kernels::Backend& backend, comm::Comm& comm, std::span<float> buffer, Status& status,
                      comm::ReadProgress& progress) {
    const model::FsdpUnit& parameters = store.model().units[unit];
    for (const model::Parameter& parameter : parameters.parameters) {
        for (std::int64_t done = 0; done < parameter.element_count(); done += kPieceElements) {
            const std::int64_t count = std::min(kPieceElements, parameter.element_count() - done);
            const std::span<float> values = buffer.first(static_cast<std::size_t>(count));
            Status read;
            if (comm.rank() == 0) read = read_values(directory, parameters, parameter, done, values);
            progress.add(count);
            if (!rank0_has_it(read, comm, status)) return false;
            comm.broadcast(std::as_writable_bytes(values), 0);
            for (const Target target : targets_of(store, unit)) {
                const Status placed =
                    put_kept_part(store, unit, target, parameter.name, parameter.offset + done, values, backend);
                if (status.ok()) status = placed;
            }
        }
    }
    return true;
}

// Sends what rank 0 reads, piece by piece: `take` gets each on every rank, also on rank 0.
Status broadcast_pieces(const std::function<Status(const quant::TakeBytes&)>& read, comm::Comm& comm,
                        const quant::TakeBytes& take) {
    struct Head {
        std::int64_t at = 0;
        std::int64_t size = 0;  // 0: there are no more
    } head;
    std::vector<std::byte> piece;
    const auto exchange = [&] {
        comm.broadcast(std::as_writable_bytes(std::span(&head, 1)), 0);
        piece.resize(static_cast<std::size_t>(head.size));
        if (head.size > 0) comm.broadcast(piece, 0);
        if (head.size > 0) take(head.at, piece);
    };
    Status status;
    if (comm.rank() == 0) {
        status = read([&](std::int64_t at, std::span<const std::byte> bytes) {
            if (bytes.empty()) return;
            head = {at, std::ssize(bytes)};
            piece.assign(bytes.begin(), bytes.end());
            exchange();
        });
        head = {};
        exchange();
    } else {
        do {
            exchange();
        } while (head.size > 0);
    }
    return status;
}

// A quantised unit: rank 0 quantises, so that quantised bytes travel.
bool broadcast_quantized(const ModelDirectory& directory, const parallel::ParameterStore& store, std::size_t unit,
                         kernels::Backend& backend, comm::Comm& comm, Status& status, comm::ReadProgress& progress) {
    const tensor::Tensor& kept = store.weights(unit);
    const std::int64_t begin = store.kept_begin(kept, unit);
    for (const model::Parameter& parameter : store.model().units[unit].parameters) {
        const auto read = [&](const quant::TakeBytes& take) { return read_stored(directory, parameter, take); };
        const auto put = [&](std::int64_t at, std::span<const std::byte> bytes) {
            put_kept_bytes(kept, begin, parameter.offset + at, bytes, backend);
        };
        if (!rank0_has_it(broadcast_pieces(read, comm, put), comm, status)) return false;
        progress.add(parameter.element_count());
    }
    return true;
}

// Of this rank: what it keeps, of masters too; or all that rank 0 sends.
std::int64_t elements_to_load(const parallel::ParameterStore& store, bool from_rank0) {
    if (from_rank0) return store.model().parameter_count();
    std::int64_t elements = 0;
    for (std::size_t unit = 0; unit < store.unit_count(); ++unit)
        for (const Target target : targets_of(store, unit)) elements += target_range(store, unit, target).count;
    return elements;
}

Result<std::vector<weights::TensorSpec>> specs_to_save(const model::ModelConfig& config, const SaveWhere& where) {
    std::vector<weights::TensorSpec> specs = weights::tensor_specs(model::make_model(config), false);
    if (where.dtype) return specs;
    ATOLL_TRY(const auto base, weights::WeightReader::open(where.base));
    for (weights::TensorSpec& spec : specs) {
        ATOLL_TRY(spec.dtype, base.dtype(spec.name));
    }
    return specs;
}

Result<weights::WeightWriter> open_model_writer(const model::ModelConfig& config, const SaveWhere& where) {
    ATOLL_TRY(auto specs, specs_to_save(config, where));
    weights::SaveOptions options;
    options.base = where.base;
    options.dtype = where.dtype;
    return weights::WeightWriter::create(where.out, std::move(specs), options);
}

// In the base's dtype, or in fp32 when it has several.
Result<weights::WeightWriter> open_adapter_writer(const model::ModelConfig& config, const SaveWhere& where) {
    model::Model model = model::make_model(config);
    ATOLL_RETURN_IF_ERROR(model::add_adapters(model, *where.adapters));
    weights::DType dtype = where.dtype.value_or(weights::DType::kF32);
    if (!where.dtype) {
        ATOLL_TRY(const auto base, weights::WeightReader::open(where.base));
        const std::vector<weights::TensorSpec> tensors = base.tensors();
        const auto is_first = [&](const auto& tensor) { return tensor.dtype == tensors.front().dtype; };
        if (std::ranges::all_of(tensors, is_first)) dtype = tensors.front().dtype;
    }
    std::vector<weights::TensorSpec> specs = weights::tensor_specs(model, true);
    for (weights::TensorSpec& spec : specs) spec.dtype = dtype;
    return weights::create_adapter(where.out, std::move(specs), *where.adapters, where.trained_on);
}

}  // namespace

Status load_weights(const ModelDirectory& directory, parallel::ParameterStore& store, kernels::Backend& backend,
                    comm::Comm& comm, bool from_rank0) {
    check(!from_rank0 || store.layout().mesh.model_parts() == 1, "load_weights: rank 0 keeps a part of the model");
    std::vector<float> buffer(kPieceElements);
    comm::ReadProgress progress(comm, "loading the weights", elements_to_load(store, from_rank0));
    Status status;
    for (std::size_t unit = 0; unit < store.unit_count(); ++unit) {
        if (!from_rank0) {
            for (const Target target : targets_of(store, unit))
                if (status.ok()) status = load_flat(directory, store, unit, target, backend, buffer, progress);
            continue;
        }
        const bool sent = store.model().units[unit].is_quantized()
                              ? broadcast_quantized(directory, store, unit, backend, comm, status, progress)
                              : broadcast_values(directory, store, unit, backend, comm, buffer, status, progress);
        if (!sent) break;
    }
    return comm.agree(parallel::write_outcome(status));
}

Status WeightSaver::open(const model::ModelConfig& config, const SaveWhere& where) {
    if (where.delta) return open_delta(config, where);
    ATOLL_TRY(auto writer, adapters_ ? open_adapter_writer(config, where) : open_model_writer(config, where));
    writer_.emplace(std::move(writer));
    return {};
}

// A change before may be lost, which costs little: only whoever did not say so is told by an error.
Status WeightSaver::open_delta(const model::ModelConfig& config, const SaveWhere& where) {
    const SaveDelta& wanted = *where.delta;
    model::Model model = model::make_model(config);
    if (adapters_) ATOLL_RETURN_IF_ERROR(model::add_adapters(model, *adapters_));
    const std::vector<weights::TensorSpec> specs = weights::tensor_specs(model, adapters_.has_value());
    weights::DeltaOptions options{wanted.format, wanted.base_name, {}, wanted.error_out, wanted.error_name, {}};
    if (!wanted.error_from.empty()) {
        auto error = weights::RoundingError::open(wanted.error_from, specs, wanted.error_if_named);
        if (!error.ok() && (wanted.error_if_named.empty() || is_transient(error.error().code))) return error.error();
        begins_without_error_ = !error.ok();
        if (error.ok()) options.error.emplace(std::move(error).value());
        if (!error.ok()) log::warn("the rounding error of the earlier run is not added: " + describe(error.error()));
    }
    ATOLL_TRY(StagedDirectory staged, StagedDirectory::create(where.out));
    if (adapters_) {
        ATOLL_TRY(options.metadata, weights::stage_adapter(staged, *adapters_, where.trained_on));
    } else {
        ATOLL_RETURN_IF_ERROR(weights::stage_model_files(staged, where.base));
    }
    ATOLL_TRY(auto base,
              adapters_ ? weights::WeightReader::open_adapter(where.adapter) : weights::WeightReader::open(where.base));
    ATOLL_TRY(auto writer,
              weights::DeltaWriter::create(std::move(staged), adapters_ ? weights::kAdapterConfig : "config.json",
                                           std::move(base), specs, std::move(options)));
    delta_writer_.emplace(std::move(writer));
    return {};
}

Status WeightSaver::append(std::span<const float> values) {
    return delta_writer_ ? delta_writer_->append(values) : writer_->append(values);
}

std::uint64_t WeightSaver::bytes() const {
    if (delta_writer_) return delta_writer_->bytes();
    return writer_ ? writer_->size().bytes : 0;
}

Result<WeightSaver> WeightSaver::create(const model::Model& model, comm::Comm& comm, const SaveWhere& where) {
    WeightSaver saver;
    if (where.adapters != nullptr) saver.adapters_ = *where.adapters;
    Status status;
    if (comm.rank() == 0) status = saver.open(model.config, where);
    ATOLL_RETURN_IF_ERROR(comm.agree(parallel::write_outcome(status)));
    return saver;
}

Status WeightSaver::add_file(const std::string& name, std::string_view bytes, comm::Comm& comm) {
    Status added;
    if (comm.rank() == 0) added = delta_writer_ ? delta_writer_->add_file(name, bytes) : writer_->add_file(name, bytes);
    return comm.agree(parallel::write_outcome(added));
}

std::filesystem::path WeightSaver::staged() const {
    if (delta_writer_) return delta_writer_->staged();
    return writer_ ? writer_->staged() : std::filesystem::path();
}

Status WeightSaver::save_copy(const std::filesystem::path& out, parallel::ParameterStore& store,
                              kernels::Backend& backend, comm::Comm& comm) {
    WeightSaver copy;
    copy.adapters_ = adapters_;
    const auto open = [&]() -> Status {
        ATOLL_TRY(auto writer, weights::WeightWriter::create_like(*writer_, out));
        copy.writer_.emplace(std::move(writer));
        return {};
    };
    ATOLL_RETURN_IF_ERROR(comm.agree(parallel::write_outcome(comm.rank() == 0 ? open() : Status())));
    return copy.save(store, backend, comm);
}

Status WeightSaver::save(parallel::ParameterStore& store, kernels::Backend& backend, comm::Comm& comm) {
    Status status;
    parallel::GatherToRank0 pieces(backend, comm, store);
    for (const parallel::PlacedTensor& tensor : parallel::placed_tensors(store, adapters_ ? &*adapters_ : nullptr)) {
        const Status read = pieces.gather(tensor, [&](std::span<const float> values) {
            if (status.ok()) status = append(values);
        });
        if (status.ok()) status = read;
    }
    ATOLL_RETURN_IF_ERROR(
        comm.agree(parallel::write_outcome(status)));  // of every rank's pieces, before anything appears
    if (comm.rank() == 0) status = delta_writer_ ? delta_writer_->finish() : writer_->finish();
    return comm.agree(parallel::write_outcome(status));
}

std::int64_t save_buffer_bytes(const model::Model& model, bool adapters) {
    constexpr std::int64_t kWidth = sizeof(float), kWriter = std::int64_t{1} << 20;  // of safetensors::Writer
    std::int64_t largest = 0, all = 0;
    for (const model::FsdpUnit& unit : model.units) {
        if (unit.is_adapter != adapters) continue;
        for (const model::Parameter& parameter : unit.parameters) {
            largest = std::max(largest, parameter.element_count());
            all += parameter.element_count();
        }
    }
    // A piece as it is kept, widened, and narrowed again; and what the writer holds back.
    const std::int64_t piece = std::min(parallel::GatherToRank0::kPieceElements, largest);
    return kWidth * 3 * piece + std::min(kWriter, kWidth * all);
}

}  // namespace atl::model_io
