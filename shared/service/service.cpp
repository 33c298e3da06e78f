#include "shared/service/service.h"

#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "shared/auth/certificate.h"
#include "shared/base/environment.h"
#include "shared/base/file.h"
#include "shared/kafka/kafka.h"
#include "shared/log/log.h"
#include "shared/metrics/common.h"
#include "shared/metrics/process.h"
#include "shared/service/readiness.h"
#include "shared/service/revocations.h"
#include "shared/service/routes.h"
#include "shared/service/settings.h"

namespace atl::service {
namespace {

using Tables = std::vector<std::span<const metrics::Metric>>;

constexpr std::chrono::seconds kDatabaseWaitMax{60};
constexpr std::chrono::seconds kDatabasePause{1};
constexpr rlim_t kOpenFilesWanted = 65536;

// SIGTERM and SIGINT, taken synchronously by the main thread; every thread started later inherits the mask.
class StopSignal {
  public:
    StopSignal() {
        sigemptyset(&signals_);
        sigaddset(&signals_, SIGTERM);
        sigaddset(&signals_, SIGINT);
        pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
    }
    void wait() const {
        int signal = 0;
        while (sigwait(&signals_, &signal) != 0) {
        }
    }
    // True when a signal came within the time.
    bool wait_for(std::chrono::seconds time) const {
        const timespec limit{static_cast<std::time_t>(time.count()), 0};
        return sigtimedwait(&signals_, nullptr, &limit) > 0;
    }

