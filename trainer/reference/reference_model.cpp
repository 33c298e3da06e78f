#include "trainer/reference/reference_model.h"

#include <cmath>
#include <utility>

namespace atl::reference {

struct ReferenceModel::Positions {
    std::int64_t length = 0;
    std::vector<std::int64_t> in_document;
    std::vector<std::int64_t> starts;
    std::vector<std::int64_t> targets;  // −1: does not count
};

namespace {

std::vector<std::int64_t> ids_of(const model::HostBatch& rows) {
    return {rows.input_ids.begin(), rows.input_ids.end()};
}

// Whether row t of the batch begins a document.
bool begins(const model::HostBatch& rows, std::size_t t) {
    if (t % static_cast<std::size_t>(rows.shape.length) == 0) return true;
    return !rows.segment_ids.empty() && rows.segment_ids[t] != rows.segment_ids[t - 1];
}

}  // namespace

ReferenceModel::ReferenceModel(const model::ModelConfig& config, std::map<std::string, Matrix> parameters)
    : ReferenceModel(config, std::move(parameters), 1, Mistakes()) {}

ReferenceModel::ReferenceModel(const model::ModelConfig& config, std::map<std::string, Matrix> parameters,
                               double lora_scale, const Mistakes& mistakes)
    : config_(config), parameters_(std::move(parameters)), lora_scale_(lora_scale), mistakes_(mistakes) {}

double ReferenceModel::loss_and_gradients(const model::HostBatch& rows) {
    sides_.clear();
    return loss(rows, true);
}

double ReferenceModel::loss_nearby(const model::HostBatch& rows) {
    return loss(rows, false);
}

double ReferenceModel::loss(const model::HostBatch& rows, bool with_gradients) {
    Positions positions{rows.shape.length, {}, {}, {}};
    const auto labels = rows.labels.empty() ? rows.input_ids : rows.labels;
    const std::size_t ahead = mistakes_.labels_shifted_twice ? 2 : 1;
    for (std::size_t t = 0; t < rows.input_ids.size(); ++t) {
        const bool first = begins(rows, t);
        positions.in_document.push_back(first ? 0 : positions.in_document.back() + 1);
        const auto in_row = static_cast<std::int64_t>(t) % rows.shape.length;
        positions.starts.push_back(in_row - positions.in_document.back());
        const bool in_row_still = in_row + static_cast<std::int64_t>(ahead) < rows.shape.length;
        const bool counts = in_row_still && !begins(rows, t + ahead) && labels[t + ahead] >= 0;
        positions.targets.push_back(counts ? labels[t + ahead] : -1);
    }
    Tape tape;
    leaves_.clear();
    for (const auto& [name, value] : parameters_) leaves_.emplace(name, tape.borrow(value));
    const Node logits =
        config_.architecture.model_type == "opt" ? opt(tape, rows, positions) : llama(tape, rows, positions);
    const Node result = tape.mean_loss(logits, positions.targets);
    if (with_gradients) {
        gradients_.clear();
        Matrix one(1, 1);
        one(0, 0) = 1;
        tape.backward(result, std::move(one));
        for (const auto& [name, node] : leaves_) gradients_.emplace(name, tape.take_gradient(node));
    }
    return tape.value(result)(0, 0);
}

// With a bias and an adapter where there are some.
Tape::Node ReferenceModel::linear(Tape& tape, Node x, const std::string& module) const {
    Node y = tape.product(x, of(module + ".weight"));
    if (parameters_.contains(module + ".bias")) y = tape.add_row(y, of(module + ".bias"));
    const std::string adapter = "base_model.model." + module;
    if (!parameters_.contains(adapter + ".lora_A.weight")) return y;
    const Node low = tape.product(x, of(adapter + ".lora_A.weight"));
    return tape.add(y, tape.scale(tape.product(low, of(adapter + ".lora_B.weight")), lora_scale_));
}

Tape::Node ReferenceModel::norm(Tape& tape, Node x, const std::string& name) const {
    if (parameters_.contains(name + ".bias")) {
        return tape.layer_norm(x, of(name + ".weight"), of(name + ".bias"), config_.norm_eps);
    }
    return tape.rms_norm(x, of(name + ".weight"), config_.norm_eps, mistakes_.broken_norm_derivative);
}

// Each head by itself, where there is such a norm.
Tape::Node ReferenceModel::norm_heads(Tape& tape, Node x, const std::string& name) const {
    if (!parameters_.contains(name + ".weight") || mistakes_.plain_heads) return x;
    const std::int64_t rows = tape.value(x).rows, columns = tape.value(x).columns;
    const Node heads = tape.reshape(x, rows * columns / config_.head_dim, config_.head_dim);
    return tape.reshape(norm(tape, heads, name), rows, columns);
}

Tape::Node ReferenceModel::attend(Tape& tape, Node query, Node key, Node value, const Positions& positions) const {
    const double factor = mistakes_.unscaled_scores ? 1.0 : 1.0 / std::sqrt(static_cast<double>(config_.head_dim));
    return tape.attention(query, key, value,
                          {positions.length, config_.head_dim, positions.starts, factor, mistakes_.probability_bits});
}

// By the head's matrix, or the embedding's.
Tape::Node ReferenceModel::logits(Tape& tape, Node x, const std::string& embedding) const {
    const Node exact = tape.product(x, of(config_.tie_word_embeddings ? embedding : "lm_head.weight"));
    return mistakes_.logit_bits > 0 ? tape.round(exact, mistakes_.logit_bits) : exact;
}

Tape::Node ReferenceModel::llama(Tape& tape, const model::HostBatch& rows, const Positions& positions) const {
    // Angles are products in fp32, as in transformers.
    const std::vector<float> frequencies = config_.rope_frequencies(rows.shape.length);
    std::vector<std::vector<double>> angles;
    for (const std::int64_t position : positions.in_document) {
        angles.emplace_back();
        for (const float frequency : frequencies) {
            angles.back().push_back(static_cast<double>(static_cast<float>(position) * frequency));
        }
    }
    const auto turn = [&](Node x) {
        return tape.scale(tape.rotate(x, angles, mistakes_.interleaved_rotation), config_.rope.attention_factor);
    };
    Node h = tape.rows_of(of("model.embed_tokens.weight"), ids_of(rows));
    for (std::int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
        const std::string prefix = "model.layers." + std::to_string(layer) + ".";
        const auto through = [&](Node x, const char* module) { return linear(tape, x, prefix + module); };
        const Node n = norm(tape, h, prefix + "input_layernorm");
        const Node query = norm_heads(tape, through(n, "self_attn.q_proj"), prefix + "self_attn.q_norm");
        const Node key = norm_heads(tape, through(n, "self_attn.k_proj"), prefix + "self_attn.k_norm");
        const Node seen = attend(tape, turn(query), turn(key), through(n, "self_attn.v_proj"), positions);
        h = tape.add(h, through(seen, "self_attn.o_proj"));
        const Node m = norm(tape, h, prefix + "post_attention_layernorm");
        const Node gated = tape.multiply(tape.silu(through(m, "mlp.gate_proj")), through(m, "mlp.up_proj"));
        h = tape.add(h, through(gated, "mlp.down_proj"));
    }
    const Node last = norm(tape, h, "model.norm");
    return logits(tape, last, "model.embed_tokens.weight");
}

Tape::Node ReferenceModel::opt(Tape& tape, const model::HostBatch& rows, const Positions& positions) {
    const std::string decoder = "model.decoder.";
    std::vector<std::int64_t> places = positions.in_document;
    for (std::int64_t& place : places) place += 2;  // the table's first two rows are never used
    Node tokens = tape.rows_of(of(decoder + "embed_tokens.weight"), ids_of(rows));
    const bool projects = parameters_.contains(decoder + "project_in.weight");
    if (projects) tokens = linear(tape, tokens, decoder + "project_in");
    Node h = tape.add(tokens, tape.rows_of(of(decoder + "embed_positions.weight"), std::move(places)));
    for (std::int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
        const std::string prefix = decoder + "layers." + std::to_string(layer) + ".";
        const auto through = [&](Node x, const char* module) { return linear(tape, x, prefix + module); };
        const Node n = norm(tape, h, prefix + "self_attn_layer_norm");
        const Node seen = attend(tape, through(n, "self_attn.q_proj"), through(n, "self_attn.k_proj"),
                                 through(n, "self_attn.v_proj"), positions);
        h = tape.add(h, through(seen, "self_attn.out_proj"));
        const Node m = norm(tape, h, prefix + "final_layer_norm");
        const Node wide = through(m, "fc1");
        if (sides_.size() <= static_cast<std::size_t>(layer)) sides_.push_back(tape.value(wide));
        h = tape.add(h, through(tape.gate(wide, sides_[static_cast<std::size_t>(layer)]), "fc2"));
    }
    Node last = norm(tape, h, decoder + "final_layer_norm");
    if (projects) last = linear(tape, last, decoder + "project_out");
    return logits(tape, last, decoder + "embed_tokens.weight");
}

}  // namespace atl::reference
