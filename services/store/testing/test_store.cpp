#include "services/store/testing/test_store.h"

#include "shared/base/check.h"

namespace atl::store {

TestStore::TestStore(const std::string& postgres, const std::string& kafka, const std::filesystem::path& root,
                     const std::string& topic_prefix) {
    settings_.postgres = postgres;
    settings_.kafka_brokers = kafka;
    settings_.own = {{"root", root.string()}, {"accel_prefix", "/internal/blobs/"}, {"topic_prefix", topic_prefix}};
    auto connection = pg::connect(settings_.postgres).value();
    const Status migrated = pg::migrate(connection, "store", definition().migrations);
    check(migrated.ok(), migrated.ok() ? "" : migrated.error().message);
    start();
}

TestStore::~TestStore() {
    stop();
}

void TestStore::restart() {
    stop();
    start();
}

void TestStore::start() {
    pool_.emplace(settings_.postgres, "store", 4);
    http::ServerOptions options;
    options.request_bytes_max = 65U << 20;
    const auto add_routes = [&](http::Server& server) {
        service::Context context{settings_, *pool_, server, metrics_};
        auto started = store::start(context, parse_settings(settings_.own).value());
        check(started.ok(), started.ok() ? "" : started.error().message);
        running_ = std::move(started).value();
    };
    server_ = std::make_unique<http::TestServer>(add_routes, options);
}

void TestStore::stop() {
    server_.reset();
    running_.reset();
    pool_.reset();
}

}  // namespace atl::store
