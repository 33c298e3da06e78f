#include "trainer/train/evaluate.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <vector>

#include "shared/log/progress.h"
#include "shared/log/warn.h"
#include "trainer/comm/launch.h"
#include "trainer/parallel/pairwise_sum.h"
#include "trainer/trace/trace.h"

namespace atl::train {

std::int64_t load_rows(parallel::RunMemory& memory, kernels::Backend& backend, RowPrefetch& prefetch,
                       const RowRange& range) {
    const auto read = [&] {
        const trace::Span span("wait for rows");
        return prefetch.take(range);
    }();
    if (!read.ok()) {  // the other ranks are on their way to the next exchange
        log::warn(read.error().message);
        comm::abort_run(1);
    }
    const dataset::Batch& rows = **read;
    const trace::Span span("load rows");
    const auto targets = memory.batch().load(
        backend, {{range.count, rows.seq_len}, rows.input_ids, rows.labels, rows.segment_ids, range.begin});
    check(targets.ok(), targets.ok() ? "" : "rows that were checked do not load: " + targets.error().message);
    return std::accumulate(targets->begin(), targets->end(), std::int64_t{0});
}

Perplexity evaluate(parallel::RunMemory& memory, kernels::Backend& backend, parallel::ProcessGroups& ranks,
                    const CheckedData& data, std::int64_t micro) {
    return *evaluate_unless([](double) { return false; }, memory, backend, ranks, data, micro);
}

std::optional<Perplexity> evaluate_unless(const std::function<bool(double longest_s)>& stop,
                                          parallel::RunMemory& memory, kernels::Backend& backend,
                                          parallel::ProcessGroups& ranks, const CheckedData& data, std::int64_t micro) {
    using Clock = std::chrono::steady_clock;
    const dataset::RowOrder order(data.rows, /*shuffle=*/false, /*seed=*/0);
    comm::Comm& comm = ranks.sharing().comm();
    const parallel::ParallelLayout& layout = ranks.layout();
    const auto own_rows = [&](std::int64_t at) {
        const std::int64_t begin = std::min(data.rows, at + micro * layout.data_rank());
        return RowRange{begin, std::min(micro, data.rows - begin)};
    };
    RowPrefetch prefetch([&](const RowRange& range, dataset::Batch& batch) {
        return data.dataset.read(order, range.begin, range.count, batch);
    });
    prefetch.start(own_rows(0));
    double targets = 0;
    std::vector<double> losses;  // of each time
    double longest_s = 0;
    log::Progress progress("evaluating " + std::to_string(data.rows) + " rows");
    for (std::int64_t at = 0; at < data.rows; at += micro * layout.data_ranks()) {
        if (stop(longest_s)) return std::nullopt;
        const auto began = Clock::now();
        if (comm.rank() == 0) progress.at(static_cast<double>(at) / static_cast<double>(data.rows));
        const RowRange rows = own_rows(at);
        if (rows.count > 0) {
            targets += static_cast<double>(load_rows(memory, backend, prefetch, rows));
            prefetch.start(own_rows(at + micro * layout.data_ranks()));
        }
        losses.push_back(memory.engine().evaluate(backend, ranks, rows.count > 0 ? &memory.batch().batch() : nullptr,
                                                  memory.scalars().loss()));
        longest_s = std::max(longest_s, std::chrono::duration<double>(Clock::now() - began).count());
    }
    comm.all_reduce(std::span(&targets, 1), comm::Reduction::kSum);
    return compute_perplexity(parallel::sum_by_sequence(comm, losses), targets);
}

}  // namespace atl::train
