#include "shared/model_config/tensors.h"

#include <algorithm>
#include <cstring>
#include <memory>

namespace atl::model_config {
namespace {

using safetensors::DType;
using safetensors::TensorInfo;
using Shape = std::vector<std::int64_t>;

// Collects the tensors under one prefix.
class Tensors {
  public:
    Tensors(std::vector<TensorShape>& out, std::string prefix) : out_(out), prefix_(std::move(prefix)) {}

    void add(std::string_view name, Shape shape) { out_.push_back({prefix_ + std::string(name), std::move(shape)}); }
    void add_linear(std::string_view name, std::int64_t rows, std::int64_t columns, bool bias) {
        add(std::string(name) + ".weight", {rows, columns});
        if (bias) add(std::string(name) + ".bias", {rows});
    }
    void add_norm(std::string_view name, const ModelConfig& config) {
        add(std::string(name) + ".weight", {config.hidden_size});
        if (config.architecture.norm == NormKind::kLayer) add(std::string(name) + ".bias", {config.hidden_size});
    }

  private:
    std::vector<TensorShape>& out_;
    std::string prefix_;
};

void add_layer(const ModelConfig& config, Tensors layer) {
    const Architecture& family = config.architecture;
    const std::int64_t hidden = config.hidden_size, feed_forward = config.intermediate_size;
    const std::int64_t queries = config.num_attention_heads * config.head_dim;
    const std::int64_t keys = config.num_key_value_heads * config.head_dim;
    layer.add_norm(family.attention_norm, config);
    layer.add_linear("self_attn.q_proj", queries, hidden, family.qkv_bias);
    layer.add_linear("self_attn.k_proj", keys, hidden, family.qkv_bias);
    layer.add_linear("self_attn.v_proj", keys, hidden, family.qkv_bias);
    if (family.head_norms) {
        layer.add("self_attn.q_norm.weight", {config.head_dim});
        layer.add("self_attn.k_norm.weight", {config.head_dim});
    }
    layer.add_linear(family.out, hidden, queries, family.out_bias);
    layer.add_norm(family.feed_forward_norm, config);
    if (family.activation == Activation::kSwiglu)
        layer.add_linear(family.gate, feed_forward, hidden, family.feed_forward_bias);
    layer.add_linear(family.up, feed_forward, hidden, family.feed_forward_bias);
    layer.add_linear(family.down, hidden, feed_forward, family.feed_forward_bias);
}

Error about(const std::filesystem::path& path, std::string_view name, const std::string& what) {
    return invalid_argument(path.string(), path.string() + ": tensor \"" + std::string(name) + "\" " + what);
}

Status check_tensor(const safetensors::Model::Entry& entry, const TensorShape& expected, const char* needed_by) {
    const TensorInfo& tensor = *entry.tensor;
    if (tensor.shape != expected.shape)
        return about(entry.file->path(), tensor.name,
                     "has the shape " + shape_text(tensor.shape) + ", but " + needed_by + " needs " +
                         shape_text(expected.shape));
    if (!is_weight_dtype(tensor.dtype))
        return about(entry.file->path(), tensor.name,
                     std::string("is ") + to_string(tensor.dtype) + "; only F32, F16 and BF16 weights can be loaded");
    return {};
}

// Whether an exponent has all its bits set, which NaN and the infinities have and no other value.
template <class Bits>
bool all_finite(std::span<const std::byte> bytes, Bits exponent) {
    Bits bad = 0;
    for (std::size_t at = 0; at + sizeof(Bits) <= bytes.size(); at += sizeof(Bits)) {
        Bits value;
        std::memcpy(&value, bytes.data() + at, sizeof(Bits));
        bad |= static_cast<Bits>((value & exponent) == exponent);
    }
    return bad == 0;
}

bool all_finite(DType dtype, std::span<const std::byte> bytes) {
    if (dtype == DType::kF32) return all_finite<std::uint32_t>(bytes, 0x7F800000);
    return all_finite<std::uint16_t>(bytes, dtype == DType::kF16 ? 0x7C00 : 0x7F80);
}

Status check_tensor_values(const safetensors::Model::Entry& entry, std::span<std::byte> buffer,
                           const std::function<void(std::uint64_t bytes)>& on_read) {
    const TensorInfo& tensor = *entry.tensor;
    const auto width = static_cast<std::size_t>(safetensors::size_bytes(tensor.dtype));
    for (std::uint64_t at = 0; at < tensor.end - tensor.begin;) {
        const auto piece = buffer.first(std::min<std::uint64_t>(buffer.size(), tensor.end - tensor.begin - at));
        ATOLL_RETURN_IF_ERROR(entry.file->read(tensor, at, piece));
        if (!all_finite(tensor.dtype, piece)) {
            std::size_t bad = 0;
            while (all_finite(tensor.dtype, piece.subspan(bad, width))) bad += width;
            return about(entry.file->path(), tensor.name,
                         "holds a value that is not finite, at element " + std::to_string((at + bad) / width));
        }
        at += piece.size();
        on_read(piece.size());
    }
    return {};
}

}  // namespace

std::vector<TensorShape> tensors_of(const ModelConfig& config) {
    const Architecture& family = config.architecture;
    const std::string prefix(family.prefix);
    const std::int64_t hidden = config.hidden_size, embedding = config.embedding_size();
    std::vector<TensorShape> all;
    Tensors top(all, prefix);
    top.add("embed_tokens.weight", {config.vocab_size, embedding});
    if (family.positions == Positions::kLearned) {
        top.add("embed_positions.weight", {config.max_position_embeddings + kUnusedPositions, hidden});
        if (embedding != hidden) top.add("project_in.weight", {hidden, embedding});
    }
    for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
        add_layer(config, {all, prefix + "layers." + std::to_string(layer) + "."});
    top.add_norm(family.final_norm, config);
    if (embedding != hidden) top.add("project_out.weight", {embedding, hidden});
    if (!config.tie_word_embeddings) all.push_back({kHeadWeight, {config.vocab_size, embedding}});
    return all;
}

std::vector<std::string> ignorable_tensors(const ModelConfig& config) {
    std::vector<std::string> names = {"*.rotary_emb.inv_freq"};
    if (config.tie_word_embeddings) names.emplace_back(kHeadWeight);
    return names;
}

bool is_ignorable(std::string_view name, std::span<const std::string> patterns) {
    return std::any_of(patterns.begin(), patterns.end(), [&](std::string_view pattern) {
        return pattern.starts_with('*') ? name.ends_with(pattern.substr(1)) : name == pattern;
    });
}

Status check_tensors(const safetensors::Model& files, std::span<const TensorShape> expected,
                     std::span<const std::string> ignorable, const char* needed_by, const std::string& where) {
    std::vector<std::string_view> names;
    for (const TensorShape& tensor : expected) {
        const auto* entry = files.find(tensor.name);
        if (entry == nullptr)
            return about(where, tensor.name, std::string("is missing, but ") + needed_by + " needs it");
        ATOLL_RETURN_IF_ERROR(check_tensor(*entry, tensor, needed_by));
        names.push_back(tensor.name);
    }
    std::sort(names.begin(), names.end());
    for (const auto& entry : files.entries()) {
        const std::string& name = entry.tensor->name;
        if (std::binary_search(names.begin(), names.end(), name) || is_ignorable(name, ignorable)) continue;
        return about(entry.file->path(), name, "is none that this model has");
    }
    return {};
}

Status check_values(const safetensors::Model& files, const std::function<void(std::uint64_t bytes)>& on_read) {
    constexpr std::size_t kPieceBytes = 1 << 20;
    const auto buffer = std::make_unique_for_overwrite<std::byte[]>(kPieceBytes);
    for (const auto& entry : files.entries()) {
        if (!is_weight_dtype(entry.tensor->dtype)) continue;
        ATOLL_RETURN_IF_ERROR(check_tensor_values(entry, {buffer.get(), kPieceBytes}, on_read));
    }
    return {};
}

bool is_weight_dtype(DType dtype) {
    return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
    std::string text = "[";
    for (const std::int64_t extent : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
    return text + "]";
}

}  // namespace atl::model_config
