#include "services/dispatch/service.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string>

#include "services/dispatch/embedded.h"
#include "services/dispatch/events/aggregation_events.h"
#include "services/dispatch/metrics.h"
#include "services/dispatch/routes/routes.h"
#include "services/dispatch/work/aggregation_watch.h"
#include "services/dispatch/work/credential_watch.h"
#include "services/dispatch/work/gateway_watch.h"
#include "services/dispatch/work/history_pruner.h"
#include "services/dispatch/work/key_watch.h"
#include "services/dispatch/work/queue_watch.h"
#include "shared/base/file.h"
#include "shared/events/events.h"
#include "shared/metrics/common.h"
#include "shared/service/dead_letters.h"
#include "shared/service/idempotency.h"

namespace atl::dispatch {
namespace {

constexpr const char* kSchema = "dispatch";

std::span<const pg::Migration> migrations() {
    static const std::string first =
        std::string(kSchema0001InitSql) + std::string(service::kIdempotencyTableSql) + std::string(events::kTablesSql);
    static const pg::Migration all[] = {{1, first}};
    return all;
}

Settings counting_logins(Settings settings, metrics::Registry& metrics) {
    settings.ssh.on_login = [&metrics](const std::string& facility, bool has_succeeded) {
        metrics
            .counter(kMetrics["atoll_facility_logins_total"],
                     {{"facility", facility}, {"result", has_succeeded ? "success" : "failure"}})
            .Increment();
    };
    return settings;
}

class Service : public service::Running {
  public:
    Service(service::Context& context, Settings settings, const auth::Issuer& issuer, WorkerSeams seams)
        : settings_(counting_logins(std::move(settings), context.metrics)),
          brokers_(context.settings.kafka_brokers),
          topics_(settings_.topic_prefix),
          catalog_(settings_.registry_url, settings_.store_url, issuer, settings_.aggregation_url),
          connections_(settings_, seams.make_site),
          runner_(settings_, catalog_, issuer, context.pool, connections_),
          key_watch_(issuer, settings_.private_key_file),
          credential_watch_(context.pool, settings_, context.metrics),
          gateway_watch_(settings_.store_url, context.metrics),
          queue_watch_(context.pool, connections_, settings_.workers),
          feed_(context.settings.postgres, kSchema),
          relay_(context.pool, context.settings.postgres, kSchema, brokers_, context.metrics),
          workers_(context.pool, context.settings.postgres, settings_, service::instance_name(context.settings),
                   topics_, connections_, runner_, context.metrics, std::move(seams)),
          aggregation_watch_(context.pool, catalog_, topics_),
          pruner_(context.pool, settings_.keep, context.metrics),
          answers_(context.pool, brokers_, settings_.topic_prefix + kSchema, {topics_.aggregations},
                   [this](pg::Transaction& transaction, const events::Event& event) {
                       return apply_aggregation_event(transaction, catalog_, topics_, event);
                   },
                   context.metrics, {.instance = service::instance_name(context.settings)}),
          routing_{context.pool,   catalog_,
                   topics_,        connections_,
                   feed_,          site_requests_,
                   issuer,         TokenKeys(context.settings.public_key_file),
                   settings_.keep, settings_.operator_active_max} {
        add_facility_routes(context.server, routing_);
        add_preparation_routes(context.server, routing_);
        add_job_routes(context.server, routing_);
        add_job_reading_routes(context.server, routing_);
        add_token_routes(context.server, routing_);
        service::add_dead_letter_routes("dispatch", context.server, context.pool,
                                        [this](const std::string& id) { return answers_.replay(id); });
    }

    // What sites are asked ends at once, before what it works with goes.
    ~Service() override {
        connections_.stop();
        site_requests_.stop();
    }
    Service(const Service&) = delete;
    Service& operator=(const Service&) = delete;

    Status events() override {
        ATOLL_RETURN_IF_ERROR(answers_.ready());
        return relay_.ready();
    }
    bool needs_events() const override { return true; }
    void stop_waiting() override { feed_.stop_waiting(); }

  private:
    // In the order in which they need one another; destroyed in reverse.
    Settings settings_;
    std::string brokers_;
    Topics topics_;
    Catalog catalog_;
    FacilityConnections connections_;
    AttemptRunner runner_;
    KeyWatch key_watch_;
    CredentialWatch credential_watch_;
    GatewayWatch gateway_watch_;
    QueueWatch queue_watch_;
    EventFeed feed_;
    SiteRequests site_requests_;
    events::Relay relay_;
    WorkerPool workers_;
    AggregationWatch aggregation_watch_;
    HistoryPruner pruner_;
    events::InboxConsumer answers_;
    Routing routing_;
};

Result<auth::Issuer> load_issuer(const std::filesystem::path& file) {
    const auto pem = read_file(file);
    if (!pem.ok()) return invalid_argument("dispatch.private_key_file", describe(pem.error()));
    auto issuer = auth::Issuer::from_pem(*pem);
    if (!issuer.ok()) return invalid_argument("dispatch.private_key_file", issuer.error().message);
    return issuer;
}

// Private and our own: in a shared /tmp somebody else may have made it first, or a link in its place.
Status make_control_directory(const std::filesystem::path& directory) {
    std::error_code ignored;
    std::filesystem::create_directories(directory.parent_path(), ignored);
    struct stat info{};
    const bool made = ::mkdir(directory.c_str(), 0700) == 0 || errno == EEXIST;
    if (!made || ::lstat(directory.c_str(), &info) != 0) return file_error(directory, "make the directory");
    if (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() || ::chmod(directory.c_str(), 0700) != 0)
        return invalid_argument("dispatch.control_directory",
                                directory.string() + " is not a directory of this user: name another");
    return {};
}

}  // namespace

service::Definition definition() {
    return {.name = kSchema,
            .migrations = migrations(),
            .openapi = kOpenapiJson,
            .metrics = {kMetrics.rows, metrics::kInbox.rows},
            .configure = service::configure_with(parse_settings, start)};
}

Result<std::unique_ptr<service::Running>> start_with(service::Context& context, Settings settings, WorkerSeams seams) {
    ATOLL_TRY(const auth::Issuer issuer, load_issuer(settings.private_key_file));
    ATOLL_RETURN_IF_ERROR(make_control_directory(settings.ssh.control_directory));
    // A broker that is not there yet is no reason not to start: the relay and the consumer wait for it and make their
    // topics.
    return std::unique_ptr<service::Running>(
        std::make_unique<Service>(context, std::move(settings), issuer, std::move(seams)));
}

Result<std::unique_ptr<service::Running>> start(service::Context& context, const Settings& settings) {
    return start_with(context, settings, {});
}

}  // namespace atl::dispatch
