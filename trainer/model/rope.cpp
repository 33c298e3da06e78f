#include <cmath>
#include <vector>

#include "trainer/model/batch.h"

namespace atl::model {

std::vector<float> make_rope_table(const ModelConfig& config, std::int64_t begin, std::int64_t end) {
    const std::vector<float> frequencies = config.rope_frequencies(end);
    std::vector<float> table(static_cast<std::size_t>((end - begin) * config.head_dim));
    const auto factor = static_cast<float>(config.rope.attention_factor);
    float* row = table.data();
    for (std::int64_t position = begin; position < end; ++position, row += config.head_dim) {
        for (std::size_t i = 0; i < frequencies.size(); ++i) {
            // In fp32, as transformers multiplies; so the angles of far positions agree.
            const float angle = static_cast<float>(position) * frequencies[i];
            row[i] = factor * std::cos(angle);
            row[frequencies.size() + i] = factor * std::sin(angle);
        }
    }
    return table;
}

}  // namespace atl::model
