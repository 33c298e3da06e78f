#include "trainer/train/identity.h"

#include <nlohmann/json.hpp>
#include <span>

namespace atl::train {
namespace {

constexpr std::size_t kDigestCharacters = 64;  // of a sha256

// What config.json says of the mathematics, under its keys. The dtype and the special tokens are no part of it.
nlohmann::json mathematics_of(const model::ModelConfig& config) {
    const model::RopeConfig& rope = config.rope;
    return {{"model_type", config.architecture == model::Architecture::kOpt ? "opt" : "llama"},
            {"vocab_size", config.vocab_size},
            {"hidden_size", config.hidden_size},
            {"intermediate_size", config.intermediate_size},
            {"num_hidden_layers", config.num_hidden_layers},
            {"num_attention_heads", config.num_attention_heads},
            {"num_key_value_heads", config.num_key_value_heads},
            {"head_dim", config.head_dim},
            {"max_position_embeddings", config.max_position_embeddings},
            {"word_embed_proj_dim", config.word_embed_proj_dim},
            {"norm_eps", config.norm_eps},
            {"tie_word_embeddings", config.tie_word_embeddings},
            {"rope_theta", rope.theta},
            {"rope_scaling",
             {static_cast<int>(rope.kind), rope.factor, rope.low_freq_factor, rope.high_freq_factor,
              rope.original_max_position_embeddings}}};
}

}  // namespace

Result<std::string> data_fingerprint(const data::Dataset& dataset, comm::Comm& comm) {
    if (!dataset.info().fingerprint.empty()) return dataset.info().fingerprint;
    const auto mine = comm.rank() == 0 ? dataset.sha256() : std::string(kDigestCharacters, ' ');
    ATOLL_TRY(std::string digest, comm::agreed(comm, mine));
    comm.broadcast(std::as_writable_bytes(std::span(digest)), 0);
    return digest;
}

std::string identity_of(const TrainJob& job, const std::string& data_fingerprint, const std::string& base_digest) {
    const RunConfig& config = job.config;
    nlohmann::json identity = {{"steps", job.steps},
                               {"global_batch_size", job.batch.global},
                               {"seq_len", job.seq_len()},
                               {"rows", job.data.rows},
                               {"data", data_fingerprint},
                               {"parameters", job.directory.model.parameter_count()},
                               {"shuffle", config.shuffle},
                               {"cross_document_attention", config.cross_document_attention},
                               {"seed", config.seed},
                               {"optimizer", config.optimizer},
                               {"lr", config.lr},
                               {"schedule", config.schedule},
                               {"warmup_steps", config.warmup_steps},
                               {"beta1", config.beta1},
                               {"beta2", config.beta2},
                               {"eps", config.eps},
                               {"weight_decay", config.weight_decay},
                               {"momentum", config.momentum},
                               {"no_decay_norms", config.no_decay_norms},
                               {"precision", config.precision},
                               {"moments_dtype", config.moments_dtype},
                               {"loss_scale", config.loss_scale},
                               {"max_grad_norm", config.max_grad_norm}};
    identity.update(mathematics_of(job.directory.model.config));
    if (config.quantize != "none") identity["quantize"] = config.quantize;
    if (job.directory.adapters) {
        const model::LoraOptions& lora = job.directory.adapters->options;
        identity.update({{"base_model", base_digest},
                         {"lora_rank", lora.rank},
                         {"lora_alpha", lora.alpha},
                         {"lora_dropout", lora.dropout},
                         {"lora_targets", lora.targets}});
    }
    return identity.dump();
}

}  // namespace atl::train
