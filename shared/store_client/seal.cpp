#include "shared/store_client/seal.h"

#include <sys/stat.h>

#include "shared/base/file.h"
#include "shared/json/json.h"
#include "shared/store_client/transfer.h"

namespace atl::store_client {
namespace {

namespace fs = std::filesystem;
using json::Json;

// In nanoseconds; nothing where it is not a file of that size.
std::optional<std::int64_t> modified_ns(const fs::path& path, std::uint64_t size) {
    struct stat info{};
    if (::stat(path.c_str(), &info) != 0 || static_cast<std::uint64_t>(info.st_size) != size) return std::nullopt;
    return std::int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
}

}  // namespace

Status write_seal(const fs::path& file, const fs::path& directory, int threads) {
    ATOLL_TRY(const Manifest manifest, scan_directory(directory, threads));
    Json times = Json::array();
    for (const ManifestFile& one : manifest.files) {
        const auto time_ns = modified_ns(directory / one.path, one.size);
        if (!time_ns) return conflict("it has changed while it was read", (directory / one.path).string());
        times.push_back(*time_ns);
    }
    const Json seal = {{"schema", 1}, {"manifest", to_json(manifest)}, {"modified_ns", std::move(times)}};
    return write_file_atomic(file, seal.dump());
}

std::optional<Manifest> read_seal(const fs::path& file, const fs::path& directory) {
    const auto text = read_file(file);
    if (!text.ok()) return std::nullopt;
    const auto seal = json::parse(*text);
    if (!seal.ok()) return std::nullopt;
    json::ObjectReader reader(*seal, "seal");
    reader.required_integer("schema", 1, 1);
    auto manifest = parse_manifest(reader.any_or_null("manifest"));
    const Json times = reader.required_array("modified_ns");
    if (!reader.finish().ok() || !manifest.ok() || times.size() != manifest->files.size()) return std::nullopt;
    const auto paths = list_files(directory);
    if (!paths.ok() || paths->size() != times.size()) return std::nullopt;
    for (std::size_t i = 0; i < times.size(); ++i) {
        const ManifestFile& one = manifest->files[i];
        const auto time_ns = modified_ns(directory / one.path, one.size);
        if ((*paths)[i] != one.path || !time_ns || times[i] != Json(*time_ns)) return std::nullopt;
    }
    return std::move(manifest).value();
}

}  // namespace atl::store_client
