#pragma once

namespace atl::kernels {

// GPUs that this process may use, as their driver counts them; 0 in a build without a GPU backend.
int visible_gpus();

}  // namespace atl::kernels
