#pragma once

#include "trainer/model/config.h"

namespace atl::model {

// Of a Llama with two query heads a key head, for tests of its structure.
inline ModelConfig tiny_config(std::int64_t layers) {
    ModelConfig config;
    config.vocab_size = 50;
    config.hidden_size = 24;
    config.intermediate_size = 40;
    config.num_hidden_layers = layers;
    config.num_attention_heads = 4;
    config.num_key_value_heads = 2;
    config.head_dim = 6;
    config.max_position_embeddings = 32;
    return config;
}

}  // namespace atl::model
