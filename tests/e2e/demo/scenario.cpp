#include "tests/e2e/demo/scenario.h"

#include <algorithm>

namespace atl::demo {

using json::Json;

const std::vector<Site>& sites() {
    static const std::vector<Site> all = {
        {"leonardo", "it", "fortunes-it", "scrivi un seguente documento::", "GPL-2.0"},
        {"karolina", "cs", "fortunes-cs", "Napište dokument::", "GPL-2.0"}};
    return all;
}

std::string prompt_template(const Site& site) {
    return site.instruction + " {{text}}";
}

Json registered_dataset(const Site& site) {
    return {{"name", site.dataset},
            {"language", site.language},
            {"license", site.license},
            {"template", prompt_template(site)},
            {"source", "Debian package " + site.dataset}};
}

namespace {

Json shared_settings(int steps, int batch_size) {
    return {{"steps", steps},     {"batch_size", batch_size}, {"warmup_steps", std::min(5, steps)},
            {"beta2", 0.95},      {"weight_decay", 0.1},      {"max_grad_norm", 1.0},
            {"precision", "fp32"}};
}

Json muon_settings(int steps, int batch_size, double embedding_rate, double beta1) {
    Json settings = shared_settings(steps, batch_size);
    settings.update({{"optimizer", "muon"},
                     {"lr", 9e-3},
                     {"momentum", 0.9},
                     {"lr_embedding", embedding_rate},
                     {"beta1", beta1},
                     {"schedule", "linear"}});
    return settings;
}

}  // namespace

Json base_settings(int steps, int batch_size) {
    Json settings = shared_settings(steps, batch_size);
    settings.update({{"optimizer", "adamw"}, {"lr", 3e-3}, {"beta1", 0.9}, {"schedule", "constant"}});
    return settings;
}

Json federated_settings(int steps, int batch_size) {
    Json settings = muon_settings(steps, batch_size, 27e-3, 0.6);
    settings.update({{"keep_optimizer", true}, {"update_format", "int4"}});
    return settings;
}

Json pooled_muon_settings(int steps, int batch_size) {
    return muon_settings(steps, batch_size, 40e-3, 0.4);
}

Json pooled_adamw_settings(int steps, int batch_size) {
    Json settings = shared_settings(steps, batch_size);
    settings.update(
        {{"optimizer", "adamw"}, {"lr", 4.5e-3}, {"lr_embedding", 18e-3}, {"beta1", 0.6}, {"schedule", "linear"}});
    return settings;
}

Json strategy(std::size_t participants) {
    Json strategy = {{"name", "fedavg"},
                     {"weighting", "uniform"},
                     {"row_weights", "tokens"},
                     {"outer", {{"optimizer", "nesterov"}, {"lr", 1.1}, {"momentum", 0.3}}}};
    if (participants > 1) strategy["control_variate"] = 0.7;
    return strategy;
}

Json model_config() {
    return {{"architectures", {"LlamaForCausalLM"}},
            {"model_type", "llama"},
            {"vocab_size", 2000},
            {"hidden_size", 128},
            {"intermediate_size", 352},
            {"num_hidden_layers", 4},
            {"num_attention_heads", 4},
            {"num_key_value_heads", 4},
            {"hidden_act", "silu"},
            {"max_position_embeddings", 256},
            {"rms_norm_eps", 1e-5},
            {"rope_theta", 10000.0},
            {"tie_word_embeddings", false},
            {"torch_dtype", "float16"},
            {"initializer_range", 0.02},
            {"bos_token_id", 1},
            {"eos_token_id", 2}};
}

}  // namespace atl::demo
