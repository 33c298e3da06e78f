#include "trainer/train/token_counts.h"

#include <algorithm>
#include <span>
#include <vector>

#include "shared/model_config/token_counts.h"
#include "trainer/comm/read_progress.h"

namespace atl::train {
namespace {

constexpr std::int64_t kRowsAtOnce = 64;
constexpr std::size_t kCountsAtOnce = 4096;

// Of the rows at positions [begin, end).
Status add_tokens(const PreparedRun& prepared, std::int64_t begin, std::int64_t end, comm::ReadProgress& progress,
                  std::vector<double>& counts) {
    const RunConfig& config = prepared.config;
    const dataset::RowOrder order(prepared.data.rows, config.shuffle == run_settings::OnOff::kOn,
                                  static_cast<std::uint64_t>(config.seed));
    dataset::Batch batch;
    for (std::int64_t at = begin; at < end; at += batch.rows) {
        ATOLL_RETURN_IF_ERROR(prepared.data.dataset.read(order, at, std::min(kRowsAtOnce, end - at), batch));
        for (std::int64_t row = 0; row < batch.rows; ++row) {
            const auto of_row = [&](const std::vector<std::int32_t>& values) {
                return std::span(values).subspan(static_cast<std::size_t>(row * batch.seq_len),
                                                 static_cast<std::size_t>(batch.seq_len));
            };
            const auto labels = of_row(batch.labels);
            std::size_t used = labels.size();
            while (used > 0 && labels[used - 1] < 0) --used;
            for (const std::int32_t id : of_row(batch.input_ids).first(used))
                ++counts[static_cast<std::size_t>(id)];  // within the vocabulary: Dataset::check_tokens
        }
        progress.add(batch.rows);
    }
    return {};
}

// Makes each rank's counts those of all ranks together.
void sum_over_ranks(std::vector<double>& counts, comm::Comm& comm) {
    std::vector<double> gathered(kCountsAtOnce * static_cast<std::size_t>(comm.size()));
    for (std::size_t at = 0; at < counts.size(); at += kCountsAtOnce) {
        const std::span<double> own = std::span(counts).subspan(at, std::min(kCountsAtOnce, counts.size() - at));
        const std::span<double> all = std::span(gathered).first(own.size() * static_cast<std::size_t>(comm.size()));
        comm.all_gather(std::as_bytes(own), std::as_writable_bytes(all));
        std::fill(own.begin(), own.end(), 0.0);
        for (std::size_t i = 0; i < all.size(); ++i) own[i % own.size()] += all[i];
    }
}

}  // namespace

Result<std::string> make_token_counts(const PreparedRun& prepared, comm::Comm& comm) {
    const std::int64_t rows = prepared.steps * prepared.batch.global;
    const auto share = [&](std::int64_t rank) {
        return rows / comm.size() * rank + rows % comm.size() * rank / comm.size();
    };
    const std::int64_t begin = share(comm.rank()), end = share(comm.rank() + 1);
    std::vector<double> counts(static_cast<std::size_t>(prepared.directory.model.config.vocab_size));
    comm::ReadProgress progress(comm, "counting tokens", end - begin);
    ATOLL_RETURN_IF_ERROR(comm.agree(add_tokens(prepared, begin, end, progress, counts)));
    sum_over_ranks(counts, comm);
    std::vector<safetensors::TensorInfo> tensors = {
        {model_config::kTokenCounts, safetensors::DType::kF32, {std::ssize(counts)}, 0, 0}};
    std::string bytes = safetensors::make_header(tensors);
    for (const double count : counts) {
        const auto value = static_cast<float>(count);
        bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    return bytes;
}

}  // namespace atl::train
