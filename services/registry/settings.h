#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "shared/base/result.h"

namespace atl::registry {

// The `registry` object of the configuration file.
struct Settings {
    std::string topic_prefix;  // of Kafka topics, for tests
};

// kInvalidArgument naming the key ("registry.topic_prefix").
Result<Settings> parse_settings(const nlohmann::json& own);

}  // namespace atl::registry
