#include "services/dispatch/testing/dispatch_fixture.h"

#include <algorithm>
#include <fstream>

#include "services/dispatch/db/tasks.h"
#include "shared/base/id.h"
#include "shared/digest/digest.h"
#include "shared/events/events.h"
#include "shared/kafka/kafka.h"
#include "shared/log/log.h"
#include "shared/service/revocations.h"

namespace atl::dispatch {

using json::Json;

namespace {

// atoll of the site: notes what it was asked, checks that the token came by standard input.
constexpr const char* kFakeAtoll = R"sh(#!/bin/sh
here=$(dirname "$0")
verb=$1
[ "$verb" != --version ] || { echo "atoll 0"; exit; }
if [ "$verb" = ping ]; then
    [ ! -e "$here/unreachable" ] || { echo "cannot reach $3" >&2; exit 1; }
    echo "$3 answers"
    exit
fi
IFS= read -r token
case $token in ey*.*.*) ;; *) echo "no token" >&2; exit 1 ;; esac
case "$*" in *ey*.*.*) echo "the token is in the command line" >&2; exit 1 ;; esac
echo "$*" >>"$here/$verb"
printf '%s\n' "$token" >>"$here/tokens"
while [ $# -gt 0 ]; do
    case $1 in
    --out) out=$2 ;; --dir) dir=$2 ;; --version) version=$2 ;; --model) model=$2 ;; --meta) meta=$2 ;;
    --progress) echo "7 42" >"$2" ;;
    esac
    shift
done
while [ -e "$here/$verb.waits" ]; do sleep 0.05; done
if said=$(cat "$here/$verb.breaks" 2>/dev/null); then printf '%s\n' "$said" >&2; exit 1; fi
if code=$(cat "$here/$verb.exits" 2>/dev/null); then exit "$code"; fi
if said=$(cat "$here/$verb.refuses" 2>/dev/null); then printf '%s\n' "$said"; exit 2; fi
if [ "$verb" = stage ]; then
    mkdir -p "$out.partial" && echo "$version" >"$out.partial/config.json" && mv -T "$out.partial" "$out"
else
    digest=$(sha256sum <"$dir/model" | cut -d" " -f1)
    mkdir -p "$here/pushed/$model" && cp "$meta" "$here/pushed/$model/$digest"
    attempt=$(pwd) && task=${attempt%/*}
    mkdir -p "$here/pushed/by/${task##*/}" && printf %s "$digest" >"$here/pushed/by/${task##*/}/${attempt##*/}"
    [ ! -e "$here/push.loses" ] || { rm -rf "$attempt"; exit 66; }
    [ ! -e "$here/push.says" ] || digest=$(cat "$here/push.says")
    printf '{"digest":"%s"}\n' "$digest"
fi
)sh";

// atoll-trainer of the site.
constexpr const char* kFakeTrainer = R"sh(#!/bin/sh
here=$(dirname "$0")
verb=$1
echo "$ATOLL_BATCH_JOB $*" >>"$here/runs"
while [ $# -gt 0 ]; do
    case $1 in --out) out=$2 ;; --model) model=$2 ;; --data) data=$2 ;; --split) split=$2 ;; --resume) resume=1 ;; --check) checks=1 ;; esac
    shift
done
[ ! -e "$here/$verb.waits" ] || echo $$ >>"$here/$verb.pids"
while [ -e "$here/$verb.waits" ]; do sleep 0.05; done
if rm "$here/$verb.lacks" 2>/dev/null; then
    echo "atoll-trainer $verb: --data: there is no '$data'" >&2
    exit 2
