#pragma once

#include "trainer/model/block.h"

// What the layers of all architectures share. Inside trainer/model only.
namespace atl::model {

// Causal attention over this batch's documents, or, with a cache, over the tokens before as well.
void attend(const Context& context, const kernels::AttentionShape& shape, const Tensor& qkv, LayerCache* cache,
            const Tensor& attention, const Tensor& log_sum_exp);

}  // namespace atl::model
