#include <algorithm>
#include <mutex>
#include <set>

#include "shared/base/id.h"
#include "shared/base/parallel.h"
#include "shared/digest/digest.h"
#include "shared/store_client/local_file.h"
#include "shared/store_client/remote_file.h"
#include "shared/store_client/transfer.h"

namespace atl::store_client {
namespace {

namespace fs = std::filesystem;
using json::Json;

constexpr std::size_t kDigestsAtOnce = 4096;

Error listing_error(const fs::path& directory, std::error_code error) {
    const bool is_gone = error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
    return {is_gone ? ErrorCode::kNotFound : ErrorCode::kInternal,
            "cannot list " + directory.string() + ": " + error.message(), directory.string()};
}

Result<Manifest> cut_into_chunks(const fs::path& directory, const std::vector<std::string>& paths) {
    Manifest manifest;
    for (const std::string& path : paths) {
        ATOLL_TRY(const LocalFile local, LocalFile::open(directory / path));
        ManifestFile file{path, local.size(), {}};
        for (std::uint64_t at = 0; at < file.size; at += kChunkBytes)
            file.chunks.push_back({{}, std::min(kChunkBytes, file.size - at)});
        manifest.files.push_back(std::move(file));
    }
    return manifest;
}

// Puts the digests of `places` back where they were cut from.
void fill_in(Manifest& manifest, std::vector<ChunkPlace> places) {
    for (ManifestFile& file : manifest.files) file.chunks.clear();
    for (ChunkPlace& place : places) manifest.files[place.file].chunks.push_back(std::move(place.chunk));
}

class Uploader {
  public:
    Uploader(const fs::path& directory, const TransferOptions& options) : directory_(directory), options_(options) {}

    Result<std::uint64_t> run(const Manifest& manifest) {
        std::vector<ChunkPlace> places = chunk_places(manifest);
        ClientPool clients(options_.store);
        std::set<std::string> digests;
        for (const ChunkPlace& place : places) digests.insert(place.chunk.sha256);
        ATOLL_TRY(std::set<std::string> missing, find_missing(*clients.take(), digests));
        progress_.bytes_total = manifest.size_bytes();
        progress_.bytes_done = progress_.bytes_total;
        // Of equal chunks one travels.
        std::erase_if(places, [&](const ChunkPlace& place) { return missing.erase(place.chunk.sha256) == 0; });
        for (const ChunkPlace& place : places) progress_.bytes_done -= place.chunk.size;
        const std::uint64_t present = progress_.bytes_done;
        report(0);
        ATOLL_RETURN_IF_ERROR(for_each_parallel(places.size(), options_.connections, [&](std::size_t i, int) {
            return send(*clients.take(), manifest, places[i]);
        }));
        return progress_.bytes_done - present;
    }

  private:
    Status send(http::Client& store, const Manifest& manifest, const ChunkPlace& place) {
        ATOLL_TRY(const LocalFile file, LocalFile::open(directory_ / manifest.files[place.file].path));
        ATOLL_TRY(const std::string bytes, file.read(place.offset, place.chunk.size));
        http::CallOptions call;
        call.headers.emplace_back("Content-Type", "application/octet-stream");
        ATOLL_TRY(const auto response, store.call(http::Method::kPut, "/v1/blobs/" + place.chunk.sha256, bytes, call));
        ATOLL_RETURN_IF_ERROR(response.check());
        report(place.chunk.size);
        return {};
    }

    void report(std::uint64_t bytes) {
        const std::lock_guard lock(mutex_);
        progress_.bytes_done += bytes;
        if (options_.progress) options_.progress(progress_);
    }

    const fs::path& directory_;
    const TransferOptions& options_;
    std::mutex mutex_;
    Progress progress_;
};

}  // namespace

Result<std::vector<std::string>> list_files(const fs::path& directory) {
    std::vector<std::string> paths;
    std::error_code error;
    for (auto entry = fs::recursive_directory_iterator(directory, error); !error && entry != fs::end(entry);
         entry.increment(error)) {
        const fs::path relative = entry->path().lexically_relative(directory);
        if (relative.filename().string().starts_with(".")) {
            entry.disable_recursion_pending();
            continue;
        }
        if (!entry->is_regular_file(error) || error) continue;
        if (!is_safe_path(relative.generic_string()))
            return invalid_argument(entry->path().string(),
                                    "a manifest cannot hold the name " + entry->path().string());
        paths.push_back(relative.generic_string());
    }
    if (error) return listing_error(directory, error);
    if (paths.empty()) return invalid_argument(directory.string(), directory.string() + " holds no files");
    std::sort(paths.begin(), paths.end());
    return paths;
}

Result<Manifest> scan_directory(const fs::path& directory, int threads, const OnChunk& on_chunk) {
    ATOLL_TRY(const std::vector<std::string> paths, list_files(directory));
    ATOLL_TRY(Manifest manifest, cut_into_chunks(directory, paths));
    std::vector<ChunkPlace> places = chunk_places(manifest);
    const auto scan = [&](std::size_t i, int) -> Status {
        const fs::path path = directory / paths[places[i].file];
        ATOLL_TRY(const LocalFile file, LocalFile::open(path));
        ATOLL_TRY(const std::string bytes, file.read(places[i].offset, places[i].chunk.size));
        if (on_chunk) ATOLL_RETURN_IF_ERROR(on_chunk(path, places[i].offset, bytes));
        places[i].chunk.sha256 = digest::sha256(bytes);
        return {};
    };
    ATOLL_RETURN_IF_ERROR(for_each_parallel(places.size(), threads, scan));
    fill_in(manifest, std::move(places));
    return manifest;
}

Result<std::set<std::string>> find_missing(http::Client& store, const std::set<std::string>& digests) {
    std::set<std::string> missing;
    for (auto next = digests.begin(); next != digests.end();) {
        Json some = Json::array();
        for (; next != digests.end() && some.size() < kDigestsAtOnce; ++next) some.push_back(*next);
        // The key makes it safe to repeat, which reading is anyway.
        ATOLL_TRY(const Json answer, store.post_json("/v1/blobs/missing", {{"digests", some}}, new_id()));
        json::ObjectReader reader(answer, "answer");
        for (const Json& sha256 : reader.required_array("missing"))
            if (sha256.is_string() && digests.contains(sha256.get<std::string>())) missing.insert(sha256);
        if (const Status read = reader.finish(); !read.ok())
            return internal_error("what the store answers cannot be read: " + describe(read.error()));
    }
    return missing;
}

Result<Uploaded> upload_directory(const fs::path& directory, const TransferOptions& options,
                                  std::optional<Manifest> known) {
    if (!known) {
        ATOLL_TRY(known, scan_directory(directory, options.connections));
    }
    Manifest manifest = std::move(*known);
    ATOLL_TRY(const std::uint64_t sent, Uploader(directory, options).run(manifest));
    return Uploaded{std::move(manifest), sent};
}

Result<Json> create_version(http::Client& store, const std::string& model, const Manifest& manifest,
                            const VersionDetails& details) {
    Json body = {{"manifest", to_json(manifest)},
                 {"kind", details.kind},
                 {"parents", details.parents},
                 {"contributions", details.contributions},
                 {"metrics", details.metrics}};
    if (!details.job.empty()) body["job"] = details.job;
    if (details.round) body["round"] = *details.round;
    return store.post_json("/v1/models/" + http::percent_encode(model) + "/versions", body, new_id());
}

}  // namespace atl::store_client
