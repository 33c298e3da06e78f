#include "shared/service/settings.h"

#include <unistd.h>

#include <string_view>

#include "shared/base/file.h"
#include "shared/config/config.h"
#include "shared/kafka/kafka.h"

namespace atl::service {
namespace {

bool is_path(const std::string& listen_address) {
    return listen_address.starts_with("unix:");
}

}  // namespace

Result<Arguments> parse_arguments(int argc, const char* const* argv) {
    Arguments arguments;
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        if (word == "--config" && i + 1 < argc) {
            arguments.config_file = argv[++i];
        } else if (word == "--check-config") {
            arguments.check_only = true;
        } else if (word == "--help" || word == "-h") {
            arguments.help = true;
        } else if (word == "--version") {
            arguments.version = true;
        } else {
            return invalid_argument(std::string(word),
                                    word == "--config" ? "needs a file" : "unknown argument " + std::string(word));
        }
    }
    if (arguments.config_file.empty() && !arguments.help && !arguments.version)
        return invalid_argument("--config", "is required: the configuration, a YAML file");
    return arguments;
}

Result<Settings> parse_settings(const json::Json& config, const std::string& name) {
    json::ObjectReader reader(config);
    Settings settings;
    settings.listen_address = reader.string_or("listen_address", settings.listen_address);
    settings.port =
        static_cast<std::uint16_t>(is_path(settings.listen_address) ? reader.integer_or("port", 0, 0, 0)
                                                                    : reader.required_integer("port", 0, 65535));
    settings.postgres = reader.required_string("postgres");
    settings.postgres_connections =
        static_cast<int>(reader.integer_or("postgres_connections", settings.postgres_connections, 1, 1000));
    settings.kafka_brokers = reader.required_string("kafka_brokers");
    const std::string kafka_credentials = reader.string_or("kafka_credentials_file", "");
    settings.public_key_file = reader.required_string("public_key_file");
    settings.log_level = reader.one_of("log_level", {"trace", "debug", "info", "warn", "error"}, settings.log_level);
    settings.log_file = reader.string_or("log_file", "");
    settings.request_bytes_max = static_cast<std::size_t>(
        reader.integer_or("request_bytes_max", static_cast<std::int64_t>(settings.request_bytes_max), 4096, 1 << 30));
    const json::Json& own = reader.object_or_null(name.c_str());
    settings.own = own.is_null() ? json::Json::object() : own;
    ATOLL_RETURN_IF_ERROR(reader.finish());
    if (kafka_credentials.empty()) return settings;
    if (const auto read = read_file(kafka_credentials); !read.ok())
        return invalid_argument("kafka_credentials_file", describe(read.error()));
    settings.kafka_brokers = kafka::with_credentials(settings.kafka_brokers, kafka_credentials);
    return settings;
}

std::string instance_name(const Settings& settings) {
    if (settings.port == 0 && !is_path(settings.listen_address)) return {};
    char host[256] = {};
    if (::gethostname(host, sizeof host - 1) != 0) return {};
    const std::string port = is_path(settings.listen_address) ? "" : ":" + std::to_string(settings.port);
    return std::string(host) + "/" + settings.listen_address + port;
}

Result<Settings> load_settings(const std::filesystem::path& file, const std::string& name) {
    ATOLL_TRY(const json::Json config, config::load(file));
    return parse_settings(config, name);
}

}  // namespace atl::service
