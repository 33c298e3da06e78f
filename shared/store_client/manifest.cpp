#include "shared/store_client/manifest.h"

#include <algorithm>
#include <numeric>

#include "shared/digest/digest.h"
#include "shared/json/json.h"
#include "shared/json/printable_line.h"

namespace atl::store_client {
namespace {

constexpr std::int64_t kFileBytesMax = std::int64_t{1} << 50;
constexpr std::size_t kPathBytesMax = 1024;
constexpr std::size_t kPartBytesMax = 240;  // a file system takes 255, of which what is on its way needs some

bool is_safe_part(std::string_view part) {
    return !part.empty() && part.size() <= kPartBytesMax && part != "." && part != "..";
}

Result<Chunk> parse_chunk(const json::Json& value, const std::string& field) {
    json::ObjectReader reader(value, field);
    Chunk chunk;
    chunk.sha256 = reader.required_string("sha256");
    chunk.size = static_cast<std::uint64_t>(reader.required_integer("size", 1, kChunkBytesMax));
    ATOLL_RETURN_IF_ERROR(reader.finish());
    if (!digest::is_sha256(chunk.sha256))
        return invalid_argument(reader.field("sha256"), "must be 64 lower-case hexadecimal characters");
    return chunk;
}

Result<ManifestFile> parse_file(const json::Json& value, const std::string& field) {
    json::ObjectReader reader(value, field);
    ManifestFile file;
    file.path = reader.required_string("path");
    file.size = static_cast<std::uint64_t>(reader.required_integer("size", 0, kFileBytesMax));
    const json::Json& chunks = reader.required_array("chunks");
    ATOLL_RETURN_IF_ERROR(reader.finish());
    if (!is_safe_path(file.path))
        return invalid_argument(reader.field("path"),
                                "must be a relative path of printable UTF-8 without empty, '.' or '..' parts");
    std::uint64_t total = 0;
    file.chunks.reserve(chunks.size());
    for (std::size_t i = 0; i < chunks.size(); ++i) {
        ATOLL_TRY(Chunk chunk, parse_chunk(chunks[i], field + ".chunks[" + std::to_string(i) + "]"));
        total += chunk.size;
        file.chunks.push_back(std::move(chunk));
    }
    if (total != file.size)
        return invalid_argument(reader.field("size"), "is " + std::to_string(file.size) + " but the chunks of " +
                                                          file.path + " hold " + std::to_string(total) + " bytes");
    return file;
}

// Sorted and each once; and no file is another's directory.
Status check_order(const Manifest& manifest, const std::string& field) {
    const auto& files = manifest.files;
    for (std::size_t i = 1; i < files.size(); ++i) {
        if (files[i - 1].path >= files[i].path)
            return invalid_argument(field + ".files[" + std::to_string(i) + "].path",
                                    "files must be sorted by path and each occur once: " + files[i].path);
    }
    for (const ManifestFile& file : files) {
        for (auto at = file.path.find('/'); at != std::string::npos; at = file.path.find('/', at + 1)) {
            const std::string parent = file.path.substr(0, at);
            if (manifest.find(parent) != nullptr)
                return invalid_argument(field + ".files", parent + " is a file and a directory");
        }
    }
    return {};
}

}  // namespace

std::uint64_t Manifest::size_bytes() const {
    return std::accumulate(files.begin(), files.end(), std::uint64_t{0},
                           [](std::uint64_t sum, const ManifestFile& file) { return sum + file.size; });
}

const ManifestFile* Manifest::find(std::string_view path) const {
    const auto at = std::lower_bound(files.begin(), files.end(), path,
                                     [](const ManifestFile& file, std::string_view key) { return file.path < key; });
    return at != files.end() && at->path == path ? &*at : nullptr;
}

bool is_safe_path(std::string_view path) {
    if (path.empty() || path.size() > kPathBytesMax) return false;
    if (path.find('\\') != std::string_view::npos || !json::is_printable_line(path)) return false;
    for (;;) {
        const auto slash = path.find('/');
        if (!is_safe_part(path.substr(0, slash))) return false;
        if (slash == std::string_view::npos) return true;
        path.remove_prefix(slash + 1);
    }
}

Result<Manifest> parse_manifest(const json::Json& value, const std::string& field) {
    json::ObjectReader reader(value, field);
    reader.required_integer("schema", 1, 1);
    const json::Json& files = reader.required_array("files");
    ATOLL_RETURN_IF_ERROR(reader.finish());
    if (files.empty()) return invalid_argument(reader.field("files"), "must hold at least one file");
    Manifest manifest;
    manifest.files.reserve(files.size());
    for (std::size_t i = 0; i < files.size(); ++i) {
        ATOLL_TRY(ManifestFile file, parse_file(files[i], field + ".files[" + std::to_string(i) + "]"));
        manifest.files.push_back(std::move(file));
    }
    ATOLL_RETURN_IF_ERROR(check_order(manifest, field));
    return manifest;
}

json::Json to_json(const Manifest& manifest) {
    json::Json files = json::Json::array();
    for (const ManifestFile& file : manifest.files) {
        json::Json chunks = json::Json::array();
        for (const Chunk& chunk : file.chunks) chunks.push_back({{"sha256", chunk.sha256}, {"size", chunk.size}});
        files.push_back({{"path", file.path}, {"size", file.size}, {"chunks", std::move(chunks)}});
    }
    return {{"schema", 1}, {"files", std::move(files)}};
}

// Without a tree of the whole: a manifest may have hundreds of thousands of chunks.
std::string canonical_json(const Manifest& manifest) {
    std::string text = R"({"files":[)";
    for (const ManifestFile& file : manifest.files) {
        if (&file != manifest.files.data()) text += ',';
        text += R"({"chunks":[)";
        for (const Chunk& chunk : file.chunks) {
            if (&chunk != file.chunks.data()) text += ',';
            text += R"({"sha256":")" + chunk.sha256 + R"(","size":)" + std::to_string(chunk.size) + "}";
        }
        text += R"(],"path":)" + json::Json(file.path).dump() + R"(,"size":)" + std::to_string(file.size) + "}";
    }
    return text + R"(],"schema":1})";
}

std::string manifest_digest(const Manifest& manifest) {
    return digest::sha256(canonical_json(manifest));
}

}  // namespace atl::store_client
