#include "trainer/model_io/control_variate_io.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "shared/delta/delta.h"
#include "shared/digest/digest.h"
#include "shared/log/warn.h"
#include "shared/model_config/token_counts.h"
#include "trainer/comm/read_progress.h"
#include "trainer/parallel/gather_to_rank0.h"

namespace atl::model_io {
namespace {

using parallel::GatherToRank0;

constexpr std::size_t kDigestCharacters = 64;  // of a sha256

// Whether rank 0 has read what it sends next; its error is for it to tell.
bool is_read(const Status& on_rank0, comm::Comm& comm) {
    std::byte ok{static_cast<unsigned char>(on_rank0.ok())};
    comm.broadcast(std::span(&ok, 1), 0);
    return ok != std::byte{0};
}

// Elements of as many whole rows as `elements` hold, one at least.
std::int64_t whole_rows(std::int64_t width, std::int64_t elements) {
    return std::max<std::int64_t>(1, elements / width) * width;
}

// A site that has seen little of a token has a short gradient of its row. Its change of the row then weighs little, and
// what the others' gradient would add to it there, step by step, is no more than noise.
void shorten_rows(std::span<const float> common, std::span<float> corrections, std::size_t width) {
    for (std::size_t row = 0; row < corrections.size(); row += width) {
        double of_all = 0, own = 0;
        for (std::size_t i = row; i < row + width; ++i) {
            const double mine = static_cast<double>(common[i]) - corrections[i];
            of_all += static_cast<double>(common[i]) * common[i];
            own += mine * mine;
        }
        if (own >= of_all) continue;
        const auto part = static_cast<float>(std::sqrt(own / of_all));
        for (std::size_t i = row; i < row + width; ++i) corrections[i] *= part;
    }
}

}  // namespace

// Only whoever did not ask for a certain one is told by an error.
Status ControlVariateSource::open_files(const ControlVariateFrom& from, const model::Model& model) {
    const std::vector<weights::TensorSpec> specs = weights::tensor_specs(model, false);
    ATOLL_TRY(auto common, weights::CommonControlVariate::open(from.model, specs));
    if (from.kept.empty()) return {};
    auto own = weights::KeptControlVariate::open(from.kept, specs, from.if_named);
    if (!own.ok() && (from.if_named.empty() || is_transient(own.error().code))) return own.error();
    begins_anew_ = !own.ok();
    if (!own.ok()) {
        log::warn("the control variate begins anew: " + describe(own.error()));
        return {};
    }
    if (!common) {
        log::warn("nothing is added to the gradients: the model has no " + std::string(delta::kControlVariateFolder) +
                  " directory");
        return {};
    }
    ATOLL_TRY(const std::string of_common, common->sha256());
    ATOLL_TRY(const std::string of_own, own->sha256());
    sha256_ = digest::sha256(of_common + of_own);
    common_ = std::move(common);
    own_.emplace(std::move(own).value());
    return {};
}

Result<ControlVariateSource> ControlVariateSource::open(const ControlVariateFrom& from, const model::Model& model,
                                                        comm::Comm& comm) {
    ControlVariateSource source;
    source.weighs_rows_ = from.weighs_rows;
    comm::ReadProgress progress(comm, "reading the control variates", 1);
    ATOLL_RETURN_IF_ERROR(comm.agree(comm.rank() == 0 ? source.open_files(from, model) : Status()));
    source.sha256_.resize(kDigestCharacters, ' ');
    comm.broadcast(std::as_writable_bytes(std::span(source.sha256_)), 0);
    if (source.sha256_.starts_with(' ')) source.sha256_.clear();
    return source;
}

bool ControlVariateSource::has_weighed_rows(const model::Parameter& parameter) const {
    return weighs_rows_ && model_config::has_token_rows(parameter.name, parameter.shape);
}

Status ControlVariateSource::read(float factor, const model::Parameter& parameter, std::int64_t begin,
                                  std::span<float> values) const {
    ATOLL_RETURN_IF_ERROR(common_->read(parameter.name, static_cast<std::uint64_t>(begin), values));
    const bool weighs = has_weighed_rows(parameter);
    const std::vector<float> common = weighs ? std::vector(values.begin(), values.end()) : std::vector<float>();
    ATOLL_RETURN_IF_ERROR(own_->subtract(parameter.name, static_cast<std::uint64_t>(begin), values));
    if (weighs) shorten_rows(common, values, static_cast<std::size_t>(parameter.shape.back()));
    for (float& value : values) value *= factor;
    return {};
}

Status ControlVariateSource::load(double factor, const parallel::ParameterStore& store,
                                  parallel::ControlVariate& control, kernels::Backend& backend, comm::Comm& comm) {
    if (sha256_.empty()) return {};
    check(store.layout().mesh.model_parts() == 1, "ControlVariateSource::load: rank 0 keeps a part of the model");
    std::vector<float> buffer(GatherToRank0::kPieceElements);
    comm::ReadProgress progress(comm, "loading the control variates", store.model().parameter_count());
    Status status;
    for (std::size_t unit = 0; unit < store.unit_count(); ++unit) {
        for (const model::Parameter& parameter : store.model().units[unit].parameters) {
            const std::int64_t piece = has_weighed_rows(parameter)
                                           ? whole_rows(parameter.shape.back(), GatherToRank0::kPieceElements)
                                           : GatherToRank0::kPieceElements;
            buffer.resize(std::max(buffer.size(), static_cast<std::size_t>(piece)));
            for (std::int64_t done = 0; done < parameter.element_count(); done += piece) {
                const std::int64_t count = std::min(piece, parameter.element_count() - done);
                const std::span<float> values = std::span(buffer).first(static_cast<std::size_t>(count));
                if (comm.rank() == 0) status = read(static_cast<float>(factor), parameter, done, values);
                progress.add(count);
                if (!is_read(status, comm)) return comm.agree(parallel::write_outcome(status));
                comm.broadcast(std::as_writable_bytes(values), 0);
                control.set_correction(backend, store, unit, parameter.offset + done, values);
            }
        }
    }
    common_.reset();
    own_.reset();
    return {};
}

Status save_control_variate(const SaveControlVariate& save, parallel::ParameterStore& store, kernels::Backend& backend,
                            comm::Comm& comm) {
    static_assert(GatherToRank0::kPieceElements % delta::kBlockElements == 0);
    std::optional<weights::ControlVariateWriter> writer;  // on rank 0
    const auto open = [&]() -> Status {
        ATOLL_TRY(auto opened,
                  weights::ControlVariateWriter::create(save.files, weights::tensor_specs(store.model(), false)));
        writer.emplace(std::move(opened));
        return {};
    };
    ATOLL_RETURN_IF_ERROR(comm.agree(parallel::write_outcome(comm.rank() == 0 ? open() : Status())));
    Status status;
    GatherToRank0 pieces(backend, comm, store, parallel::ParameterStore::Saved::kGradientSum);
    std::vector<float> mean;
    const auto steps = static_cast<float>(std::max(save.steps, 1.0));
    for (const parallel::PlacedTensor& tensor : parallel::placed_tensors(store, nullptr)) {
        const Status gathered = pieces.gather(tensor, [&](std::span<const float> sums) {
            if (!status.ok()) return;
            mean.assign(sums.begin(), sums.end());
            for (float& value : mean) value /= steps;
            status = writer->append(tensor.name, mean);
        });
        if (status.ok()) status = gathered;
    }
    ATOLL_RETURN_IF_ERROR(comm.agree(parallel::write_outcome(status)));
    return comm.agree(parallel::write_outcome(comm.rank() == 0 ? writer->finish() : Status()));
}

std::uint64_t control_variate_bytes(const model::Model& model) {
    return weights::ControlVariateWriter::bytes(weights::tensor_specs(model, false));
}

}  // namespace atl::model_io
