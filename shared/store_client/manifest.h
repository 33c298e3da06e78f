#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"

// A model version is a manifest: its files as ordered chunks, each a content-addressed blob. The version's digest is
// the manifest's, so that nothing is hashed a second time and equal chunks never travel twice.
namespace atl::store_client {

inline constexpr std::uint64_t kChunkBytes = 8U << 20;      // what we cut files into
inline constexpr std::uint64_t kChunkBytesMax = 16U << 20;  // what a manifest may hold

struct Chunk {
    std::string sha256;
    std::uint64_t size = 0;  // bytes, 1 to kChunkBytesMax
};

struct ManifestFile {
    std::string path;        // relative, '/' between parts, no "." or ".." parts
    std::uint64_t size = 0;  // bytes, the sum of its chunks
    std::vector<Chunk> chunks;
};

struct Manifest {
    std::vector<ManifestFile> files;  // sorted by path, each once

    std::uint64_t size_bytes() const;
    const ManifestFile* find(std::string_view path) const;  // nullptr if there is none
};

// Reads {"schema":1,"files":[{"path","size","chunks":[{"sha256","size"}]}]}. kInvalidArgument names the wrong member
// ("manifest.files[2].path") when anything above does not hold; `field` is the manifest's own name in messages.
Result<Manifest> parse_manifest(const nlohmann::json& value, const std::string& field = "manifest");

nlohmann::json to_json(const Manifest& manifest);
// Keys sorted, no spaces: the bytes that the digest is taken over.
std::string canonical_json(const Manifest& manifest);
std::string manifest_digest(const Manifest& manifest);

// Whether a manifest may hold this path: relative, at most 1024 bytes and 240 a part, no empty, "." or ".." part, no
// control character, no backslash.
bool is_safe_path(std::string_view path);

}  // namespace atl::store_client
