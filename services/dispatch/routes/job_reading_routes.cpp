#include <algorithm>
#include <charconv>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "services/dispatch/admission/facility_access.h"
#include "services/dispatch/db/facilities.h"
#include "services/dispatch/db/job_views.h"
#include "services/dispatch/db/jobs.h"
#include "services/dispatch/db/tasks.h"
#include "services/dispatch/routes/routes.h"
#include "services/dispatch/routes/task_logs.h"
#include "services/dispatch/work/batch_job.h"
#include "shared/base/text.h"
#include "shared/service/routes.h"
#include "shared/site/attempt_files.h"

namespace atl::dispatch {
namespace {

using http::Method;
using http::Request;
using http::Response;
using json::Json;

constexpr std::int64_t kWaitMax_s = 30;
constexpr std::int64_t kTailLinesMax = 10000;
constexpr std::int64_t kTailBytesPerLine = 400;
constexpr std::int64_t kLogsBytesMax = std::int64_t{32} << 20;  // of all logs of an answer, each its share
constexpr std::chrono::seconds kLogsTimeMax{60};  // what began then ends before gateways give up, at 120 s

// Their statements need no transaction around them, which would cost two more round trips.
Result<Response> get_jobs(Routing& routing, const Request& request) {
    ATOLL_TRY(const http::Page page, http::parse_page(request));
    ATOLL_TRY(auto connection, routing.pool.acquire());
    return service::list(page, {"id"},
                         [&](const http::Page& piece) { return job_list(*connection, piece.after, piece.limit + 1); });
}

Result<Response> get_job(Routing& routing, const Request& request) {
    ATOLL_TRY(auto connection, routing.pool.acquire());
    ATOLL_TRY(std::string job, routing.job_answers.show(*connection, request.param("id")));
    return Response::text(200, std::move(job), "application/json");
}

Result<Response> get_rounds(Routing&, pg::Transaction& transaction, const Request& request) {
    ATOLL_TRY(const http::Page page, http::parse_page(request));
    ATOLL_TRY(const std::int64_t after, query_integer(request, "after", -1, INT32_MAX));
    ATOLL_TRY(const Json rounds, rounds_view(transaction.connection(), request.param("id"), after, page.limit));
    return Response::json(200, rounds);
}

Result<Response> get_updates(Routing&, pg::Transaction& transaction, const Request& request) {
    const std::string& number = request.param("round");
    ATOLL_TRY(const JobView job, load_job(transaction, request.param("id")));
    if (is_finished(job.state))
        return with_cause(conflict(std::string("the job is ") + to_string(job.state), "id"), Cause::kJobEnded);
    if (number != std::to_string(job.round.number) || job.round.state != RoundState::kAggregating)
        return conflict("round " + number + " waits for no aggregation: the job is at round " +
                            std::to_string(job.round.number) + ", which is " + to_string(job.round.state),
                        "round");
    return Response::json(200, closed_round(job));
}

Result<EventFeed::Query> parse_event_query(const Request& request) {
    EventFeed::Query query;
    query.job = request.param("id");
    query.caller = request.principal->subject;
    ATOLL_TRY(query.after, query_integer(request, "after", 0, INT64_MAX));
    ATOLL_TRY(query.limit, query_integer(request, "limit", 100, 1000));
    ATOLL_TRY(const std::int64_t wait_s, query_integer(request, "wait", 0, 3600, "s"));
    query.limit = std::max<std::int64_t>(query.limit, 1);
    query.deadline = std::chrono::steady_clock::now() + std::chrono::seconds(std::min(wait_s, kWaitMax_s));
    return query;
}

// Runs on a listener's thread: hands the query on and returns.
void events(Routing& routing, const Request& request, const http::Responder& responder) {
    auto query = parse_event_query(request);
    const std::string request_id = request.request_id;
    if (!query.ok()) return responder.respond(Response::problem(query.error(), request_id));
    query->answer = [responder, request_id](const Result<EventPage>& page) {
        if (!page.ok()) return responder.respond(service::problem(page.error(), request_id));
        responder.respond(Response::json(200, {{"items", page->items}, {"next", std::to_string(page->last)}}));
    };
    routing.feed.ask(std::move(query).value());
}

struct LogPlace {
    Task task;
    std::int64_t attempt = 0;
    KeptLogs kept;
    Result<StoredFacility> facility;  // it may be gone
    Status may_read;                  // whoever asks
};

// What a site's programs wrote is for the job's owner, for whom the facility allows, and for admins.
Status require_log_reader(const Result<StoredFacility>& facility, const std::string& owner,
                          const auth::Principal& principal) {
    if (principal.subject == owner || principal.role == auth::Role::kAdmin) return {};
    if (facility.ok()) return require_use(facility->facility, principal, "task");
    return permission_denied("the facility is gone: its logs are for the job's owner, " + owner + ", and for admins");
}

Result<std::vector<LogPlace>> log_places(Routing& routing, const Request& request) {
    const auto wanted = request.query.find("task");
    const std::string id = wanted == request.query.end() ? "" : wanted->second;
    ATOLL_TRY(const std::int64_t attempt, query_integer(request, "attempt", 0, INT32_MAX));
    ATOLL_TRY(auto connection, routing.pool.acquire());
    ATOLL_TRY(const std::string owner, job_owner(*connection, request.param("id")));
    ATOLL_TRY(const auto tasks, tasks_with_logs(*connection, request.param("id"), id));
    if (!id.empty() && tasks.empty()) return not_found("the job has no task " + id, "task");
    std::vector<LogPlace> places;
    for (const auto& task : tasks) {
        if (!task.attempt || task.attempt->number < attempt) continue;
        const std::int64_t number = attempt > 0 ? attempt : task.attempt->number;
        auto kept = kept_logs(*connection, task.id, number);
        if (!kept.ok() && kept.error().code == ErrorCode::kNotFound) continue;
        ATOLL_RETURN_IF_ERROR(kept);
        auto facility = find_facility(*connection, task.facility);
        if (!facility.ok() && facility.error().code != ErrorCode::kNotFound) return facility.error();
        const Status may_read = require_log_reader(facility, owner, *request.principal);
        places.push_back({task, number, std::move(kept).value(), std::move(facility), may_read});
    }
    if (attempt > 0 && places.empty())
        return not_found((id.empty() ? "no task of the current round has an attempt " : "the task has no attempt ") +
                             std::to_string(attempt) + ", or it is no longer kept",
                         "attempt");
    return places;
}

// As it was submitted, or would be now.
Result<Response> get_script(Routing& routing, const Request& request) {
    Task task;
    StoredFacility stored;
    {
        ATOLL_TRY(auto connection, routing.pool.acquire());
        ATOLL_RETURN_IF_ERROR(job_view(*connection, request.param("id")));
        ATOLL_TRY(auto tasks, tasks_with_logs(*connection, request.param("id"), request.param("task")));
        if (tasks.empty()) return not_found("the job has no task " + request.param("task"), "task");
        task = std::move(tasks.front());
        if (!task.damage.empty()) return internal_error(task.damage);
        ATOLL_TRY(stored, find_facility(*connection, task.facility));
    }
    ATOLL_RETURN_IF_ERROR(require_use(stored.facility, *request.principal, "task"));
    if (!task.attempt) task.attempt.emplace();
    ATOLL_TRY(
        const std::string script,
        render_batch_script(task, *routing.connections.site(without_secrets(stored.facility, *request.principal))));
    return Response::text(200, script);
}

std::string last_lines(const std::string& text, std::int64_t count) {
    std::size_t at = text.size();
    for (std::int64_t i = 0; i <= count; ++i) {
        if (at == 0) return text;
        at = text.rfind('\n', at - 1);
        if (at == std::string::npos) return text;
    }
    return text.substr(at + 1);
}

// Why nothing of an attempt's logs is asked for, if its facility gives none.
Status require_given(const Facility& facility, Step step) {
    if (gives_logs(facility.logs, step)) return {};
    const bool is_of_errors = facility.logs.give == LogsGiven::kErrors;
    return permission_denied("the facility " + in_quotes(facility.name) + " gives " +
                             (is_of_errors ? "the logs of attempts that failed and no others" : "no logs") +
                             " (logs.return in its record)");
}

// Ends of files at one facility: the first who needs one has them all read, by one script.
class FacilityTails {
  public:
    std::size_t add(std::string file) {
        files_.push_back(std::move(file));
        return files_.size() - 1;
    }
    Result<std::string> read(Routing& routing, const Facility& facility, std::size_t at, std::int64_t bytes) {
        const std::lock_guard lock(mutex_);
        if (!texts_) texts_ = read_all(routing, facility, bytes);
        ATOLL_RETURN_IF_ERROR(*texts_);
        return texts_->value().at(at);
    }