fi
says=
if [ -e "$here/$verb.says" ]; then cat "$here/$verb.says" && says=1; fi
if code=$(cat "$here/$verb.exits" 2>/dev/null); then echo "made to fail" >&2; exit "$code"; fi
[ -z "$says" ] || exit 0
case $verb in
train)
    mkdir -p "$out"
    { cat "$model/config.json" run.json; pwd; } >"$out/model"
    task=$(pwd) && task=${task%/*} && cp run.json "$here/run.${task##*/}.json"
    [ ! -e "$here/train.keeps" ] || { mkdir -p "$out.state" && echo kept >"$out.state/$(cat "$here/train.keeps")"; }
    samples=48
    [ ! -e "$here/train.samples" ] || samples=$(cat "$here/train.samples")
    step=0
    [ -z "$resume" ] || [ ! -e "$out.state/step" ] || step=$(cat "$out.state/step")
    last=3
    [ ! -e "$here/train.limited" ] || last=$((step + 1))
    while [ "$step" -lt "$last" ]; do
        step=$((step + 1))
        echo "{\"step\":$step,\"loss\":$((10 - step)).5,\"lr\":0.1,\"tokens_per_s\":100.5}"
        sleep 0.02
    done
    if [ "$step" -lt 3 ]; then
        mkdir -p "$out.state" && echo "$step" >"$out.state/step"
        echo "{\"summary\":true,\"steps\":$step,\"samples\":16,\"tokens\":2048,\"resumable\":true}"
        exit
    fi
    echo '{"summary":true,"steps":3,"samples":'"$samples"',"tokens":6144,"loss":7.5,"tokens_per_s":100.5,"wall_s":1.5}'
    ;;
eval)
    if bad=$(cat "$here/eval.fails_for" 2>/dev/null) && [ "${model#*"$bad"}" != "$model" ]; then
        echo "atoll-trainer eval: --model: the weights are damaged" >&2
        exit 2
    fi
    while [ -e "$here/eval.endless" ]; do
        [ -n "$noted" ] || { noted=1 && echo $$ >>"$here/eval.pids"; }
        echo '{"loss":2.0,"perplexity":7.389,"tokens":1000}'
        sleep 0.05
    done
    perplexity=$(cat "$here/eval.perplexity" 2>/dev/null) || perplexity=7.389
    echo '{"loss":2.0,"perplexity":'"$perplexity"',"tokens":1000}'
    ;;
tokenize)
    if [ -n "$checks" ]; then
        for flag in input tokenizer; do
            refused=tokenize.refuses
            [ "$flag" = input ] || refused=${refused}_$flag
            said=$(cat "$here/$refused" 2>/dev/null) || continue
            echo "atoll-trainer tokenize: --$flag: $said" >&2
            exit 2
        done
        exit
    fi
    mkdir -p "$out"
    printf '{"schema":1,"tokenizer_reader":4,"tokenizer_sha256":"%064d","seq_len":128,"batching":"packing","documents":10,"rows":5,' 1 >"$out/data.json"
    without_end=$(cat "$here/tokenize.without_end" 2>/dev/null) || without_end=0
    printf '"tokens":600,"without_end":%s,"template":"t",' "$without_end" >>"$out/data.json"
    printf '"longer":1,"tokens_truncated":7,"bytes":2000,' >>"$out/data.json"
    printf '"fingerprint":"%064d"}' "${#out}" >>"$out/data.json"
    ;;
esac
)sh";

auth::Verifier verifier(const auth::KeyPair& keys) {
    return auth::Verifier::from_pem(keys.public_pem).value();
}

}  // namespace

