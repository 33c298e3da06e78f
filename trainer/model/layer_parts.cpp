#include "trainer/model/layer_parts.h"

namespace atl::model {

void attend(const Context& context, const kernels::AttentionShape& shape, const Tensor& qkv, LayerCache* cache,
            const Tensor& attention, const Tensor& log_sum_exp) {
    if (cache == nullptr) {
        context.backend.attention_forward(shape, qkv, context.batch.segment_starts, attention, log_sum_exp,
                                          context.workspace);
    } else {
        context.backend.attention_cached(shape, qkv, cache->past, cache->keys, cache->values, attention,
                                         context.workspace);
    }
}

}  // namespace atl::model
