#include "services/dispatch/routes/task_logs.h"

#include "shared/base/contained.h"
#include "shared/base/parallel.h"

namespace atl::dispatch {
namespace {

using Clock = std::chrono::steady_clock;
using json::Json;

constexpr int kReadAtOnce = 16;

Json read_one(const LogSource& source, Clock::time_point deadline) {
    Json log = source.place;
    if (Clock::now() >= deadline) {
        log["error"] = "not read: other facilities took too long to answer; ask for this task alone";
        return log;
    }
    auto text = contained(source.read);
    if (text.ok())
        log["text"] = std::move(text).value();
    else
        log["error"] = describe(text.error());
    return log;
}

// What a site wrote, each line behind two spaces: no line of it is taken for a heading of ours.
std::string indented(const std::string& text) {
    std::string lines;
    bool begins = true;
    for (const char c : text) {
        if (begins) lines += "  ";
        begins = c == '\n' || c == '\r';
        lines += c;
    }
    return begins ? lines : lines + '\n';
}

}  // namespace

Json gather_logs(const std::vector<LogSource>& sources, Clock::time_point deadline) {
    std::vector<Json> logs(sources.size());
    const Status read = for_each_parallel(sources.size(), kReadAtOnce, [&](std::size_t at, int) -> Status {
        logs[at] = read_one(sources[at], deadline);
        return {};
    });
    check(read.ok(), "reading a log is never an error");
    Json found = Json::array();
    for (std::size_t i = 0; i < logs.size(); ++i)
        if (!sources[i].is_optional || !logs[i].value("text", "").empty()) found.push_back(std::move(logs[i]));
    return found;
}

std::string logs_text(const Json& logs) {
    std::string all;
    for (const Json& log : logs) {
        const auto word = [&](const char* key) { return log.at(key).get<std::string>(); };
        // "== round 2, train at leonardo, task 01ab…, attempt 1: stderr.log"
        all += "== round " + log.at("round").dump() + ", " + word("kind") + " at " + word("facility") + ", task " +
               word("task") + ", attempt " + log.at("attempt").dump() + ": " + word("file") + "\n" +
               indented(word(log.contains("text") ? "text" : "error"));
    }
    return all;
}

}  // namespace atl::dispatch