  private:
    static constexpr std::int64_t kScriptBytesMax = 3 << 20;  // less than what a script may print

    Result<std::vector<std::string>> read_all(Routing& routing, const Facility& facility, std::int64_t bytes) const {
        ATOLL_TRY(const auto place, routing.site_requests.take_place_at(facility.name));
        const auto share = kScriptBytesMax / static_cast<std::int64_t>(files_.size());
        return routing.connections.site(facility)->tails(files_, std::min(bytes, share));
    }

    std::mutex mutex_;
    std::vector<std::string> files_;
    std::optional<Result<std::vector<std::string>>> texts_;
};
using Tails = std::map<std::string, std::shared_ptr<FacilityTails>>;  // by facility

// One end of an attempt's streams: as it is kept, or else as it is at the site.
std::function<Result<std::string>()> log_reader(Routing& routing, const LogPlace& place, const std::string& file,
                                                std::int64_t lines, std::int64_t bytes, Tails& tails) {
    if (!place.may_read.ok()) return [why = place.may_read] { return Result<std::string>(why.error()); };
    if (const auto kept = place.kept.text.find(file); kept != place.kept.text.end())
        return [text = last_lines(kept->second, lines)] { return Result(text); };
    if (!place.kept.text.empty()) return [] { return Result<std::string>(""); };  // an empty batch log is not kept
    const Status given =
        place.facility.ok() ? require_given(place.facility->facility, place.kept.step) : Status(place.facility.error());
    if (!given.ok()) return [given] { return Result<std::string>(given.error()); };
    auto& at = tails[place.task.facility];
    if (at == nullptr) at = std::make_shared<FacilityTails>();
    const Facility& facility = place.facility->facility;
    const auto site = routing.connections.site(facility);
    const std::size_t index = at->add(site->task_directory(place.task.id, place.attempt) + "/" + file);
    return [&routing, at, facility, index, lines, bytes]() -> Result<std::string> {
        ATOLL_TRY(const std::string text, at->read(routing, facility, index, bytes));
        return last_lines(text, lines);
    };
}

// The ends of an attempt's log files.
void add_logs(Routing& routing, const LogPlace& place, std::int64_t lines, std::int64_t bytes, Tails& tails,
              std::vector<LogSource>& sources) {
    const Task& task = place.task;
    for (const char* file : site::kLogFiles) {
        const Json where = {{"round", task.round}, {"kind", to_string(task.kind())}, {"facility", task.facility},
                            {"task", task.id},     {"attempt", place.attempt},       {"file", file}};
        sources.push_back(
            {where, log_reader(routing, place, file, lines, bytes, tails), std::string_view(file) == site::kBatchLog});
    }
}

Result<bool> wants_json(const Request& request) {
    const auto found = request.query.find("format");
    const std::string format = found == request.query.end() || found->second.empty() ? "text" : found->second;
    if (format != "text" && format != "json") return invalid_argument("format", "must be text or json");
    return format == "json";
}

Result<Response> get_logs(Routing& routing, const Request& request) {
    ATOLL_TRY(const std::int64_t lines, query_integer(request, "tail", 100, kTailLinesMax));
    ATOLL_TRY(const bool as_json, wants_json(request));
    ATOLL_TRY(const auto of_caller, routing.site_requests.take_place_of(request.principal->subject));
    ATOLL_TRY(const auto places, log_places(routing, request));
    const auto count = static_cast<std::int64_t>(std::max<std::size_t>(1, std::size(site::kLogFiles) * places.size()));
    const std::int64_t bytes = std::min(lines * kTailBytesPerLine, kLogsBytesMax / count);
    std::vector<LogSource> sources;
    Tails tails;
    for (const auto& place : places) add_logs(routing, place, lines, bytes, tails, sources);
    Json logs = gather_logs(sources, std::chrono::steady_clock::now() + kLogsTimeMax);
    if (as_json) return Response::json(200, {{"items", std::move(logs)}, {"next", nullptr}});
    return Response::text(200, logs_text(logs));
}

}  // namespace

Result<std::int64_t> query_integer(const Request& request, const std::string& key, std::int64_t fallback,
                                   std::int64_t max, const std::string& unit) {
    const auto found = request.query.find(key);
    if (found == request.query.end() || found->second.empty()) return fallback;
    std::string text = found->second;
    if (!unit.empty() && text.ends_with(unit)) text.resize(text.size() - unit.size());
    std::int64_t value = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > max)
        return invalid_argument(
            key, "must be a whole number from 0 to " + std::to_string(max) + (unit.empty() ? "" : ", as in 20" + unit));
    return value;
}

void add_job_reading_routes(http::Server& server, Routing& routing) {
    const service::Routes routes("dispatch", server, routing);
    routes.add(Method::kGet, "/v1/jobs", get_jobs);
    routes.add(Method::kGet, "/v1/jobs/:id", get_job);
    routes.add(Method::kGet, "/v1/jobs/:id/rounds", get_rounds);
    routes.add(Method::kGet, "/v1/jobs/:id/rounds/:round/updates", get_updates);
    add_site_route(server, routing, Method::kGet, "/v1/jobs/:id/logs", get_logs);
    routes.add(Method::kGet, "/v1/jobs/:id/tasks/:task/script", get_script);
    server.route_async(
        Method::kGet, "/v1/jobs/:id/events",
        service::access_of(service::permission_of("dispatch", Method::kGet, "/v1/jobs/:id/events")),
        [&routing](const Request& request, const http::Responder& responder) { events(routing, request, responder); });
}

}  // namespace atl::dispatch
