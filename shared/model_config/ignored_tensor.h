#pragma once

#include <string>

namespace atl::model_config {

// What is said of a model that holds a tensor of ignorable_tensors(): a trainer reads past it and does not write it, so
// that no site's update could hold what the base has. `directory`: where the model lies, as a command names it.
inline std::string ignored_tensor_text(const std::string& tensor, const std::string& directory) {
    return "the model is computed without the tensor \"" + tensor +
           "\", so no update of it would have it; `atoll-trainer train --model " + directory +
           " --steps 0 …` writes the model without it";
}

}  // namespace atl::model_config
