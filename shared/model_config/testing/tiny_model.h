#pragma once

#include <filesystem>
#include <string>

#include "shared/base/check.h"
#include "shared/base/file.h"
#include "shared/model_config/tensors.h"

namespace atl::model_config {

inline constexpr char kTinyConfig[] =
    R"({"model_type": "llama", "vocab_size": 320, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1,
"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4, "tie_word_embeddings": true})";

// A tokenizer.json that knows "a" alone.
inline constexpr char kTinyTokenizer[] = R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})";

// config.json and model.safetensors of a model directory. Its values in fp32 are the bytes of `pattern`, repeated;
// empty: zeros. An embedding of `rows` rows makes it as large as a test wants it.
inline void write_tiny_model(const std::filesystem::path& directory, std::int64_t rows = 320,
                             const std::string& pattern = "") {
    std::string text = kTinyConfig;
    text.replace(text.find("320"), 3, std::to_string(rows));
    const ModelConfig config = parse_config(text).value();
    std::filesystem::create_directories(directory);
    check(write_file_atomic(directory / "config.json", text).ok(), "config.json was written");
    std::vector<safetensors::TensorInfo> infos;
    for (const TensorSpec& tensor : tensors_of(config)) infos.push_back({.name = tensor.name, .shape = tensor.shape});
    auto writer = safetensors::Writer::create(directory / "model.safetensors", infos).value();
    for (const auto& info : infos) {
        std::string bytes(static_cast<std::size_t>(info.element_count()) * 4, '\0');
        for (std::size_t i = 0; !pattern.empty() && i < bytes.size(); ++i) bytes[i] = pattern[i % pattern.size()];
        check(writer.append(std::as_bytes(std::span(bytes))).ok(), "a tensor was written");
    }
    check(writer.finish().ok(), "model.safetensors was written");
}

}  // namespace atl::model_config
