#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "shared/base/result.h"
#include "shared/http/client/client.h"
#include "shared/store_client/manifest.h"

// Moving model versions between directories and the store. Memory is a chunk or two for each connection.
namespace atl::store_client {

struct Progress {
    std::uint64_t bytes_done = 0;  // includes what did not have to travel
    std::uint64_t bytes_total = 0;
};

struct TransferOptions {
    http::ClientOptions store;  // its base_url is the store's: "http://gateway/store"
    int connections = 3;
    std::function<void(const Progress&)> progress;  // one call at a time, from any thread
    // Called with the digest of a blob of which the store has sent other bytes, perhaps from several threads; returns
    // what the error says after that ("; …"). Empty: the error says who can tell the store.
    std::function<std::string(const std::string& sha256)> on_damaged = {};
    // Whether a version's file is left out of a download; none: they are all wanted.
    std::function<bool(const std::string& path)> leaves_out = {};
};

// The relative paths of the files of a directory that a manifest names, sorted, with '/' between parts.
Result<std::vector<std::string>> list_files(const std::filesystem::path& directory);

// Sees each chunk that is read of a file; an error ends the reading. From any thread.
using OnChunk = std::function<Status(const std::filesystem::path& file, std::uint64_t offset, std::string_view bytes)>;

// The manifest of a directory: its regular files, hashed chunk by chunk on `threads` threads. Hidden names (".cache")
// are left out; a link to a file counts as the file. kNotFound, or kInvalidArgument naming a path that no manifest may
// hold.
Result<Manifest> scan_directory(const std::filesystem::path& directory, int threads, const OnChunk& on_chunk = {});

// Which of these blobs the store does not have. For those that it has the time for which unused ones are kept begins
// anew.
Result<std::set<std::string>> find_missing(http::Client& store, const std::set<std::string>& digests);

struct Uploaded {
    Manifest manifest;
    std::uint64_t bytes_sent = 0;  // of blobs that the store did not have
};
// Puts the directory's blobs into the store, only those that are missing: a call after a broken one goes on from
// there. A version still has to be made of them. `known`: its manifest, which is made otherwise; the store looks
// whether the bytes are those.
Result<Uploaded> upload_directory(const std::filesystem::path& directory, const TransferOptions& options,
                                  std::optional<Manifest> known = std::nullopt);

// What a version says about itself beside its files.
struct VersionDetails {
    std::string kind = "base";  // or "update", "global", "optimizer_state"
    std::vector<std::string> parents;
    std::string job;  // empty: none
    std::optional<std::int64_t> round;
    nlohmann::json contributions = nlohmann::json::array();
    nlohmann::json metrics = nlohmann::json::object();
};
// The version's JSON. All blobs must be in the store; the same manifest again gives the same version.
//
//   ATOLL_TRY(const auto uploaded, upload_directory("/models/llama", {.store = {.base_url = url, .token = token}}));
//   http::Client store({.base_url = url, .token = token});
//   ATOLL_TRY(const auto version, create_version(store, "llama", uploaded.manifest, {.kind = "base"}));
Result<nlohmann::json> create_version(http::Client& store, const std::string& model, const Manifest& manifest,
                                      const VersionDetails& details);

// The manifest of a version of any model, checked against the digest.
Result<Manifest> fetch_manifest(http::Client& store, const std::string& digest);

// Makes `directory` hold the version, or what is wanted of it. It appears under its name only when every chunk is there
// and was checked; what an interrupted call left beside it (".NAME.<digest>.partial") is checked and kept. Nothing
// happens if the directory holds the version already (files and sizes compared); kConflict if it holds something else.
// Several processes may do this at once.
Status download_version(const std::string& digest, const std::filesystem::path& directory,
                        const TransferOptions& options);

// Compares every chunk of a directory with the manifest. kInvalidArgument names the first file that differs.
Status verify_directory(const std::filesystem::path& directory, const Manifest& manifest, int threads);

}  // namespace atl::store_client
