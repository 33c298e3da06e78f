#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "shared/base/result.h"

namespace atl::service {
class SettingsReader;
}

namespace atl::store {

// The `store` object of the configuration file.
struct Settings {
    std::filesystem::path root;        // of the blobs; this process owns it
    std::string accel_prefix;          // internal location of the gateway that serves root; empty: bytes go through us
    std::int64_t put_concurrency = 8;  // bodies being written at a time; memory is about 2 × 16 MiB each at worst
    std::int64_t unused_blob_hours = 24;  // blobs that no version needs go after that long; 0: never
    std::optional<std::uint64_t> free_bytes_min =
        std::nullopt;  // of root's file system, below which uploads are refused
    // Of an operator's blobs that no version needs; a quarter of the file system where nothing is said.
    std::optional<std::int64_t> operator_unused_bytes_max = std::nullopt;
    // Of the manifests of an operator's versions, which lie in the database: about 100 bytes for 8 MiB of a model.
    std::int64_t operator_manifest_bytes_max = std::int64_t{256} << 20;
    std::int64_t keep_updates_rounds = 2;  // of a job, whose updates are kept; 0: all
    std::int64_t scrub_days = 30;          // in which all blobs are read and compared with their names; 0: never
    std::string topic_prefix;              // of Kafka topics, for tests
};

// Reads each key, with what docs/reference/settings.md says of it.
Settings read_settings(service::SettingsReader& reader);

// kInvalidArgument naming the option ("store.root").
Result<Settings> parse_settings(const nlohmann::json& own);

}  // namespace atl::store
