#include "shared/log/log.h"

#include <spdlog/sinks/rotating_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <chrono>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "shared/base/text.h"
#include "shared/json/printable.h"

namespace atl::log {
namespace {

// Secrets never reach the logs, whoever logs them, and what somebody else wrote steers no terminal.
std::string redacted_message(const spdlog::details::log_msg& line) {
    return json::printable(redact(std::string(line.payload.data(), line.payload.size())));
}

// A line that somebody else's text holds does not look like one of the log.
std::string indent_lines(const std::string& message) {
    return replace_all(message, "\n", "\n    ");
}

void append(spdlog::memory_buf_t& to, std::string_view text) {
    to.append(text.data(), text.data() + text.size());
}

// "2026-03-01T12:00:00.123Z"
std::string utc_time(spdlog::log_clock::time_point when) {
    const auto since = std::chrono::floor<std::chrono::milliseconds>(when.time_since_epoch());
    const std::time_t seconds = spdlog::log_clock::to_time_t(when);
    std::tm parts{};
    ::gmtime_r(&seconds, &parts);
    char text[32];
    const std::size_t size = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
    return std::string(text, size) + fmt::format(".{:03}Z", since.count() % 1000);
}

class JsonFormatter final : public spdlog::formatter {
  public:
    explicit JsonFormatter(std::string program) : program_(std::move(program)) {}

    void format(const spdlog::details::log_msg& line, spdlog::memory_buf_t& to) override {
        const auto level = spdlog::level::to_string_view(line.level);
        const nlohmann::ordered_json object = {{"time", utc_time(line.time)},
                                               {"level", std::string_view(level.data(), level.size())},
                                               {"program", program_},
                                               {"thread", line.thread_id},
                                               {"message", redacted_message(line)}};
        append(to, object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
    }
    std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<JsonFormatter>(program_); }

  private:
    std::string program_;
};

class TextFormatter final : public spdlog::formatter {
  public:
    explicit TextFormatter(std::string program) : program_(std::move(program)) {}

    void format(const spdlog::details::log_msg& line, spdlog::memory_buf_t& to) override {
        const auto level = spdlog::level::to_string_view(line.level);
        append(to, fmt::format("{} {} {}: {}\n", utc_time(line.time), program_,
                               std::string_view(level.data(), level.size()), indent_lines(redacted_message(line))));
    }
    std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<TextFormatter>(program_); }

  private:
    std::string program_;
};

bool is_base64url(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

spdlog::sink_ptr sink_for(const Options& options) {
    constexpr std::size_t kOldFiles = 3;
    if (options.file.empty()) return std::make_shared<spdlog::sinks::stderr_sink_mt>();
    return std::make_shared<spdlog::sinks::rotating_file_sink_mt>(options.file.string(), options.file_bytes_max,
                                                                  kOldFiles);
}

}  // namespace

void set_up(const Options& options) {
    auto logger = std::make_shared<spdlog::logger>(options.program, sink_for(options));
    logger->flush_on(spdlog::level::trace);
    if (options.json)
        logger->set_formatter(std::make_unique<JsonFormatter>(options.program));
    else
        logger->set_formatter(std::make_unique<TextFormatter>(options.program));
    logger->set_level(spdlog::level::from_str(options.level));
    spdlog::set_default_logger(std::move(logger));
}

std::string redact(std::string text) {
    // A JWT is three base64url parts; its header is a JSON object, whose first bytes `{"` always encode to "eyJ".
    for (std::size_t at = text.find("eyJ"); at != std::string::npos; at = text.find("eyJ", at + 3)) {
        std::size_t end = at;
        int dots = 0;
        while (end < text.size() && (is_base64url(text[end]) || (text[end] == '.' && dots < 2))) {
            if (text[end] == '.') ++dots;
            ++end;
        }
        if (dots >= 1) text.replace(at, end - at, "[token]");
    }
    return text;
}

}  // namespace atl::log
