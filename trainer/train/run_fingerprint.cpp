#include "trainer/train/run_fingerprint.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <type_traits>
#include <variant>

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/comm/read_progress.h"
#include "trainer/model_io/model_directory.h"

namespace atl::train {
namespace {

constexpr std::size_t kDigestCharacters = 64;  // of a sha256

// Does not compile once one of these types has another number of members: whoever adds one decides here whether
// mathematics_json() needs it.
void name_all_members(const model::ModelConfig& config) {
    [[maybe_unused]] const auto& [architecture, vocabulary, hidden, intermediate, layers, heads, kv_heads, head_dim,
                                  positions_max, window, embedding, eps, range, tied, rope, dtype, bos, eos] = config;
    [[maybe_unused]] const auto& [model_type, norm, activation, positions, head_norms, qkv_bias, out_bias, ff_bias,
                                  prefix, attention_norm, out, ff_norm, gate, up, down, final_norm] = architecture;
    [[maybe_unused]] const auto& [kind, theta, factor, low, high, original, fast, slow, truncate, attention] = rope;
}

// What config.json says of the mathematics, under its keys. The dtype and the special tokens are no part of it.
nlohmann::json mathematics_json(const model::ModelConfig& config) {
    const model::RopeConfig& rope = config.rope;
    name_all_members(config);
    nlohmann::json mathematics = {
        {"model_type", config.architecture.model_type},
        {"activation", static_cast<int>(config.architecture.activation)},
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
        {"biases", {config.architecture.qkv_bias, config.architecture.out_bias, config.architecture.feed_forward_bias}},
        {"rope_theta", rope.theta},
        {"rope_scaling",
         {static_cast<int>(rope.kind), rope.factor, rope.low_freq_factor, rope.high_freq_factor,
          rope.original_max_position_embeddings}}};
    if (rope.kind == model::RopeKind::kYarn)
        mathematics["yarn"] = {rope.beta_fast, rope.beta_slow, rope.truncate, rope.attention_factor};
    return mathematics;
}

using run_settings::Effect;

nlohmann::json value_json(const RunConfig& config, const run_settings::Option& option) {
    const auto json = [&]<class T>(T RunConfig::* member) -> nlohmann::json {
        if constexpr (std::is_arithmetic_v<T>) return config.*member;
        return run_settings::value_text(config, option);
    };
    return std::visit(json, option.member);
}

// The options with this effect, by their flags.
nlohmann::json options_json(const RunConfig& config, Effect effect) {
    nlohmann::json flags = nlohmann::json::object();
    for (const run_settings::Option& option : run_settings::options()) {
        if (option.effect == effect && (option.commands & run_settings::kTrain) != 0)
            flags[std::string(option.name)] = value_json(config, option);
    }
    return flags;
}

// What an adapter's matrices are, and which of them train.
nlohmann::json adapter_flags(const model::LoraOptions& lora) {
    nlohmann::json flags = {{"lora-rank", lora.rank}, {"lora-targets", lora.targets}};
    if (lora.freeze_a) flags["lora-freeze-a"] = "on";
    // Only where it says anything, as states from before there was such a thing lack it.
    if (const auto only_in_file = adapter::peft_keys(lora.peft); !only_in_file.empty())
        flags["adapter_config.json"] = only_in_file;
    return flags;
}

// The settings that the weights depend on, by their flags: those of the table, and what the indirect ones come to. Of
// these, files and rows count by their content.
nlohmann::json flags_json(const PreparedRun& prepared) {
    const RunConfig& config = prepared.config;
    nlohmann::json flags = options_json(config, Effect::kResult);
    flags.update({{"steps", prepared.steps},
                  {"global-batch-size", prepared.batch.global},
                  {"compute-dtype", to_string(config.computes_in())},
                  {"residual-dtype", to_string(config.residual_in())}});
    // Only where they differ, as states from before there was such an option lack them.
    if (config.lr_embedding > 0 && config.lr_embedding != config.lr) flags["lr-embedding"] = config.lr_embedding;
    if (config.optimizer == run_settings::OptimizerKind::kMuon) flags["momentum"] = config.momentum_used();
    if (config.control_variate > 0) flags["control-variate"] = config.control_variate;
    if (config.control_variate > 0 && config.token_counts) flags["token-counts"] = true;  // it shortens corrections
    if (config.warmup_from_zero == run_settings::OnOff::kOff) flags["warmup-from-zero"] = "off";
    if (config.schedule_runs > 1)
        flags.update({{"schedule-runs", config.schedule_runs}, {"schedule-run", config.schedule_run}});
    if (!prepared.directory.adapters) return flags;
    const model::LoraOptions& lora = prepared.directory.adapters->options;
    flags.update({{"lora-alpha", lora.alpha}, {"lora-dropout", lora.dropout}});
    flags.update(adapter_flags(lora));
    return flags;
}

// The sha256 of the rows, which is what data.json says where there is one.
Result<std::string> check_fingerprint(const dataset::Dataset& dataset, comm::ReadProgress& progress) {
    ATOLL_TRY(std::string found, dataset.sha256([&](std::int64_t bytes) { progress.add(bytes); }));
    const std::string& told = dataset.info().fingerprint;
    if (told.empty() || told == found) return found;
    return conflict("data.json says that the rows have the sha256 " + told + ", but it is " + found +
                        ": they were damaged or changed; run tokenize again",
                    dataset.path().string());
}

nlohmann::json model_json(const model::Model& model) {
    nlohmann::json json = mathematics_json(model.config);
    json["parameters"] = model.parameter_count();
    return json;
}

// Gives every rank the digest that rank 0 reads, or rank 0's error.
template <class Read>
Result<std::string> digest_of_rank0(comm::Comm& comm, Read&& read) {
    const Result<std::string> mine = comm.rank() == 0 ? read() : std::string(kDigestCharacters, ' ');
    ATOLL_TRY(std::string digest, comm::agreed(comm, mine));
    comm.broadcast(std::as_writable_bytes(std::span(digest)), 0);
    return digest;
}

}  // namespace

Result<std::string> data_fingerprint(const dataset::Dataset& dataset, comm::Comm& comm) {
    std::error_code error;
    const auto size = static_cast<std::int64_t>(std::filesystem::file_size(dataset.path(), error));  // -1: not known
    comm::ReadProgress progress(comm, "hashing the rows", size);
    return digest_of_rank0(comm, [&] { return check_fingerprint(dataset, progress); });
}

Result<std::string> run_fingerprint(const PreparedRun& prepared, comm::Comm& comm) {
    const model_io::ModelDirectory& directory = prepared.directory;
    ATOLL_TRY(const std::string rows, data_fingerprint(prepared.data.dataset, comm));
    nlohmann::json flags = flags_json(prepared);
    // With --optimizer-if-named a run goes on from its own state whether it began with those moments or not.
    if (!prepared.config.optimizer_from.empty() && prepared.config.optimizer_if_named.empty()) {
        const auto kept = checkpoint::optimizer_file(prepared.config.optimizer_from);
        ATOLL_TRY(flags["optimizer-from"], digest_of_rank0(comm, [&] { return checkpoint::optimizer_digest(kept); }));
    }
    // Likewise.
    if (prepared.control_variate && !prepared.control_variate->sha256().empty() &&
        prepared.config.control_variate_if_named.empty())
        flags["control-variate-from"] = prepared.control_variate->sha256();
    nlohmann::json model = model_json(directory.model);
    model["sha256"] = prepared.base_sha256;
    nlohmann::json adapter = nlohmann::json::object();
    if (!prepared.adapter_sha256.empty()) adapter["sha256"] = prepared.adapter_sha256;
    const nlohmann::json data = {{"sha256", rows}, {"rows", prepared.data.rows}, {"seq_len", prepared.seq_len()}};
    return nlohmann::json{{"flags", flags}, {"model", model}, {"adapter", adapter}, {"data", data}}.dump();
}

std::string optimizer_fingerprint(const PreparedRun& prepared) {
    const RunConfig& config = prepared.config;
    nlohmann::json flags = {{"optimizer", to_string(config.optimizer)},
                            {"moments-dtype", to_string(config.moments_dtype)}};
    if (const auto& adapters = prepared.directory.adapters) flags.update(adapter_flags(adapters->options));
    return nlohmann::json{{"flags", flags}, {"model", model_json(prepared.directory.model)}}.dump();
}

std::string result_fingerprint(const std::string& fingerprint, const RunConfig& config) {
    nlohmann::json all = nlohmann::json::parse(fingerprint);
    all["flags"].update(options_json(config, Effect::kSavedFiles));
    return all.dump();
}

}  // namespace atl::train
