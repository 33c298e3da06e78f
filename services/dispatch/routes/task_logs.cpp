#include "services/dispatch/routes/task_logs.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "shared/base/contained.h"

namespace atl::dispatch {
namespace {

using Clock = std::chrono::steady_clock;
using json::Json;

constexpr std::size_t kReadAtOnce = 16;

Json read_one(const LogSource& source, Clock::time_point deadline) {
    Json log = source.place;
    if (Clock::now() >= deadline) {
        log["error"] = "not read: other sites took too long to answer; ask for this task alone";
        return log;
    }
    auto text = contained(source.read);
    if (text.ok())
        log["text"] = std::move(text).value();
    else
        log["error"] = describe(text.error());
    return log;
}

// "round 2, train at leonardo, task 01ab…, attempt 1: stderr.log"
std::string heading_of(const Json& log) {
    const auto word = [&](const char* key) { return log.at(key).get<std::string>(); };
    return "round " + log.at("round").dump() + ", " + word("kind") + " at " + word("facility") + ", task " +
           word("task") + ", attempt " + log.at("attempt").dump() + ": " + word("file");
}

}  // namespace

Json gather_logs(const std::vector<LogSource>& sources, Clock::time_point deadline) {
    std::vector<Json> logs(sources.size());
    std::atomic<std::size_t> next = 0;
    {
        std::vector<std::jthread> readers;
        for (std::size_t i = 0; i < std::min(kReadAtOnce, sources.size()); ++i)
            readers.emplace_back([&] {
                for (std::size_t at = next++; at < sources.size(); at = next++)
                    logs[at] = read_one(sources[at], deadline);
            });
    }
    return logs;
}

std::string logs_text(const Json& logs) {
    std::string all;
    for (const Json& log : logs) {
        all += "== " + heading_of(log) + "\n" + log.at(log.contains("text") ? "text" : "error").get<std::string>();
        if (!all.ends_with('\n')) all += '\n';
    }
    return all;
}

}  // namespace atl::dispatch
