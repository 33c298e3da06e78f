#include "shared/model_config/tensors.h"

#include <algorithm>

#include "shared/numeric/finite.h"

namespace atl::model_config {
namespace {

using safetensors::DType;
using safetensors::TensorInfo;
using Shape = std::vector<std::int64_t>;

// Collects the tensors under one prefix.
class Tensors {
  public:
    Tensors(std::vector<TensorSpec>& out, std::string prefix) : out_(out), prefix_(std::move(prefix)) {}

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
    std::vector<TensorSpec>& out_;
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

Status check_tensor(const safetensors::Model::Entry& entry, const TensorSpec& expected, const char* needed_by) {
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

bool all_finite(DType dtype, std::span<const std::byte> bytes) {
    if (dtype == DType::kF32) return numeric::all_finite_f32(bytes);
    return dtype == DType::kF16 ? numeric::all_finite_f16(bytes) : numeric::all_finite_bf16(bytes);
}

// Whole elements of a tensor, from its byte `at` on.
Status check_elements(const safetensors::Model::Entry& entry, std::uint64_t at, std::span<const std::byte> bytes) {
    const DType dtype = entry.tensor->dtype;
    if (all_finite(dtype, bytes)) return {};
    const auto width = static_cast<std::size_t>(safetensors::size_bytes(dtype));
    std::size_t bad = 0;
    while (all_finite(dtype, bytes.subspan(bad, width))) bad += width;
    return about(entry.file->path(), entry.tensor->name,
                 "holds a value that is not finite, at element " + std::to_string((at + bad) / width));
}

// The bytes [begin, end) of a tensor, which `bytes` are. An element of which they have the first part alone is read
// from the file; one of which they have the last is whoever's who has the first.
Status check_part(const safetensors::Model::Entry& entry, std::uint64_t begin, std::span<const std::byte> bytes) {
    const TensorInfo& tensor = *entry.tensor;
    const auto width = static_cast<std::uint64_t>(safetensors::size_bytes(tensor.dtype));
    const std::uint64_t end = begin + bytes.size();
    const std::uint64_t first = (begin + width - 1) / width * width, last = end / width * width;
    if (first < last) ATOLL_RETURN_IF_ERROR(check_elements(entry, first, bytes.subspan(first - begin, last - first)));
    if (last == end || last < begin) return {};
    std::byte cut[8];
    const std::span<std::byte> element(cut, width);
    ATOLL_RETURN_IF_ERROR(entry.file->read(tensor, last, element));
    return check_elements(entry, last, element);
}

}  // namespace

std::vector<TensorSpec> tensors_of(const ModelConfig& config) {
    const Architecture& family = config.architecture;
    const std::string prefix(family.prefix);
    const std::int64_t hidden = config.hidden_size, embedding = config.embedding_size();
    std::vector<TensorSpec> all;
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

Status check_tensors(const safetensors::Model& files, std::span<const TensorSpec> expected,
                     std::span<const std::string> ignorable, const char* needed_by, const std::string& where) {
    std::vector<std::string_view> names;
    for (const TensorSpec& tensor : expected) {
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

ValueCheck::ValueCheck(const safetensors::Model& files) {
    for (const auto& entry : files.entries())
        if (is_weight_dtype(entry.tensor->dtype)) entries_[entry.file->path().string()].push_back(entry);
}

Status ValueCheck::check(const std::filesystem::path& file, std::uint64_t offset,
                         std::span<const std::byte> bytes) const {
    const auto found = entries_.find(file.string());
    if (found == entries_.end()) return {};
    const std::uint64_t end = offset + bytes.size();
    for (const safetensors::Model::Entry& entry : found->second) {
        const std::uint64_t data = entry.file->header().data_begin;
        const std::uint64_t from = std::max(offset, data + entry.tensor->begin);
        const std::uint64_t to = std::min(end, data + entry.tensor->end);
        if (from >= to) continue;
        ATOLL_RETURN_IF_ERROR(
            check_part(entry, from - data - entry.tensor->begin, bytes.subspan(from - offset, to - from)));
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
