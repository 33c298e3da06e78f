#include "shared/kafka/handle.h"

#include <spdlog/spdlog.h>

#include <array>

namespace atl::kafka {
namespace {

struct DestroyConf {
    void operator()(rd_kafka_conf_t* conf) const { rd_kafka_conf_destroy(conf); }
};

void log_line(const rd_kafka_t*, int level, const char* facility, const char* text) {
    const bool serious = level <= 3;  // syslog's numbers: 3 is an error, 6 information
    spdlog::log(serious ? spdlog::level::warn : spdlog::level::debug, "kafka: {}: {}", facility, text);
}

}  // namespace

Result<Handle> make_handle(rd_kafka_type_t type, const std::string& brokers, const Settings& settings) {
    std::unique_ptr<rd_kafka_conf_t, DestroyConf> conf(rd_kafka_conf_new());
    std::map<std::string, std::string> values = settings.values;
    const auto end_of_file = brokers.rfind('@');  // which no address holds
    if (end_of_file != std::string::npos) {
        const std::string file = brokers.substr(0, end_of_file);
        values.insert({{"security.protocol", "ssl"},
                       {"ssl.key.location", file},
                       {"ssl.certificate.location", file},
                       {"ssl.ca.location", file}});
    }
    values.insert({{"bootstrap.servers", end_of_file == std::string::npos ? brokers : brokers.substr(end_of_file + 1)},
                   {"socket.keepalive.enable", "true"},
                   {"reconnect.backoff.max.ms", "2000"},
                   {"log.connection.close", "false"}});
    std::array<char, 512> why{};
    for (const auto& [name, value] : values)
        if (rd_kafka_conf_set(conf.get(), name.c_str(), value.c_str(), why.data(), why.size()) != RD_KAFKA_CONF_OK)
            return invalid_argument(name, std::string("kafka: ") + why.data());
    rd_kafka_conf_set_log_cb(conf.get(), log_line);
    if (settings.on_delivery != nullptr) rd_kafka_conf_set_dr_msg_cb(conf.get(), settings.on_delivery);
    Handle handle(rd_kafka_new(type, conf.get(), why.data(), why.size()));
    if (handle == nullptr) return invalid_argument("", std::string("kafka: ") + why.data());
    (void)conf.release();  // the client owns it now
    return handle;
}

std::string with_credentials(const std::string& brokers, const std::string& file) {
    return file + "@" + brokers;
}

Error make_error(rd_kafka_resp_err_t code, const std::string& what) {
    return unavailable("kafka: " + what + ": " + rd_kafka_err2str(code));
}

}  // namespace atl::kafka
