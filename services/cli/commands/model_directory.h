#pragma once

#include <filesystem>

#include "shared/base/result.h"

// What a directory must be before its files become a version that others fetch.
namespace atl::cli {

// Only regular files are sent, and of elsewhere nothing that a link names: links lead to files in the directory or, as
// in Hugging Face's cache (snapshots/REVISION beside blobs/), to that blobs/. kInvalidArgument names the first other
// one.
Status check_files_to_send(const std::filesystem::path& directory);

// A Hugging Face model directory: config.json with sizes that a model can have, safetensors files that fit their
// header, every *.json file JSON. kInvalidArgument names the file, or the file and its member.
Status check_model_directory(const std::filesystem::path& directory);

}  // namespace atl::cli