FakeAggregation::FakeAggregation(const std::string& brokers, const std::string& topic_prefix, FakeCatalog& catalog)
    : brokers_(brokers), prefix_(topic_prefix), catalog_(catalog) {
    check(kafka::ensure_topics(brokers, {prefix_ + "atoll.rounds", prefix_ + "atoll.aggregations"}, 2).ok(),
          "cannot make topics");
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

std::vector<Json> FakeAggregation::closed_rounds() const {
    const std::lock_guard lock(mutex_);
    return closed_;
}

Json FakeAggregation::list_refused(const Json& updates) const {
    const std::lock_guard lock(mutex_);
    Json refused = Json::array();
    for (const Json& update : updates)
        if (update["facility"] == refused_)
            refused.push_back({{"facility", refused_},
                               {"task", update["task"]},
                               {"version", update["version"]},
                               {"reason", "tensor \"w\" holds NaN"}});
    return refused;
}

std::string FakeAggregation::make_global(const Json& closed, const Json& refused) {
    Json version = {{"digest", digest::sha256(closed.at("updates").dump())},
                    {"job", closed.at("job")},
                    {"round", closed.at("round")},
                    {"parents", {closed.at("base")}},
                    {"contributions", Json::array()}};
    for (const Json& update : closed.at("updates")) {
        const auto same = [&](const Json& one) { return one.at("task") == update.at("task"); };
        if (std::any_of(refused.begin(), refused.end(), same)) continue;
        version["parents"].push_back(update.at("version"));
        version["contributions"].push_back({{"facility", update.at("facility")}, {"version", update.at("version")}});
    }
    catalog_.add_global(closed.at("model"), version);
    return version.at("digest");
}

Json FakeAggregation::aggregate(const Json& closed) {
    const Json refused = list_refused(closed.at("updates"));
    return {{"state", "completed"}, {"version", make_global(closed, refused)}, {"error", ""}, {"refused", refused}};
}

void FakeAggregation::run(const std::stop_token& stop) {
    auto consumer = kafka::Consumer::create(brokers_, prefix_ + "fake", {prefix_ + "atoll.rounds"}).value();
    auto producer = kafka::Producer::create(brokers_, "fake").value();
    while (!stop.stop_requested()) {
        const auto messages = consumer.poll(std::chrono::milliseconds(50));
        if (!messages.ok()) continue;
        for (const auto& message : *messages) {
            const auto event = events::from_json(Json::parse(message.value)).value();
            if (event.type != "atoll.round.closed.v1") {
                ++others_;
                continue;
            }
            {
                const std::lock_guard lock(mutex_);
                if (!ids_.insert(event.id).second) continue;
                closed_.push_back(event.data);
            }
            if (losing_ > 0) {
                --losing_;
                continue;
            }
            events::Event answer;
            answer.type = failing_ ? "atoll.aggregation.failed.v1" : "atoll.aggregation.completed.v1";
            answer.source = "/aggregation";
            answer.data = {{"job", event.data["job"]}, {"round", event.data["round"]}, {"model", event.data["model"]}};
            answer.data["updates_refused"] = list_refused(event.data["updates"]);
            if (failing_)
                answer.data["error"] = "made to fail";
            else
                answer.data["version"] = make_global(event.data, answer.data["updates_refused"]);
            for (int i = 0; i < copies_; ++i) {
                answer.id = new_id();
                EXPECT_TRUE(producer
                                .send({{.topic = prefix_ + "atoll.aggregations",
                                        .key = message.key,
                                        .value = to_json(answer).dump(),
                                        .headers = {}}})
                                .ok());
            }
        }
    }
}

struct DispatchTest::InProcess {
    service::Settings settings;
    pg::Pool pool;
    metrics::Registry metrics;
    std::unique_ptr<service::Running> running;
    http::Server server;

    InProcess(service::Settings given, const auth::KeyPair& keys)
        : settings(std::move(given)), pool(settings.postgres, "dispatch", 12), server({}, verifier(keys), metrics) {}
    ~InProcess() {
        if (running != nullptr) running->stop_waiting();
        server.stop();
        running.reset();
    }
};

void DispatchTest::SetUp() {
    StackTest::SetUp();
    if (IsSkipped()) return;
    spdlog::set_level(spdlog::level::err);
    keys_ = auth::generate_keys().value();
    prefix_ = stack().unique("dispatch") + ".";
    conninfo_ = stack().create_database();
    ASSERT_TRUE(write_file_atomic(directory_.path() / "private.pem", keys_.private_pem, 0600).ok());
    ASSERT_TRUE(write_file_atomic(directory_.path() / "public.pem", keys_.public_pem).ok());
    std::filesystem::create_directories(fake(""));
    ASSERT_TRUE(write_file_atomic(fake("atoll"), kFakeAtoll, 0755).ok());
    ASSERT_TRUE(write_file_atomic(fake("atoll-trainer"), kFakeTrainer, 0755).ok());
    catalog_ = std::make_unique<FakeCatalog>(keys_, fake("pushed"));
    aggregation_ = std::make_unique<FakeAggregation>(stack().kafka(), prefix_, *catalog_);
}

void DispatchTest::TearDown() {
    stop_service();
    aggregation_.reset();
}

std::filesystem::path DispatchTest::config_file(std::uint16_t port, int lease_s) {
    const std::string directory = directory_.path().string();
    Json config = {{"port", port},
                   {"postgres", conninfo_},
                   {"kafka_brokers", stack().kafka()},
                   {"public_key_file", directory + "/public.pem"},
                   {"dispatch",
                    {{"private_key_file", directory + "/private.pem"},
                     {"registry_url", catalog_->url()},
                     {"store_url", catalog_->url()},
                     {"poll_interval_ms", poll_ms_},
                     {"ssh_poll_interval_ms", 300},
                     {"ssh_poll_interval_max_ms", 1000},
                     {"ssh_retry_interval_ms", 500},
                     {"batch_poll_interval_ms", batch_poll_ms_},
                     {"programs", fake("").parent_path().string()},
                     {"control_directory", directory + "/ssh"},
                     {"ssh_logins_max", 1000},
                     {"topic_prefix", prefix_},
                     {"operator_active_max", operator_active_max_},
                     {"lease_s", lease_s}}}};
    if (!is_hurried_)
        for (const char* key : {"poll_interval_ms", "ssh_poll_interval_ms", "ssh_poll_interval_max_ms",
                                "ssh_retry_interval_ms", "batch_poll_interval_ms", "ssh_logins_max"})
            config["dispatch"].erase(key);
    const auto file = directory_.path() / "dispatch.yaml";
    EXPECT_TRUE(write_file_atomic(file, config.dump()).ok());
    return file;
}

void DispatchTest::start_service(WorkerSeams seams, const std::string& brokers) {
    const Json config = Json::parse(read_file(config_file(0, lease_s_)).value());
    service::Settings settings;
    settings.postgres = conninfo_;
    settings.kafka_brokers = brokers.empty() ? stack().kafka() : brokers;
    settings.public_key_file = config.at("public_key_file");
    settings.own = config.at("dispatch");
    ASSERT_NO_FATAL_FAILURE(make_schema());
    service_ = std::make_shared<InProcess>(std::move(settings), keys_);
    service::Context context{service_->settings, service_->pool, service_->server, service_->metrics};
    auto running = start_with(context, parse_settings(service_->settings.own).value(), std::move(seams));
    ASSERT_TRUE(running.ok()) << running.error().message;
    service_->running = std::move(running).value();
    ASSERT_TRUE(service_->server.start().ok());
    base_url_ = "http://127.0.0.1:" + std::to_string(service_->server.port());
}

void DispatchTest::begin(WorkerSeams seams, const std::string& brokers) {
    start_service(std::move(seams), brokers);
    if (!HasFatalFailure()) add_facilities();
}

void DispatchTest::make_schema() {
    auto connection = pg::connect(conninfo_).value();
    ASSERT_TRUE(service::migrate_revocations(connection).ok());
    const auto migrated = pg::migrate(connection, "dispatch", definition().migrations);
    ASSERT_TRUE(migrated.ok()) << migrated.error().message;
}

metrics::Registry& DispatchTest::metrics() {
    return service_->metrics;
}

Status DispatchTest::ready() {
    return service_->running->events();
}

http::Server& DispatchTest::server() {
    return service_->server;
}

void DispatchTest::stop_service() {
    service_.reset();
}

std::string DispatchTest::token(auth::Role role) {
    std::string& token = role_tokens_[role];  // polls take thousands
    if (!token.empty()) return token;
    auth::Principal principal;
    principal.subject = "tester";
    principal.role = role;
    if (role == auth::Role::kFacility) principal.scope.emplace().facility = "leonardo";
    token = auth::Issuer::from_pem(keys_.private_pem)->issue(principal, std::chrono::hours(1)).value();
    return token;
}

http::Client DispatchTest::client(auth::Role role) {
    http::ClientOptions options;
    options.base_url = base_url_;
    options.token = token(role);
    return http::Client(options);
}

http::Client DispatchTest::client_of(const std::string& subject) {
    auth::Principal principal;
    principal.subject = subject;
    principal.role = auth::Role::kOperator;
    http::ClientOptions options;
    options.base_url = base_url_;
    options.token = auth::Issuer::from_pem(keys_.private_pem)->issue(principal, std::chrono::hours(1)).value();
    options.timeout = std::chrono::minutes(3);
    options.attempts_max = 1;
    return http::Client(options);
}

void DispatchTest::set_allowed(const std::string& facility, const std::string& who) {
    const auto answer = client()
                            .call(http::Method::kPatch, "/v1/facilities/" + facility, Json{{"allow", {who}}}.dump(),
                                  {{{"If-Match", "*"}}, {}})
                            .value();
    EXPECT_EQ(answer.status, 200) << answer.body;
}

void DispatchTest::add_facilities() {
    for (const char* name : {"leonardo", "karolina"}) {
        const auto added = client().post_json("/v1/facilities", {{"name", name},
                                                                 {"transport", {{"kind", "local"}}},
                                                                 {"batch", {{"kind", "local"}, {"slots", 2}}},
                                                                 {"work_dir", work_dir(name).string()}});
        ASSERT_TRUE(added.ok()) << added.error().message;
    }
}

Json DispatchTest::job_request(int rounds) const {
    return {{"name", "fortunes"},
            {"model", {{"name", "tiny"}, {"version", "base"}}},
            {"participants",
             {{{"facility", "leonardo"}, {"dataset", "it"}}, {{"facility", "karolina"}, {"dataset", "cs"}}}},
            {"rounds", rounds},
            {"training", {{"steps", 3}, {"batch_size", 16}, {"lr", 0.1}}}};
}

std::string DispatchTest::submit(const Json& request) {
    const auto made = client().post_json("/v1/jobs", request);
    EXPECT_TRUE(made.ok()) << made.error().message;
    return made.ok() ? made->at("id").get<std::string>() : "";
}

Json DispatchTest::get(const std::string& path) {
    const auto answer = client().call(http::Method::kGet, path).value();
    for (const std::string& fault : answers_.faults(http::Method::kGet, path, answer)) ADD_FAILURE() << fault;
    const auto json = answer.json();
    EXPECT_TRUE(json.ok()) << path << ": " << answer.body;
    return json.ok() ? *json : Json();
}

http::ClientResponse DispatchTest::post(const std::string& path, const Json& body) {
    auto answer = client().call(http::Method::kPost, path, body.dump()).value();
    for (const std::string& fault : answers_.faults(http::Method::kPost, path, answer)) ADD_FAILURE() << fault;
    return answer;
}

bool DispatchTest::reaches(const std::string& job, const std::string& state) {
    return eventually([&] { return state_of(job) == state; });
}

std::vector<std::string> DispatchTest::lines(const std::string& file) const {
    std::ifstream stream(fake(file));
    std::vector<std::string> all;
    for (std::string line; std::getline(stream, line);) all.push_back(line);
    return all;
}

void DispatchSchemaTest::SetUp() {
    DispatchTest::SetUp();
    if (!IsSkipped()) make_schema();
}

void DispatchSchemaTest::add_preparing_task(pg::Connection& connection, const std::string& id,
                                            const std::string& facility) {
    Task task;
    task.id = id;
    task.preparation = "p-" + id;
    task.facility = facility;
    task.params = PrepareParams{};
    auto transaction = pg::Transaction::begin(connection).value();
    ASSERT_TRUE(
        transaction
            .query("INSERT INTO preparations (id, spec, created_by) VALUES ($1, '{}', 'tester')", {task.preparation})
            .ok());
    ASSERT_TRUE(insert_task(transaction, task).ok());
    ASSERT_TRUE(transaction.commit().ok());
}

void DispatchServiceTest::SetUp() {
    DispatchTest::SetUp();
    if (!IsSkipped()) begin();
}

}  // namespace atl::dispatch
