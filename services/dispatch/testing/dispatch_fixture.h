#pragma once

#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "services/dispatch/service.h"
#include "services/dispatch/testing/fake_catalog.h"
#include "shared/auth/auth.h"
#include "shared/base/file.h"
#include "shared/http/client/client.h"
#include "shared/http/server/server.h"
#include "shared/pg/pg.h"
#include "shared/service/testing/response_check.h"
#include "tests/integration/test_stack.h"

namespace atl::dispatch {

// Aggregation as dispatch sees it: answers each closed round and has the catalog know the version that it makes;
// `copies` says how often.
class FakeAggregation {
  public:
    FakeAggregation(const std::string& brokers, const std::string& topic_prefix, FakeCatalog& catalog);
    void set_copies(int copies) { copies_ = copies; }
    void set_failing() { failing_ = true; }
    // Loses that many events of closed rounds: they are noted and not answered.
    void set_losing(int events) { losing_ = events; }
    // Leaves this facility's updates out.
    void set_refused(const std::string& facility) {
        const std::lock_guard lock(mutex_);
        refused_ = facility;
    }
    std::vector<json::Json> closed_rounds() const;
    // What its REST API says of a round that is closed so, which is aggregated.
    json::Json aggregate(const json::Json& closed);
    int other_events() const { return others_; }  // on the topic that is to have closed rounds alone

  private:
    void run(const std::stop_token& stop);
    json::Json list_refused(const json::Json& updates) const;
    // Registers what a closed round comes to; its digest.
    std::string make_global(const json::Json& closed, const json::Json& refused);

    std::string brokers_;
    std::string prefix_;
    FakeCatalog& catalog_;
    std::atomic<int> copies_ = 1;
    std::atomic<bool> failing_ = false;
    std::atomic<int> losing_ = 0;
    std::atomic<int> others_ = 0;
    mutable std::mutex mutex_;
    std::set<std::string> ids_;  // of the events it had: a second delivery has no effect
    std::vector<json::Json> closed_;
    std::string refused_;
    std::jthread thread_;
};

// A database, a catalog, site programs that are shell scripts, and work directories; the service itself is started by
// start_service() within this process, or by a test as a program with config_file().
class DispatchTest : public StackTest {
  protected:
    void SetUp() override;
    void TearDown() override;

    // `brokers`: of the test's stack if empty.
    void start_service(WorkerSeams seams = {}, const std::string& brokers = {});
    // The same with "leonardo" and "karolina".
    void begin(WorkerSeams seams = {}, const std::string& brokers = {});
    // The database as start_service() makes it.
    void make_schema();
    void stop_service();
    std::filesystem::path config_file(std::uint16_t port, int lease_s = 1);

    pg::Connection connect() { return pg::connect(conninfo_, "dispatch").value(); }
    http::Client client(auth::Role role = auth::Role::kAdmin);
    // Of an operator of that name.
    http::Client client_of(const std::string& subject);
    std::string token(auth::Role role);
    // Registers "leonardo" and "karolina".
    void add_facilities();
    // The tester's facility is for jobs of `who` as well, and for nobody else's.
    void set_allowed(const std::string& facility, const std::string& who);
    json::Json job_request(int rounds) const;
    std::string submit(const json::Json& request);
    // A successful answer, which must be as the OpenAPI document says.
    json::Json get(const std::string& path);
    // The answer, which must be so as well.
    http::ClientResponse post(const std::string& path, const json::Json& body);
    std::string state_of(const std::string& job) { return get("/v1/jobs/" + job).at("state"); }
    std::string error_of(const std::string& job) { return get("/v1/jobs/" + job).at("error"); }
    http::Server& server();
    Status ready();  // what /readyz tells
    metrics::Registry& metrics();
    bool reaches(const std::string& job, const std::string& state);

    std::filesystem::path work_dir(const std::string& facility) const { return directory_.path() / facility; }
    std::filesystem::path fake(const std::string& file) const { return directory_.path() / "programs" / file; }
    // Lines of a file of the site programs: "runs" has one for every start of a batch job's trainer.
    std::vector<std::string> lines(const std::string& file) const;

    TemporaryDirectory directory_;
    auth::KeyPair keys_;
    std::string prefix_;
    std::string conninfo_;
    std::string base_url_;
    int lease_s_ = 1;                   // of start_service()
    std::int64_t poll_ms_ = 30;         // between looks at an attempt
    std::int64_t batch_poll_ms_ = 200;  // between questions to the batch system about an attempt
    std::int64_t operator_active_max_ = 32;
    bool is_hurried_ = true;  // false: dispatch's own intervals and logins, as a site has them
    std::unique_ptr<FakeCatalog> catalog_;
    std::unique_ptr<FakeAggregation> aggregation_;
    std::map<auth::Role, std::string> role_tokens_;
    service::ResponseCheck answers_{definition().openapi};

    struct InProcess;
    std::shared_ptr<InProcess> service_;
};

// A test of what works on the database, without the service.
class DispatchSchemaTest : public DispatchTest {
  protected:
    void SetUp() override;
    // A task that prepares a dataset at the facility, which is there.
    static void add_preparing_task(pg::Connection& connection, const std::string& id, const std::string& facility);
};

// A test of what the service does at two facilities: it has begun.
class DispatchServiceTest : public DispatchTest {
  protected:
    void SetUp() override;
};

}  // namespace atl::dispatch
