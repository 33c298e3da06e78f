#include "shared/kafka/handle.h"

#include <spdlog/spdlog.h>

#include <array>
#include <sstream>

#include "shared/base/file.h"
#include "shared/base/text.h"

namespace atl::kafka {
namespace {

struct DestroyConf {
    void operator()(rd_kafka_conf_t* conf) const { rd_kafka_conf_destroy(conf); }
};

// What a right password does not mend: how the library speaks SCRAM was wrong before 2.6.1, and Kafka 4 looks closer.
const char* scram_hint(std::string_view text) {
    const bool is_scram = text.find("SCRAM") != std::string_view::npos && rd_kafka_version() < 0x02060100;
    return is_scram ? " (Kafka 4 rejects SCRAM logins from librdkafka before 2.6.1: use PLAIN over TLS or a client "
                      "certificate)"
                    : "";
}

void log_line(const rd_kafka_t*, int level, const char* facility, const char* text) {
    const bool serious = level <= 3;  // syslog's numbers: 3 is an error, 6 information
    spdlog::log(serious ? spdlog::level::warn : spdlog::level::debug, "kafka: {}: {}{}", facility, text,
                scram_hint(text));
}

using Values = std::map<std::string, std::string>;

// The file of "FILE@host:port", or "". No address holds an '@'.
std::string credentials_file(const std::string& brokers) {
    const auto end = brokers.rfind('@');
    return end == std::string::npos ? "" : brokers.substr(0, end);
}

// What the file has librdkafka do. An error names the line, never what it says: that may be a password.
Result<Values> read_credentials(const std::string& file) {
    if (!file.ends_with(".properties"))
        return Values{{"security.protocol", "ssl"},
                      {"ssl.key.location", file},
                      {"ssl.certificate.location", file},
                      {"ssl.ca.location", file}};
    ATOLL_TRY(const std::string text, read_file(file));
    std::istringstream lines(text);
    Values values;
    int number = 0;
    for (std::string line; std::getline(lines, line);) {
        ++number;
        const std::string_view setting = trim(line);
        if (setting.empty() || setting.starts_with('#')) continue;
        const auto equals = setting.find('=');
        if (equals == std::string_view::npos)
            return invalid_argument("kafka_credentials_file",
                                    file + ", line " + std::to_string(number) + ": must be name=value");
        values[std::string(trim(setting.substr(0, equals)))] = trim(setting.substr(equals + 1));
    }
    return values;
}

}  // namespace

Result<Handle> make_handle(rd_kafka_type_t type, const std::string& brokers, const Settings& settings) {
    std::unique_ptr<rd_kafka_conf_t, DestroyConf> conf(rd_kafka_conf_new());
    std::map<std::string, std::string> values = settings.values;
    const std::string file = credentials_file(brokers);
    if (!file.empty()) {
        ATOLL_TRY(const Values credentials, read_credentials(file));
        values.insert(credentials.begin(), credentials.end());
    }
    values.insert({{"bootstrap.servers", brokers.substr(file.empty() ? 0 : file.size() + 1)},
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

std::string certificate_file(const std::string& brokers) {
    const std::string file = credentials_file(brokers);
    if (!file.ends_with(".properties")) return file;
    auto settings = read_credentials(file);
    return settings.ok() ? (*settings)["ssl.certificate.location"] : "";
}

CertificateWatch::CertificateWatch(const std::string& brokers) : file_(certificate_file(brokers)) {
    if (file_.empty()) return;
    if (const auto now = read_file(file_); now.ok()) was_ = *now;
}

bool CertificateWatch::is_renewed() const {
    if (file_.empty()) return false;
    const auto now = read_file(file_);
    return now.ok() && !now->empty() && *now != was_;
}

Error make_error(rd_kafka_resp_err_t code, const std::string& what) {
    return unavailable("kafka: " + what + ": " + rd_kafka_err2str(code));
}

}  // namespace atl::kafka
