#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "shared/base/result.h"

namespace atl::service {
class SettingsReader;
}

namespace atl::aggregation {

// The `aggregation` object of the configuration file.
struct Settings {
    std::string store_url;              // "http://127.0.0.1:7400/store"
    std::string dispatch_url;           // "http://127.0.0.1:7400/dispatch"
    std::filesystem::path token_file;   // what we show to both; read again for each aggregation
    std::int64_t workers = 2;           // threads; each holds a part and up to 64 MiB of what it reads ahead
    std::int64_t part_bytes = 8 << 20;  // bytes of an output chunk
    std::int64_t lease_s = 15;          // how long a part waits for a worker that has died
    std::string topic_prefix;           // of Kafka topics, for tests
};

// Reads each key, with what docs/reference/settings.md says of it.
Settings read_settings(service::SettingsReader& reader);

// kInvalidArgument naming the option ("aggregation.workers").
Result<Settings> parse_settings(const nlohmann::json& own);

// What token_file holds. kUnavailable, until it is mended.
Result<std::string> read_token(const Settings& settings);

}  // namespace atl::aggregation
