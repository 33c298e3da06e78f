#pragma once

#include <filesystem>
#include <optional>

#include "shared/base/result.h"
#include "shared/store_client/manifest.h"

// What is known of a directory that is finished: its manifest, with the size and the time of each file. Where many
// processors are it is made once, so that whoever hands the directory in, on a login node, has nothing to compute.
namespace atl::store_client {

Status write_seal(const std::filesystem::path& file, const std::filesystem::path& directory, int threads);
// The manifest; nothing where there is no such file, or the directory has other files than it had, other sizes or
// times.
std::optional<Manifest> read_seal(const std::filesystem::path& file, const std::filesystem::path& directory);

}  // namespace atl::store_client