  private:
    sigset_t signals_{};
};

// Each connection is a descriptor; the usual soft limit of 1024 is for programs that use select().
void raise_open_files_limit() {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kOpenFilesWanted) return;
    limit.rlim_cur = std::min(limit.rlim_max, kOpenFilesWanted);
    setrlimit(RLIMIT_NOFILE, &limit);
}

Status migrate(const Settings& settings, const Definition& definition) {
    ATOLL_TRY(pg::Connection connection, pg::connect(settings.postgres));
    ATOLL_RETURN_IF_ERROR(migrate_revocations(connection));
    return pg::migrate(connection, definition.name, definition.migrations);
}

// False when a signal came first.
Result<bool> prepare_database(const Settings& settings, const Definition& definition, const StopSignal& stop) {
    const auto deadline = std::chrono::steady_clock::now() + kDatabaseWaitMax;
    for (;;) {
        const Status status = migrate(settings, definition);
        if (status.ok()) return true;
        const bool wait_longer =
            is_transient(status.error().code) && std::chrono::steady_clock::now() + kDatabasePause < deadline;
        if (!wait_longer) return status.error();
        spdlog::warn("waiting for the database: {}", describe(status.error()));
        if (stop.wait_for(kDatabasePause)) return false;
    }
}

void add_pool_metrics(metrics::Registry& metrics, const pg::Pool& pool) {
    using metrics::kCommon;
    auto& lent = metrics.gauge(kCommon["atoll_pg_pool_connections"], {{"state", "lent"}});
    auto& idle = metrics.gauge(kCommon["atoll_pg_pool_connections"], {{"state", "idle"}});
    auto& waiters = metrics.gauge(kCommon["atoll_pg_pool_waiters"]);
    auto& waited = metrics.counter(kCommon["atoll_pg_pool_wait_seconds_total"]);
    metrics.gauge(kCommon["atoll_pg_pool_connections_max"]).Set(pool.usage().size_max);
    metrics.on_expose([&pool, &lent, &idle, &waiters, &waited] {
        const auto usage = pool.usage();
        lent.Set(usage.lent);
        idle.Set(usage.idle);
        waiters.Set(usage.waiters);
        waited.Increment(usage.waited_s - waited.Value());
    });
}

void add_common_metrics(metrics::Registry& metrics, const pg::Pool& pool, const Settings& settings) {
    metrics
        .gauge(metrics::kCommon["atoll_build_info"],
               {{"version", ATOLL_VERSION}, {"revision", environment("ATOLL_REVISION")}})
        .Set(1);
    metrics::add_process(metrics);
    add_pool_metrics(metrics, pool);
    const std::string shown = kafka::certificate_file(settings.kafka_brokers);
    if (shown.empty()) return;
    auto& end = metrics.gauge(metrics::kCommon["atoll_certificate_expiry_timestamp_seconds"], {{"use", "kafka"}});
    metrics.on_expose([&end, file = shown] {
        const auto pem = read_file(file);
        const auto end_s = pem.ok() ? auth::certificate_end_s(*pem) : Result<std::int64_t>(pem.error());
        if (end_s.ok()) end.Set(static_cast<double>(*end_s));
    });
}

http::Response show_readiness(const Status& status, const std::string& request_id) {
    if (status.ok()) return http::Response::json(200, {{"status", "ready"}});
    return http::Response::problem(unavailable(describe(status.error())), request_id);
}

http::Response show_token(const auth::Principal& principal) {
    return http::Response::json(200, {{"id", principal.token_id},
                                      {"subject", principal.subject},
                                      {"role", auth::to_string(principal.role)},
                                      {"expires_unix_s", principal.expires_unix_s}});
}

// `readiness` is there when the server starts.
void add_common_routes(http::Server& server, metrics::Registry& metrics, const Tables& tables, std::string_view openapi,
                       const std::optional<Readiness>& readiness) {
    using http::Method;
    const auto open = http::Access::open();
    server.route(Method::kGet, "/healthz", open,
                 [](const http::Request&) { return http::Response::json(200, {{"status", "alive"}}); });
    server.route(Method::kGet, "/readyz", open,
                 [&](const http::Request& request) { return show_readiness(readiness->get(), request.request_id); });
    const auto expose = [&metrics, &tables](const http::Request&) {
        return http::Response::text(200, metrics.expose(tables), "text/plain; version=0.0.4; charset=utf-8");
    };
    server.route(Method::kGet, "/metrics", open, expose);  // inside the coordinator's network alone
    server.route(Method::kGet, "/v1/metrics", access_of(permission_of("*", Method::kGet, "/v1/metrics")), expose);
    // The gateway asks this before it takes a body; people ask whose token it is.
    server.route(Method::kGet, "/v1/token", access_of(permission_of("*", Method::kGet, "/v1/token")),
                 [](const http::Request& request) { return show_token(*request.principal); });
    server.route(Method::kGet, "/openapi.json", open, [openapi](const http::Request&) {
        return http::Response::text(200, std::string(openapi), "application/json");
    });
}

// HEAD is its GET's route.
std::optional<http::Method> parse_method(const std::string& key) {
    for (const http::Method method :
         {http::Method::kGet, http::Method::kPost, http::Method::kPut, http::Method::kPatch, http::Method::kDelete}) {
        std::string name = http::to_string(method);
        std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
        if (key == name) return method;
    }
    return {};
}

// "/v1/jobs/{id}" -> "/v1/jobs/:id"
std::string pattern_of(const std::string& path) {
    std::string pattern;
    for (const char c : path)
        if (c != '}') pattern += c == '{' ? ':' : c;
    return pattern;
}

// The parameters of an operation's query, its path's among them.
std::vector<std::string> query_names(const json::Json& document, const json::Json& item, const json::Json& operation) {
    std::vector<std::string> names;
    for (const json::Json* owner : {&item, &operation})
        for (const json::Json& entry : owner->value("parameters", json::Json::array())) {
            const json::Json& parameter =
                entry.contains("$ref")
                    ? document.at(json::Json::json_pointer(entry.at("$ref").get<std::string>().substr(1)))
                    : entry;
            if (parameter.at("in") == "query") names.push_back(parameter.at("name"));
        }
    return names;
}

// What the document does not name in a query is refused.
void limit_queries(http::Server& server, std::string_view openapi) {
    const json::Json document = json::Json::parse(openapi);
    const json::Json paths = document.value("paths", json::Json::object());
    for (const auto& [path, item] : paths.items())
        for (const auto& [key, operation] : item.items()) {
            const auto method = parse_method(key);
            if (method) server.limit_query(*method, pattern_of(path), query_names(document, item, operation));
        }
}

// What has so many bytes is given back to the system when it is freed: bodies come seldom and many at once.
constexpr int kBodyBytes = 1 << 20;

http::ServerOptions server_options(const Settings& settings) {
    http::ServerOptions options;
    options.address = settings.listen_address;
    options.port = settings.port;
    options.request_bytes_max = settings.request_bytes_max;
    // As many whole requests as are worked on at once.
    options.body_bytes_max = settings.request_bytes_max * static_cast<std::size_t>(options.handler_threads);
    return options;
}

Result<auth::Verifier> load_verifier(const Settings& settings) {
    const auto pem = read_file(settings.public_key_file);
    if (!pem.ok()) return invalid_argument("public_key_file", describe(pem.error()));
    auto verifier = auth::Verifier::from_pem(*pem);
    if (!verifier.ok()) return invalid_argument("public_key_file", verifier.error().message);
    return verifier;
}

Status serve(const Settings& settings, const Definition& definition, const StopSignal& stop) {
    ::mallopt(M_MMAP_THRESHOLD, kBodyBytes);
    ATOLL_TRY(const Start start, definition.configure(settings.own));
    ATOLL_TRY(auth::Verifier verifier, load_verifier(settings));
    ATOLL_TRY(const bool prepared, prepare_database(settings, definition, stop));
    if (!prepared) return {};
    pg::Pool pool(settings.postgres, definition.name, settings.postgres_connections);
    ATOLL_TRY(const auto token_watch, TokenWatch::start(pool, verifier, settings.public_key_file));
    metrics::Registry metrics;
    add_common_metrics(metrics, pool, settings);
    const auto tables = metric_tables(definition);
    // `running` is declared first: the server, whose handlers use it, goes first.
    std::unique_ptr<Running> running;
    std::optional<Readiness> readiness;
    http::Server server(server_options(settings), std::move(verifier), metrics);
    add_common_routes(server, metrics, tables, definition.openapi, readiness);
    Context context{settings, pool, server, metrics};
    ATOLL_TRY(running, start(context));
    check(running != nullptr, "a service's start() returns what runs");
    limit_queries(server, definition.openapi);
    readiness.emplace(pool, *running, metrics);
    ATOLL_RETURN_IF_ERROR(server.start());
    spdlog::info("listening on {}{}", settings.listen_address,
                 server.port() == 0 ? "" : ":" + std::to_string(server.port()));
    stop.wait();
    spdlog::info("stopping");
    running->stop_waiting();
    server.stop();
    readiness.reset();
    running.reset();
    spdlog::info("stopped");
    return {};
}

int fail(const std::string& program, const Error& error, int status) {
    std::fprintf(stderr, "%s: %s\n", program.c_str(), describe(error).c_str());
    return status;
}

void print_help(const std::string& program) {
    std::printf(
        "Usage: %s --config FILE [--check-config]\n\n"
        "  --config FILE    YAML: listen_address, port, postgres, postgres_connections,\n"
        "                   kafka_brokers, kafka_credentials_file, public_key_file, log_level, "
        "log_file, request_bytes_max\n"
        "                   and the service's own object\n"
        "  --check-config   says whether the configuration is right, and ends\n"
        "  --version        prints the version\n\n"
        "SIGTERM ends it once the requests in flight are answered.\n",
        program.c_str());
}

// Whether a configuration whose common keys are right is right as a whole.
Status check_configuration(const Settings& settings, const Definition& definition) {
    ATOLL_RETURN_IF_ERROR(definition.configure(settings.own));
    ATOLL_RETURN_IF_ERROR(load_verifier(settings));
    return {};
}

// The exit status of a run with a readable configuration.
int run_with(const Arguments& arguments, const Settings& settings, const std::string& program,
             const Definition& definition) {
    if (arguments.check_only) {
        if (const auto status = check_configuration(settings, definition); !status.ok())
            return fail(program, status.error(), 2);
        std::printf("the configuration is right\n");
        return 0;
    }
    log::set_up({.program = program, .level = settings.log_level, .json = true, .file = settings.log_file});
    const StopSignal stop;
    raise_open_files_limit();
    const Status status = serve(settings, definition, stop);
    if (status.ok()) return 0;
    spdlog::critical("{}", describe(status.error()));
    return status.error().code == ErrorCode::kInvalidArgument ? 2 : 1;
}

}  // namespace

Tables metric_tables(const Definition& definition) {
    Tables tables = definition.metrics;
    tables.insert(tables.begin(), metrics::kCommon.rows);
    return tables;
}

int run(int argc, char** argv, const Definition& definition) {
    const std::string program = "atoll-" + definition.name;
    try {
        const auto arguments = parse_arguments(argc, argv);
        if (!arguments.ok()) return fail(program, arguments.error(), 2);
        if (arguments->help) return print_help(program), 0;
        if (arguments->version) return std::printf("%s %s\n", program.c_str(), ATOLL_VERSION), 0;
        const auto settings = load_settings(arguments->config_file, definition.name);
        if (!settings.ok()) return fail(program, settings.error(), 2);
        return run_with(*arguments, *settings, program, definition);
    } catch (const std::exception& error) {
        return fail(program, internal_error(error.what()), 1);
    }
}

}  // namespace atl::service
