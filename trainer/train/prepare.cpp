#include "trainer/train/prepare.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "shared/digest/digest.h"
#include "shared/log/warn.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/comm/read_progress.h"
#include "trainer/tensor/targets.h"
#include "trainer/tokenizer/tokenizer.h"
#include "trainer/train/input_paths.h"
#include "trainer/weights/save.h"

namespace atl::train {
namespace {

Status check_tokenizer(const dataset::Dataset& dataset, const model_io::ModelDirectory& directory) {
    if (dataset.info().tokenizer_sha256.empty()) return {};
    const auto tokenizer = tokenizer::Tokenizer::open(directory.path);
    if (tokenizer.ok()) return dataset.check_tokenizer((*tokenizer)->sha256(), tokenizer::kReader);
    // A model without a tokenizer is fine on token files.
    return tokenizer.error().code == ErrorCode::kNotFound ? Status() : Status(tokenizer.error());
}

// This rank's share of the rows: begin and end.
std::pair<std::int64_t, std::int64_t> rows_of_rank(std::int64_t rows, const comm::Comm& comm) {
    return {rows * comm.rank() / comm.size(), rows * (comm.rank() + 1) / comm.size()};
}

// Whether any row of this rank's part has a target: mostly the first one has.
Result<bool> find_target(const CheckedData& data, const comm::Comm& comm) {
    const dataset::RowOrder order(data.rows, /*shuffle=*/false, /*seed=*/0);
    const auto [begin, end] = rows_of_rank(data.rows, comm);
    dataset::Batch row;
    for (std::int64_t at = begin; at < end; ++at) {
        ATOLL_RETURN_IF_ERROR(data.dataset.read(order, at, 1, row));
        if (tensor::count_targets(row.labels, row.segment_ids) > 0) return true;
    }
    return false;
}

Result<CheckedData> open_and_check(const RunConfig& settings, const DataSelection& choice,
                                   const model_io::ModelDirectory& directory, comm::Comm& comm) {
    const std::string& path = choice.path;
    const std::int64_t samples_max = choice.samples_max;
    const model::ModelConfig& config = directory.model.config;
    ATOLL_TRY(dataset::Dataset dataset, dataset::Dataset::open(path));
    if (dataset.rows() == 0) return invalid_argument(path, "has no rows");
    if (dataset.seq_len() > config.length_max())
        return invalid_argument(
            path, "its rows of " + std::to_string(dataset.seq_len()) + " tokens are longer than the model's " +
                      std::string(config.length_max_key()) + ", " + std::to_string(config.length_max()));
    ATOLL_RETURN_IF_ERROR(check_tokenizer(dataset, directory));
    if (comm.rank() == 0 && dataset.info().without_end > 0)
        log::warn(path + ": " + std::to_string(dataset.info().without_end) + " of " +
                  std::to_string(dataset.info().documents) +
                  " documents have no end token: the model does not learn where a text ends");
    std::int64_t rows = samples_max > 0 ? std::min(samples_max, dataset.rows()) : dataset.rows();
    if (dataset.rows() - rows < choice.left_out_min) rows = dataset.rows();
    const auto [begin, end] = rows_of_rank(rows, comm);
    comm::ReadProgress progress(comm, "checking the rows", end - begin);
    ATOLL_RETURN_IF_ERROR(dataset.check_tokens(static_cast<std::int32_t>(config.vocab_size), begin, end,
                                               [&](std::int64_t read) { progress.add(read); }));
    const bool join_documents = settings.cross_document_attention == run_settings::OnOff::kOn;
    if (join_documents && !dataset.has_documents() && choice.flag == std::string_view("--data"))
        return invalid_argument("--cross-document-attention",
                                "'on' means nothing: no row of '" + path + "' holds several documents");
    if (join_documents) dataset.join_documents();
    return CheckedData{std::move(dataset), rows};
}

Status settle(PreparedRun& prepared, const RankCounts& counts) {
    const RunConfig& config = prepared.config;
    if (prepared.validation && prepared.validation->dataset.seq_len() != prepared.seq_len()) {
        return invalid_argument("--val-data", "its rows have " +
                                                  std::to_string(prepared.validation->dataset.seq_len()) +
                                                  " tokens, those of --data " + std::to_string(prepared.seq_len()) +
                                                  ": tokenize both with one --seq-len, or use `eval` afterwards");
    }
    ATOLL_TRY(prepared.shard_group, plan_shard_group(config, counts.ranks, counts.on_node));
    const parallel::Mesh mesh = parallel::sharding_mesh(config.sharding, counts.ranks, prepared.shard_group);
    ATOLL_TRY(prepared.batch, plan_batch(config, mesh.data_ranks()));
    ATOLL_RETURN_IF_ERROR(run_settings::check_micro_step(prepared.batch.micro, prepared.seq_len()));
    ATOLL_TRY(prepared.steps, plan_steps(config, prepared.data.rows, prepared.batch.global));
    ATOLL_RETURN_IF_ERROR(check_extent(config, prepared.steps, prepared.directory.model.config.num_hidden_layers));
    if (prepared.validation && prepared.steps == 0)
        return invalid_argument("--val-data", "means nothing with --steps 0, which validates nothing: use `eval`");
    prepared.optimizer = {.kind = config.optimizer,
                          .beta1 = config.beta1,
                          .beta2 = config.beta2,
                          .epsilon = config.eps,
                          .weight_decay = config.weight_decay,
                          .momentum = config.momentum_used()};
    prepared.schedule = prepared.embedding_schedule = run_settings::schedule_of(config, prepared.steps);
    if (config.lr_embedding > 0) prepared.embedding_schedule.peak = config.lr_embedding;
    prepared.directory.model.use_formats(formats_of(config));
    return {};
}

Status check_trainable(const RunConfig& config) {
    ATOLL_RETURN_IF_ERROR(weights::check_not_the_model(config.out, config.model));
    if (config.quantize == run_settings::Quantization::kNone || config.lora_rank > 0 || !config.adapter.empty())
        return {};
    return invalid_argument("--quantize", "'" + std::string(to_string(config.quantize)) +
                                              "' freezes the model: only adapters can be trained on it. Give "
                                              "--lora-rank or --adapter, or leave it out");
}

// What to do that a step takes fewer rows.
std::string smaller_step(const PreparedRun& prepared) {
    if (prepared.batch.micro * prepared.batch.accumulation == 1) return "start fewer ranks";
    if (prepared.config.global_batch_size > 0) return "give a lower --global-batch-size";
    return prepared.config.batch_size > 1 ? "give a lower --batch-size" : "give a lower --grad-accum";
}

// New adapters have nothing that a delta would be a change of.
Status check_delta_base(const RunConfig& config) {
    if (config.update_format == run_settings::UpdateFormat::kModel || config.lora_rank == 0 || !config.adapter.empty())
        return {};
    return invalid_argument("--update-format", std::string(to_string(config.update_format)) +
                                                   " needs --adapter: the change of new adapters has no base");
}

}  // namespace

Status settle_offload_dir(RunConfig& config) {
    if (config.offload_optimizer != run_settings::Offload::kNvme || !config.offload_dir.empty()) return {};
    if (const char* const scratch = std::getenv("TMPDIR")) config.offload_dir = scratch;
    if (!config.offload_dir.empty()) return {};
    return invalid_argument("--offload-dir", "is required: name a directory on a local disk, or set TMPDIR");
}

Result<CheckedData> open_data(const RunConfig& config, const DataSelection& choice,
                              const model_io::ModelDirectory& directory, comm::Comm& comm) {
    ATOLL_RETURN_IF_ERROR(comm.agree(check_data_path(choice.path, choice.flag)));
    ATOLL_TRY(CheckedData data, comm::agreed(comm, open_and_check(config, choice, directory, comm)));
    ATOLL_TRY(const bool found, comm::agreed(comm, find_target(data, comm)));
    double ranks = found ? 1 : 0;
    comm.all_reduce(std::span(&ranks, 1), comm::Reduction::kSum);
    if (ranks > 0) return data;
    return comm  // their loss would be 0 and their perplexity 1, the best there is
        .agree(invalid_argument(choice.flag,
                                "'" + choice.path + "' has no target: no label of its rows counts in the loss"))
        .error();
}

Result<parallel::ParallelLayout> choose_layout(const RunConfig& config, comm::Comm& comm) {
    const RankCounts counts = rank_counts(comm);
    ATOLL_TRY(const int shard_group, plan_shard_group(config, counts.ranks, counts.on_node));
    return parallel::parallel_layout(config.sharding, comm.rank(), comm.size(), shard_group);
}

RankCounts rank_counts(comm::Comm& comm) {
    double on_node = comm.ranks_on_node();
    comm.all_reduce(std::span(&on_node, 1), comm::Reduction::kMax);  // so that all ranks plan alike
    return {comm.size(), static_cast<int>(on_node)};
}

Result<PreparedRun> prepare_training(const RunConfig& config, comm::Comm& comm, const RankCounts& counts,
                                     model_io::Weights wanted) {
    ATOLL_RETURN_IF_ERROR(comm.agree(check_trainable(config)));
    ATOLL_TRY(model_io::ModelDirectory directory, open_model(config, comm, wanted));
    ATOLL_RETURN_IF_ERROR(comm.agree(check_delta_base(config)));
    warn_of_adapters(directory, config, comm);
    digest::sha256("");  // loads what digests take of the program, a few MB, so that a plan counts it
    ATOLL_TRY(CheckedData data, open_data(config, {config.data, "--data", config.train_samples}, directory, comm));
    std::optional<CheckedData> validation;
    if (!config.val_data.empty()) {
        const DataSelection choice{config.val_data, "--val-data", config.val_samples, config.loss_tokens_min};
        ATOLL_TRY(validation, open_data(config, choice, directory, comm));
    }
    PreparedRun prepared{.config = config,
                         .directory = std::move(directory),
                         .data = std::move(data),
                         .validation = std::move(validation)};
    ATOLL_RETURN_IF_ERROR(comm.agree(settle(prepared, counts)));
    if (comm.rank() == 0 && prepared.batch.global > prepared.data.rows && prepared.steps > 0)
        log::warn("a step takes " + std::to_string(prepared.batch.global) + " rows and there are " +
                  std::to_string(prepared.data.rows) + ": each step sees rows several times; " +
                  smaller_step(prepared));
    return prepared;
}

Status read_control_variates(PreparedRun& prepared, comm::Comm& comm) {
    const RunConfig& config = prepared.config;
    if (config.control_variate == 0) return {};
    model_io::ControlVariateFrom from{.model = config.model,
                                      .kept = {},
                                      .if_named = config.control_variate_if_named,
                                      .weighs_rows = config.token_counts};
    if (!config.control_variate_from.empty()) from.kept = checkpoint::control_variate_file(config.control_variate_from);
    ATOLL_TRY(prepared.control_variate, model_io::ControlVariateSource::open(from, prepared.directory.model, comm));
    return {};
}

parallel::RunMemoryOptions run_memory_options(const PreparedRun& prepared, int rank, int ranks) {
    const bool drops = prepared.directory.adapters && prepared.directory.adapters->options.dropout > 0;
    parallel::RunMemoryOptions options;
    options.engine = {.largest = {prepared.batch.micro, prepared.seq_len()},
                      .train = true,
                      .reduce = {.accumulation = prepared.batch.accumulation,
                                 .fixed_tree_sequences = prepared.config.deterministic ? prepared.batch.global : 0},
                      .checkpointing = {prepared.config.activation_checkpointing, prepared.config.checkpoint_layers}};
    if (drops) options.engine.dropout_seed = static_cast<std::uint64_t>(prepared.config.seed);
    options.layout = parallel::parallel_layout(prepared.config.sharding, rank, ranks, prepared.shard_group);
    options.library = prepared.exchange.get();
    options.optimizer = &prepared.optimizer;
    options.offload_params = prepared.config.offload_params;
    options.offload_optimizer = prepared.config.offload_optimizer;
    options.offload_dir = prepared.config.offload_dir;
    options.has_proximal_term = prepared.config.proximal_mu > 0;
    options.has_control_variate = prepared.config.control_variate > 0;
    return options;
}

}  // namespace atl::train
