#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/text.h"
#include "shared/json/json.h"
#include "trainer/importer/foreign_model.h"
#include "trainer/importer/pickle.h"
#include "trainer/tokenizer/tokenizer.h"

// Llama as Meta publishes it (github.com/meta-llama/llama): params.json and a file a model-parallel rank.
namespace atl::importer {
namespace {

namespace fs = std::filesystem;
using Part = ForeignTensor::Part;

struct Name {
    std::string_view ours;  // after "model." and "layers.N."
    std::string_view theirs;
    Join join;
    bool rotary = false;
};
// How the ranks share the tensors: column-parallel layers by rows of [out, in], row-parallel ones by columns.
constexpr auto kOutside = std::to_array<Name>({
    {"model.embed_tokens.weight", "tok_embeddings.weight", Join::kColumns},  // Llama 3: by rows
    {"model.norm.weight", "norm.weight", Join::kCopies},
    {"lm_head.weight", "output.weight", Join::kRows},
});
constexpr auto kInLayer = std::to_array<Name>({
    {"input_layernorm.weight", "attention_norm.weight", Join::kCopies},
    {"self_attn.q_proj.weight", "attention.wq.weight", Join::kRows, true},
    {"self_attn.k_proj.weight", "attention.wk.weight", Join::kRows, true},
    {"self_attn.v_proj.weight", "attention.wv.weight", Join::kRows},
    {"self_attn.o_proj.weight", "attention.wo.weight", Join::kColumns},
    {"post_attention_layernorm.weight", "ffn_norm.weight", Join::kCopies},
    {"mlp.gate_proj.weight", "feed_forward.w1.weight", Join::kRows},
    {"mlp.up_proj.weight", "feed_forward.w3.weight", Join::kRows},
    {"mlp.down_proj.weight", "feed_forward.w2.weight", Join::kColumns},
});

constexpr std::int64_t kSizeMax = INT64_C(1) << 40;

struct Params {
    std::int64_t dim = 0, layers = 0, heads = 0, kv_heads = 0;
    double norm_eps = 0, rope_theta = 0, rope_factor = 0;
    std::int64_t max_position_embeddings = 0;
    bool scaled_rope = false;
};

Result<Params> read_params(const fs::path& path, const ImportOptions& options) {
    ATOLL_TRY(const std::string text, read_file(path));
    const auto object = json::parse(text);
    if (!object.ok()) return in_file(path, object.error().message);
    json::ObjectReader reader(*object);
    Params params;
    params.dim = reader.required_integer("dim", 1, kSizeMax);
    params.layers = reader.required_integer("n_layers", 1, 1 << 16);
    params.heads = reader.required_integer("n_heads", 1, 1 << 16);
    params.kv_heads = reader.integer_or("n_kv_heads", params.heads, 1, 1 << 16);
    params.norm_eps = reader.number_or("norm_eps", 1e-5, 1e-12, 1.0);
    params.rope_theta = reader.number_or("rope_theta", 10000.0, 1.0, 1e12);
    params.scaled_rope = reader.boolean_or("use_scaled_rope", false);
    params.rope_factor = reader.number_or("rope_scaling_factor", options.rope_factor.value_or(0.0), 1.0, 1e6);
    params.max_position_embeddings =
        reader.integer_or("max_seq_len", options.max_position_embeddings.value_or(0), 1, kSizeMax);
    // The files' shapes say these; batch sizes are not the model's.
    for (const char* key : {"vocab_size", "multiple_of", "ffn_dim_multiplier", "max_batch_size"}) {
        static_cast<void>(reader.any_or_null(key));
    }
    if (const Status status = reader.finish(); !status.ok()) return in_file(path, describe(status.error()));
    if (params.heads > params.dim || params.dim % params.heads != 0)
        return in_file(path, "n_heads does not divide dim");
    if (options.rope_factor && !params.scaled_rope)
        return invalid_argument("--rope-factor", "means nothing here: " + path.string() + " has no use_scaled_rope");
    params.max_position_embeddings = options.max_position_embeddings.value_or(params.max_position_embeddings);
    params.rope_factor = options.rope_factor.value_or(params.rope_factor);
    if (params.max_position_embeddings == 0)
        return invalid_argument("--max-position-embeddings",
                                "is required: " + path.string() +
                                    " does not say the context (2048 for Llama 1, 4096 "
                                    "for Llama 2, 8192 for Llama 3, 131072 since Llama 3.1)");
    if (params.scaled_rope && params.rope_factor == 0)
        return invalid_argument("--rope-factor", "is required: " + path.string() +
                                                     " has use_scaled_rope, but does not "
                                                     "say how far (8 for Llama 3.1 and 3.3, 32 for 3.2)");
    return params;
}

// consolidated.00.pth, consolidated.01.pth, … without a gap.
Result<std::deque<TorchFile>> open_files(const fs::path& directory) {
    ATOLL_TRY(const std::set<std::string> all, file_names_in(directory));
    std::vector<std::string> names;
    for (const std::string& name : all)
        if (name.starts_with("consolidated.") && name.ends_with(".pth")) names.push_back(name);
    std::deque<TorchFile> files;
    for (std::size_t rank = 0; rank < names.size(); ++rank) {
        const std::string expected =
            "consolidated." + std::string(rank < 10 ? "0" : "") + std::to_string(rank) + ".pth";
        if (names[rank] != expected)
            return in_file(directory / expected, "is missing, but " + names[rank] + " is there");
        ATOLL_TRY(files.emplace_back(), TorchFile::open(directory / expected));
    }
    return files;
}

// The part that each rank has of a tensor.
Result<std::vector<Part>> find_parts(const std::deque<TorchFile>& files, const std::string& name) {
    std::vector<Part> parts;
    for (const TorchFile& file : files) {
        const StoredTensor* const tensor = file.find(name);
        if (tensor == nullptr) return in_file(file.path(), "tensor " + in_quotes(name) + " is missing");
        parts.push_back({&file, tensor});
    }
    return parts;
}

// Extent of a part times the ranks.
std::int64_t whole_extent(const Part& part, std::size_t axis, std::size_t ranks) {
    const auto& shape = part.tensor->shape;
    const auto extent = axis < shape.size() ? shape[axis] : 0;
    return extent > kSizeMax ? kSizeMax : extent * static_cast<std::int64_t>(ranks);
}

// Llama 1 and 2 share the embedding by channels, Llama 3 by tokens.
bool embedding_by_rows(const Part& part, const Params& params) {
    return part.tensor->shape.size() == 2 && part.tensor->shape[1] == params.dim;
}

Result<nlohmann::ordered_json> make_config(const Params& params, const std::deque<TorchFile>& files) {
    ATOLL_TRY(const auto embedding, find_parts(files, "tok_embeddings.weight"));
    ATOLL_TRY(const auto gate, find_parts(files, "layers.0.feed_forward.w1.weight"));
    const std::size_t token_ranks = embedding_by_rows(embedding[0], params) ? files.size() : 1;
    nlohmann::ordered_json config = {
        {"architectures", {"LlamaForCausalLM"}},
        {"model_type", "llama"},
        {"vocab_size", whole_extent(embedding[0], 0, token_ranks)},
        {"hidden_size", params.dim},
        {"intermediate_size", whole_extent(gate[0], 0, files.size())},
        {"num_hidden_layers", params.layers},
        {"num_attention_heads", params.heads},
        {"num_key_value_heads", params.kv_heads},
        {"head_dim", params.dim / params.heads},
        {"hidden_act", "silu"},
        {"rms_norm_eps", params.norm_eps},
        {"max_position_embeddings", params.max_position_embeddings},
        {"rope_theta", params.rope_theta},
        {"tie_word_embeddings", files[0].find("output.weight") == nullptr},
        {"torch_dtype", "float32"},  // the writer puts the weights' own
    };
    if (params.scaled_rope)
        config["rope_scaling"] = {{"rope_type", "llama3"},
                                  {"factor", params.rope_factor},
                                  {"low_freq_factor", 1.0},
                                  {"high_freq_factor", 4.0},
                                  {"original_max_position_embeddings", 8192}};
    return config;
}

// Beginning and end of a text are the tokenizer's; a model without a tokenizer has none.
Status add_special_tokens(const ImportOptions& options, nlohmann::ordered_json& config) {
    const auto tokenizer = tokenizer::Tokenizer::open(options.tokenizer.empty() ? options.from : options.tokenizer);
    if (!tokenizer.ok() && tokenizer.error().code == ErrorCode::kNotFound) return {};
    if (!tokenizer.ok())
        return invalid_argument(tokenizer.error().field,
                                tokenizer.error().message + " (--tokenizer takes a directory with another)");
    if ((*tokenizer)->bos()) config["bos_token_id"] = *(*tokenizer)->bos();
    if ((*tokenizer)->eos()) config["eos_token_id"] = *(*tokenizer)->eos();
    return {};
}

const Name* find_name(std::span<const Name> names, std::string_view ours) {
    const auto found = std::find_if(names.begin(), names.end(), [&](const Name& name) { return name.ours == ours; });
    return found == names.end() ? nullptr : &*found;
}

struct Translated {
    const Name* name = nullptr;
    std::string theirs;
};

// "model.layers.3.mlp.up_proj.weight" is "layers.3.feed_forward.w3.weight".
Translated translate(const std::string& ours) {
    constexpr std::string_view kLayers = "model.layers.";
    if (!ours.starts_with(kLayers)) {
        const Name* const name = find_name(kOutside, ours);
        check(name != nullptr, "a Llama's tensor without a name of Meta's");
        return {name, std::string(name->theirs)};
    }
    const std::size_t dot = ours.find('.', kLayers.size());
    const Name* const name = find_name(kInLayer, std::string_view(ours).substr(dot + 1));
    check(name != nullptr, "a Llama layer's tensor without a name of Meta's");
    return {name, ours.substr(std::string_view("model.").size(), dot + 1 - std::string_view("model.").size()) +
                      std::string(name->theirs)};
}

Result<ForeignTensor> translate_tensor(weights::TensorSpec spec, const Params& params,
                                       const std::deque<TorchFile>& files) {
    const Translated to = translate(spec.name);
    ATOLL_TRY(auto parts, find_parts(files, to.theirs));
    const bool by_rows = to.name->theirs == "tok_embeddings.weight" && embedding_by_rows(parts[0], params);
    const std::int64_t heads = to.name->ours.find("k_proj") != std::string_view::npos ? params.kv_heads : params.heads;
    ATOLL_TRY(ForeignTensor tensor,
              join_parts(std::move(spec), std::move(parts), by_rows ? Join::kRows : to.name->join));
    if (to.name->rotary) tensor.rotary_heads = heads;
    return tensor;
}

Status check_rest(const std::deque<TorchFile>& files, const std::vector<ForeignTensor>& tensors) {
    std::set<std::string_view> used;
    for (const ForeignTensor& tensor : tensors) used.insert(tensor.parts.front().tensor->name);
    for (const TorchFile& file : files) {
        for (const StoredTensor& tensor : file.tensors()) {
            if (!used.contains(tensor.name) && !tensor.name.ends_with("rope.freqs"))
                return in_file(file.path(),
                               "tensor " + in_quotes(tensor.name) + " is not one of the model that params.json says");
        }
    }
    return {};
}

}  // namespace

Result<ForeignModel> open_consolidated(const ImportOptions& options) {
    ForeignModel model;
    const fs::path params_path = options.from / "params.json";
    ATOLL_TRY(const Params params, read_params(params_path, options));
    ATOLL_TRY(model.files, open_files(options.from));
    ATOLL_TRY(auto config, make_config(params, model.files));
    ATOLL_RETURN_IF_ERROR(add_special_tokens(options, config));
    model.config = config.dump(2) + "\n";
    ATOLL_TRY(ExpectedModel expected, expected_model(model.config, params_path));
    for (weights::TensorSpec& spec : expected.tensors) {
        ATOLL_TRY(model.tensors.emplace_back(), translate_tensor(std::move(spec), params, model.files));
    }
    ATOLL_RETURN_IF_ERROR(check_rest(model.files, model.tensors));
    return model;
}

}  // namespace atl::importer
