#pragma once

#include <string_view>

// The names of control variates, which keep trainings of one round on one course (SCAFFOLD,
// https://arxiv.org/abs/1910.06378).
namespace atl::delta {

// Beside an update: the mean gradient of its training's steps, as int8 in the format of README.md, whose integers are
// all of a value and no change of the base's. It has each floating tensor of the base.
inline constexpr char kControlVariateFile[] = "control_variate.safetensors";
// Of a version: files named as its weights' files, with the weighted mean of all updates' control variates as BF16.
inline constexpr char kControlVariateFolder[] = "control_variate/";

// Whether a file of a version is one of these, and so none of its weights.
inline bool is_control_variate(std::string_view path) {
    return path == kControlVariateFile || path.starts_with(kControlVariateFolder);
}

}  // namespace atl::delta
