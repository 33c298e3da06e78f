#pragma once

#include <filesystem>

#include "shared/base/result.h"
#include "shared/safetensors/file.h"

// What a directory must be before its files become a version that others fetch.
namespace atl::cli {

// Only regular files are sent, and of elsewhere nothing that a link names: links lead to files in the directory or, as
// in Hugging Face's cache (snapshots/REVISION beside blobs/), to that blobs/. kInvalidArgument names the first other
// one.
Status check_files_to_send(const std::filesystem::path& directory);

// The weights of a Hugging Face model directory that the trainer can read: config.json of a family that is built,
// safetensors files of just the tensors and shapes that it asks for, no token beyond the vocabulary, every *.json file
// JSON. Their values are not looked at. Warns where there is no tokenizer, or one that
// `atoll-trainer` beside this program cannot read. An adapter's directory has
// adapter_config.json instead, and of it only the files are looked at. kInvalidArgument names the file, and its member
// or tensor.
Result<safetensors::Model> check_model_directory(const std::filesystem::path& directory);

}  // namespace atl::cli
