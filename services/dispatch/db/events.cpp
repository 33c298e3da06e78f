#include "services/dispatch/db/events.h"

#include <algorithm>

#include "shared/events/events.h"

namespace atl::dispatch {
namespace {

constexpr std::size_t kEventPageBytesMax = std::size_t{4} << 20;
constexpr std::int64_t kPieceMin = 16;  // events that are read at once, of 512 KiB at most

Status send(pg::Transaction& transaction, const Topics& topics, const std::string& job, const DomainEvent& event) {
    events::Event cloud;
    cloud.type = event.type;
    cloud.source = "/dispatch";
    cloud.data = event.data;
    cloud.subject = "jobs/" + job;
    if (event.data.contains("round"))
        cloud.subject += "/rounds/" + std::to_string(event.data.at("round").get<std::int64_t>());
    if (event.data.contains("task")) cloud.subject += "/tasks/" + event.data.at("task").get<std::string>();
    const std::string& topic = event.type == "atoll.round.closed.v1" ? topics.rounds : topics.jobs;
    return events::add_to_outbox(transaction, topic, job, std::move(cloud));
}

}  // namespace

Status record_events(pg::Transaction& transaction, const Topics& topics, const std::string& job,
                     const std::vector<DomainEvent>& events) {
    if (events.empty()) return {};
    const auto count = static_cast<std::int64_t>(events.size());
    ATOLL_TRY(const pg::Rows rows,
              transaction.query("UPDATE jobs SET event_count = event_count + $2 WHERE id = $1 RETURNING event_count",
                                {job, count}));
    if (rows.empty()) return not_found("no job " + job);
    std::int64_t number = rows.integer(0, "event_count") - count;
    for (const auto& event : events) {
        ATOLL_RETURN_IF_ERROR(
            transaction.query("INSERT INTO job_events (job_id, number, type, data) VALUES ($1, $2, $3, $4)",
                              {job, ++number, event.type, event.data}));
        ATOLL_RETURN_IF_ERROR(send(transaction, topics, job, event));
    }
    ATOLL_RETURN_IF_ERROR(transaction.query("SELECT pg_notify($1, $2)", {kEventChannel, job}));
    return {};
}

Status send_again(pg::Transaction& transaction, const Topics& topics, const std::string& job,
                  const std::vector<DomainEvent>& events) {
    for (const auto& event : events) ATOLL_RETURN_IF_ERROR(send(transaction, topics, job, event));
    return {};
}

namespace {

// Adds so many of the next events, as far as they are there and there is room. Whether there may be more of them.
Result<bool> add_piece(pg::Connection& connection, const std::string& job, std::int64_t count, EventPage& page,
                       std::size_t& bytes) {
    ATOLL_TRY(const pg::Rows rows, connection.query("SELECT number, type, " + pg::rfc3339("time") +
                                                        " AS time, data FROM job_events "
                                                        "WHERE job_id = $1 AND number > $2 ORDER BY number LIMIT $3",
                                                    {job, page.last, count}));
    for (int i = 0; i < rows.size() && bytes < kEventPageBytesMax; ++i) {
        bytes += rows.text(i, "data").size();
        page.last = rows.integer(i, "number");
        page.items.push_back({{"number", page.last},
                              {"type", rows.text(i, "type")},
                              {"time", rows.text(i, "time")},
                              {"data", rows.json(i, "data")}});
    }
    return rows.size() == count;
}

}  // namespace

Result<EventPage> read_events(pg::Connection& connection, const std::string& job, std::int64_t after,
                              std::int64_t limit) {
    // The job is read first: if it was finished then, every event of it is visible to the second statement.
    ATOLL_TRY(const pg::Rows jobs, connection.query("SELECT state FROM jobs WHERE id = $1", {job}));
    if (jobs.empty()) return not_found("no job " + job);
    EventPage page;
    page.last = after;
    std::size_t bytes = 0;
    ATOLL_TRY(const JobState state, parse_job_state(jobs.text(0, "state")));
    page.job_is_finished = is_finished(state);
    // A few at a time, and more where they are small: what does not come into the page is not read.
    for (std::int64_t piece = kPieceMin, left = limit; left > 0 && bytes < kEventPageBytesMax;) {
        const std::size_t before = bytes;
        ATOLL_TRY(const bool has_more, add_piece(connection, job, std::min(piece, left), page, bytes));
        if (!has_more) break;
        left = limit - std::ssize(page.items);
        piece = bytes - before < kEventPageBytesMax / 16 ? 2 * piece : kPieceMin;
    }
    return page;
}

}  // namespace atl::dispatch
