#pragma once

#include <filesystem>
#include <string>

#include "shared/service/service.h"
#include "shared/service/settings_reader.h"

namespace atl::service {

// What stands on a service's command line.
struct Arguments {
    std::filesystem::path config_file;
    bool check_only = false;
    bool help = false;
    bool version = false;
};
Result<Arguments> parse_arguments(int argc, const char* const* argv);

// Reads the keys that every service has, each with what docs/reference/settings.md says of it.
Settings read_settings(SettingsReader& reader);

// Reads the keys that every service has and leaves the object under `name` to the service itself.
Result<Settings> parse_settings(const json::Json& config, const std::string& name);
Result<Settings> load_settings(const std::filesystem::path& file, const std::string& name);

}  // namespace atl::service
