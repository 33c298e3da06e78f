#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "shared/base/result.h"

namespace atl::service {
class SettingsReader;
}

namespace atl::registry {

// The `registry` object of the configuration file.
struct Settings {
    std::string topic_prefix;  // of Kafka topics, for tests
};

// Reads each key, with what docs/reference/settings.md says of it.
Settings read_settings(service::SettingsReader& reader);

// kInvalidArgument naming the key ("registry.topic_prefix").
Result<Settings> parse_settings(const nlohmann::json& own);

}  // namespace atl::registry
