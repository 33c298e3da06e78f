#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shared/auth/auth.h"
#include "shared/http/server/server.h"
#include "shared/json/json.h"
#include "shared/metrics/metrics.h"
#include "shared/pg/pg.h"

// What the four services share: reading the configuration, logging, the database pool and its migrations, the HTTP
// server with /healthz /readyz /metrics /openapi.json, the token verifier, and a graceful SIGTERM.
namespace atl::service {

// The keys every service's configuration file has; a service's own keys are under its name ("store": {…}).
struct Settings {
    std::string listen_address = "127.0.0.1";  // or "unix:/path", without a port
    std::uint16_t port = 0;
    std::string postgres;  // libpq conninfo
    int postgres_connections = 8;
    std::string kafka_brokers;    // a cluster as kafka.h takes it: "host:port,…" or "FILE@host:port,…"
    std::string public_key_file;  // PEM, verifies tokens
    std::string log_level = "info";
    std::string log_file;  // empty: standard error; see log::Options
    std::size_t request_bytes_max = 1U << 20;
    json::Json own;  // the service's own object, {} if absent; Definition::configure reads it
};

// What this process is called, also after it was killed and started again: host, address and port (or the socket's
// path), which no two living processes share. Empty when the port is any free one.
std::string instance_name(const Settings& settings);

struct Context {
    const Settings& settings;
    pg::Pool& pool;
    http::Server& server;
    metrics::Registry& metrics;
};

// A running service: its destructor stops its threads (relay, consumers, workers). `ready` says why it is not; it is
// asked each second, by one thread, which may wait for an answer.
class Running {
  public:
    virtual ~Running() = default;
    virtual Status ready() { return {}; }
    // Why events do not flow to Kafka and from it; asked each second too. A service that needs them is not ready then.
    virtual Status events() { return {}; }
    virtual bool needs_events() const { return false; }
    // Called once when the service is to stop, before it drains: deferred requests are to be answered now.
    virtual void stop_waiting() {}
};

// Adds routes and starts threads. An error ends the program with its message.
using Start = std::function<Result<std::unique_ptr<Running>>(Context&)>;

struct Definition {
    std::string name;  // "store": its schema and configuration key
    std::span<const pg::Migration> migrations;
    std::string_view openapi;                               // embedded openapi.json
    std::vector<std::span<const metrics::Metric>> metrics;  // its tables, beside metrics::kCommon
    // Reads the service's own object of the configuration and gives what starts the service with it. An error names the
    // key ("store.root"). Nothing else is read or touched: --check-config asks for no more.
    std::function<Result<Start>(const json::Json& own)> configure;
};

// `configure` of a service whose settings are a type: {…, configure_with(parse_settings, start)}.
template <class OwnSettings>
auto configure_with(Result<OwnSettings> (*parse)(const json::Json& own),
                    Result<std::unique_ptr<Running>> (*start)(Context& context, const OwnSettings& settings)) {
    return [parse, start](const json::Json& own) -> Result<Start> {
        ATOLL_TRY(OwnSettings settings, parse(own));
        return Start([start, settings = std::move(settings)](Context& context) { return start(context, settings); });
    };
}

// All tables that the service serves on /metrics.
std::vector<std::span<const metrics::Metric>> metric_tables(const Definition& definition);

// main() of a service: atoll-NAME --config FILE [--check-config]. Returns the exit status: 0 after SIGTERM, 2 for a
// wrong command line or configuration, 1 for any other failure. Waits up to a minute for the database.
//
//   int main(int argc, char** argv) { return atl::service::run(argc, argv, atl::registry::definition()); }
int run(int argc, char** argv, const Definition& definition);

}  // namespace atl::service
