#include "services/cli/watch/job_watch.h"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "services/cli/rest.h"
#include "services/cli/terminal.h"
#include "services/cli/watch/job_progress.h"
#include "shared/base/interrupt.h"
#include "shared/json/printable.h"

namespace atl::cli {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::minutes kAwayMax{10};
constexpr std::size_t kEventsOfPage = 500;

// Shows the progress as it goes, in one of three ways.
class Display {
  public:
    explicit Display(bool as_json) : as_json_(as_json), live_(!as_json && interactive()) {}

    void event(const json& event, const std::string& line) {
        if (as_json_)
            std::cout << json_text(event) << std::endl;
        else if (!live_ && !line.empty())
            std::cout << line << std::endl;
    }
    // Draws the picture over the one before: up by its rows, then each line cleared before it is written.
    void picture(const JobProgress& progress) {
        if (!live_) return;
        const std::size_t columns = terminal_columns();
        const std::string text = progress.picture(columns);
        if (lines_ > 0) write_as_it_is(std::cout, "\033[" + std::to_string(lines_) + "A");
        write_as_it_is(std::cout, "\033[J");
        std::cout << text << std::flush;
        lines_ = rows_on_terminal(text, columns);
    }
    void note(const std::string& text) {
        if (!live_) std::cerr << text << "\n";
    }
    bool is_live() const { return live_; }
    bool shows_lines() const { return !as_json_ && !live_; }

  private:
    bool as_json_;
    bool live_;
    std::ptrdiff_t lines_ = 0;
};

std::string next_cursor(const json& page, const std::string& before) {
    const json next = page.value("next", json());
    if (next.is_string()) return next.get<std::string>();
    if (!next.is_null()) return next.dump();
    const json items = page.value("items", json::array());
    return items.empty() ? before : text(items.back(), "number");
}

// Asks again while the coordinator is away.
Result<json> get_patiently(http::Client& client, const std::string& path, Display& display) {
    const auto deadline = Clock::now() + kAwayMax;
    bool told = false;
    for (;;) {
        auto page = client.get_json(path);
        if (page.ok() || !is_transient(page.error().code) || Clock::now() > deadline) return page;
        if (!told) display.note("the coordinator does not answer; waiting for it");
        told = true;
        std::this_thread::sleep_for(std::chrono::seconds(1));
    }
}

// Pausing a job is no event of it, nor is what a whole facility waits for.
Status show_state(http::Client& client, const std::string& job_path, JobProgress& progress, Display& display) {
    ATOLL_TRY(const json job, get_patiently(client, job_path, display));
    json waiting = job.value("waiting", json::array());
    if (json aggregation = job.value("aggregation_waiting", json()); aggregation.is_object() && waiting.is_array()) {
        aggregation["facility"] = "aggregation";
        waiting.push_back(std::move(aggregation));
    }
    for (const std::string& line : {progress.apply_state(text(job, "state")), progress.apply_waiting(waiting)})
        if (display.shows_lines() && !line.empty()) std::cout << line << std::endl;
    return {};
}

// The end of a job is its last event, though batch jobs of its may have to be cancelled yet.
Status show_left(http::Client& client, const std::string& job_path, JobProgress& progress, Display& display) {
    ATOLL_TRY(const json job, get_patiently(client, job_path, display));
    const std::string lines = progress.apply_left(job.value("waits", json()));
    if (display.shows_lines() && !lines.empty()) std::cout << lines << std::endl;
    return {};
}

Error unsuccessful(const JobProgress& progress, const Display& display, const std::string& id) {
    std::string what =
        std::string("the job ") + (progress.final_state() == "cancelled" ? "was " : "") + progress.final_state();
    const bool was_told = display.shows_lines() && progress.has_told_error();
    if (!was_told && !progress.error().empty()) what += ": " + progress.error();
    if (progress.final_state() == "failed")
        what += "\n  its tasks' own words: atoll job logs " + id + "\n  once that is mended:  atoll job resume " + id;
    return {ErrorCode::kInternal, what, ""};
}

}  // namespace

Status watch_job(const Context& context, const std::string& id) {
    ATOLL_TRY(http::Client client, context.client("dispatch"));
    ATOLL_TRY(http::Client aggregations, context.client("aggregation"));
    const std::string job_path = "/v1/jobs/" + segment(id);
    ATOLL_TRY(const json job, client.get_json(job_path));
    say_on_interrupt(atl::json::printable("job " + id + " runs on without you\n  watch it again:  atoll job watch " +
                                          id + "\n  end it:          atoll job cancel " + id));
    JobProgress progress(job);
    Display display(context.json);
    std::string after = "0";
    bool is_more_there = false;  // a failed job may have been resumed
    while (!progress.ended() || is_more_there) {
        // A pause is seen within that time; no event tells how far an aggregation is.
        const std::string query = progress.aggregates() ? "/events?wait=1s" : "/events?wait=5s";
        ATOLL_TRY(const json page,
                  get_patiently(
                      client, job_path + query + "&limit=" + std::to_string(kEventsOfPage) + "&after=" + segment(after),
                      display));
        is_more_there = page.value("items", json::array()).size() == kEventsOfPage;
        for (const json& event : page.value("items", json::array())) display.event(event, progress.apply(event));
        ATOLL_RETURN_IF_ERROR(progress.ended() ? show_left(client, job_path, progress, display)
                                               : show_state(client, job_path, progress, display));
        if (display.is_live() && progress.aggregates()) {  // only to be looked at: left out where it cannot be had
            const auto aggregation =
                aggregations.get_json("/v1/aggregations/" + segment(id) + "/" + std::to_string(progress.round()));
            if (aggregation.ok()) progress.apply_aggregation(*aggregation);
        }
        display.picture(progress);
        after = next_cursor(page, after);
    }
    if (progress.final_state() == "completed") return {};
    return unsuccessful(progress, display, id);
}

}  // namespace atl::cli
