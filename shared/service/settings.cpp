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

Settings read_settings(SettingsReader& reader) {
    Settings settings;
    settings.listen_address = reader.text("listen_address", settings.listen_address, settings.listen_address,
                                          "address to listen on, or `unix:/path` of a socket");
    constexpr const char* kPort = "port";
    constexpr const char* kPortMeaning = "port to listen on; 0: any free port; a socket has none";
    settings.port = static_cast<std::uint16_t>(is_path(settings.listen_address)
                                                   ? reader.integer(kPort, 0, 0, 0, kPortMeaning)
                                                   : reader.required_integer(kPort, 0, 65535, kPortMeaning));
    settings.postgres = reader.required_text("postgres", "libpq connection string for PostgreSQL");
    settings.postgres_connections = static_cast<int>(reader.integer(
        "postgres_connections", settings.postgres_connections, 1, 1000, "maximum number of connections to PostgreSQL"));
    settings.kafka_brokers = reader.required_text(
        "kafka_brokers", "`HOST:PORT,…`, or `FILE@HOST:PORT,…` where FILE holds certificates or librdkafka properties");
    const std::string credentials =
        reader.text("kafka_credentials_file", "", "none",
                    "path of the Kafka credentials file; alternatively, put it in `kafka_brokers` as FILE@host:port");
    if (!credentials.empty()) {
        if (const auto read = read_file(credentials); !read.ok())
            reader.object().fail("kafka_credentials_file", describe(read.error()));
        settings.kafka_brokers = kafka::with_credentials(settings.kafka_brokers, credentials);
    }
    settings.public_key_file = reader.required_text(
        "public_key_file", "PEM file with the public keys that verify tokens; reread when it changes");
    settings.log_level = reader.one_of("log_level", {"trace", "debug", "info", "warn", "error"}, settings.log_level,
                                       "lowest level that is logged");
    settings.log_file = reader.text("log_file", "", "standard error", "log file; rotated at 64 MiB");
    settings.request_bytes_max = static_cast<std::size_t>(
        reader.integer("request_bytes_max", static_cast<std::int64_t>(settings.request_bytes_max), 4096, 1 << 30,
                       "maximum size in bytes of a request body"));
    return settings;
}

Result<Settings> parse_settings(const json::Json& config, const std::string& name) {
    SettingsReader reader(config);
    Settings settings = read_settings(reader);
    const json::Json& own = reader.object().object_or_null(name.c_str());
    settings.own = own.is_null() ? json::Json::object() : own;
    ATOLL_RETURN_IF_ERROR(reader.finish());
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
