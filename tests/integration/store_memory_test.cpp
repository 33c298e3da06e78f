// What the store's process takes of memory while it is sent what is large on purpose.
#include <algorithm>
#include <array>
#include <memory>
#include <sstream>
#include <thread>
#include <vector>

#include "shared/auth/auth.h"
#include "shared/base/file.h"
#include "shared/base/testing/sanitizers.h"
#include "shared/digest/digest.h"
#include "shared/http/client/client.h"
#include "shared/json/json.h"
#include "shared/safetensors/safetensors.h"
#include "tests/integration/service_process.h"
#include "tests/integration/test_stack.h"

namespace atl {
namespace {

using http::Method;
using json::Json;

constexpr int kAtOnce = 8;
constexpr std::int64_t kAfterMiBMax = 256;
constexpr std::int64_t kDuringMiBMax = 512;

class StoreMemoryTest : public StackTest {
  protected:
    void SetUp() override {
        StackTest::SetUp();
        if (IsSkipped()) return;
        ATOLL_SKIP_IF_SANITIZED();
        const auto keys = auth::generate_keys().value();
        ASSERT_TRUE(write_file_atomic(directory_.path() / "public.pem", keys.public_pem).ok());
        issuer_.emplace(auth::Issuer::from_pem(keys.private_pem).value());
        store_ = std::make_unique<ServiceProcess>(
            "store",
            Json{{"postgres", stack().create_database()},
                 {"kafka_brokers", stack().kafka()},
                 {"public_key_file", (directory_.path() / "public.pem").string()},
                 {"request_bytes_max", 17 << 20},
                 {"store",
                  {{"root", (directory_.path() / "blobs").string()}, {"topic_prefix", stack().unique("t") + "."}}}},
            directory_.path());
        http::Client client = admin();
        ASSERT_TRUE(client.post_json("/v1/models", {{"name", "base"}}).ok());
        base_ =
            client.post_json("/v1/models/base/versions", {{"manifest", manifest({{"model.safetensors", base_file()}})}})
                .value()
                .at("digest");
    }
    http::Client client_of(const auth::Principal& principal) {
        http::ClientOptions options;
        options.base_url = store_->url();
        options.token = issuer_->issue(principal, std::chrono::hours(1)).value();
        options.attempts_max = 100;
        options.backoff = std::chrono::milliseconds(50);
        options.timeout = std::chrono::minutes(5);
        return http::Client(options);
    }
    http::Client admin() {
        auth::Principal principal;
        principal.subject = "admin";
        principal.role = auth::Role::kAdmin;
        return client_of(principal);
    }
    http::Client site(int number) {
        auth::Principal principal;
        principal.subject = "leonardo";
        principal.role = auth::Role::kFacility;
        principal.scope = auth::TaskScope{"leonardo", "job1", "task" + std::to_string(number), "1", {base_}, "out", 1};
        return client_of(principal);
    }
    static std::string base_file() {
        std::vector<safetensors::TensorInfo> tensors = {{"w", safetensors::DType::kU8, {4}, 0, 0}};
        return safetensors::make_header(tensors) + "abcd";
    }
    std::string put(http::Client& client, const std::string& bytes) {
        const std::string sha256 = digest::sha256(bytes);
        const auto answer = client.call(Method::kPut, "/v1/blobs/" + sha256, bytes);
        EXPECT_TRUE(answer.ok() && answer->ok());
        return sha256;
    }
    Json manifest(const std::map<std::string, std::string>& files) {
        http::Client client = admin();
        Json list = Json::array();
        for (const auto& [path, bytes] : files)
            list.push_back({{"path", path},
                            {"size", bytes.size()},
                            {"chunks", {{{"sha256", put(client, bytes)}, {"size", bytes.size()}}}}});
        return {{"schema", 1}, {"files", list}};
    }
    Json put_model_file(std::size_t tensor_count, std::size_t metadata_bytes);
    // The status that each of kAtOnce clients is answered with.
    std::vector<int> post_at_once(const std::function<http::Client(int)>& client_for, const std::string& model,
                                  const std::vector<std::string>& bodies) {
        std::vector<int> statuses(kAtOnce);
        std::vector<std::jthread> threads;
        for (int i = 0; i < kAtOnce; ++i)
            threads.emplace_back([&, i] {
                http::CallOptions options;
                options.headers.emplace_back("Idempotency-Key", "key" + std::to_string(i));
                const auto answer = client_for(i).call(Method::kPost, "/v1/models/" + model + "/versions",
                                                       bodies[static_cast<std::size_t>(i) % bodies.size()], options);
                statuses[static_cast<std::size_t>(i)] = answer.ok() ? answer->status : 0;
            });
        threads.clear();
        return statuses;
    }
    std::int64_t status_MiB(const std::string& key) const {
        std::istringstream lines(read_file("/proc/" + std::to_string(store_->pid()) + "/status").value());
        for (std::string line; std::getline(lines, line);)
            if (line.starts_with(key + ":")) return std::stoll(line.substr(key.size() + 1)) / 1024;
        return -1;
    }
    void expect_little_memory() {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        while (status_MiB("VmRSS") > kAfterMiBMax && std::chrono::steady_clock::now() < deadline)
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        RecordProperty("during_MiB", std::to_string(status_MiB("VmHWM")));
        RecordProperty("after_MiB", std::to_string(status_MiB("VmRSS")));
        std::cout << "store: " << status_MiB("VmHWM") << " MiB at most, " << status_MiB("VmRSS") << " MiB after\n";
        EXPECT_LE(status_MiB("VmHWM"), kDuringMiBMax);
        EXPECT_LE(status_MiB("VmRSS"), kAfterMiBMax);
    }

    TemporaryDirectory directory_;
    std::optional<auth::Issuer> issuer_;
    std::unique_ptr<ServiceProcess> store_;
    std::string base_;
};

// As many chunks as 16 MiB of a request can name, or nearly.
std::string large_manifest(const std::string& sha256, std::size_t size, int number) {
    const Json chunks(160'000, Json{{"sha256", sha256}, {"size", size}});
    const Json files = {
        {{"path", "weights" + std::to_string(number)}, {"size", chunks.size() * size}, {"chunks", chunks}}};
    return Json{{"manifest", {{"schema", 1}, {"files", files}}}}.dump();
}

TEST_F(StoreMemoryTest, LargeManifestsAreLookedAtOneAtATime) {
    http::Client client = admin();
    const std::string sha256 = put(client, "chunk");
    std::vector<std::string> bodies;
    for (int i = 0; i < kAtOnce; ++i) bodies.push_back(large_manifest(sha256, 5, i));
    ASSERT_GT(bodies.front().size(), 13U << 20);
    EXPECT_EQ(post_at_once([&](int i) { return site(i); }, "out", bodies), std::vector<int>(kAtOnce, 413));
    EXPECT_EQ(post_at_once([&](int) { return admin(); }, "base", bodies), std::vector<int>(kAtOnce, 201));
    expect_little_memory();
}

// A file of these tensors and this much of __metadata__ in many small entries; its entry in a manifest.
Json StoreMemoryTest::put_model_file(std::size_t tensor_count, std::size_t metadata_bytes) {
    // Written by hand, as a JSON library takes minutes for millions of members.
    std::string header = "{\"__metadata__\":{";
    for (std::size_t i = 0; i < metadata_bytes / 14; ++i)
        header += (i == 0 ? "\"" : ",\"") + std::to_string(10'000'000 + i) + "\":\"\"";
    header += "}";
    for (std::size_t i = 0; i < tensor_count; ++i)
        header += ",\"layer." + std::to_string(i) + R"(.weight":{"dtype":"U8","shape":[1],"data_offsets":[)" +
                  std::to_string(i) + "," + std::to_string(i + 1) + "]}";
    header += "}" + std::string((8 - (header.size() + 1) % 8) % 8, ' ');
    std::string file(8, '\0');
    for (std::size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(header.size() >> (8 * i));
    file += header + std::string(tensor_count, 'x');
    constexpr std::size_t kChunkBytes = 16U << 20;
    http::Client client = admin();
    Json chunks = Json::array();
    for (std::size_t at = 0; at < file.size(); at += kChunkBytes) {
        const std::string chunk = file.substr(at, kChunkBytes);
        chunks.push_back({{"sha256", put(client, chunk)}, {"size", chunk.size()}});
    }
    return {{"path", "model.safetensors"}, {"size", file.size()}, {"chunks", chunks}};
}

TEST_F(StoreMemoryTest, OfAPersonsVersionTooNoLongHeaderIsParsedAndNoneTwice) {
    const auto post = [&](const Json& file, int expected, int repeated) {
        const std::string body = Json{{"manifest", {{"schema", 1}, {"files", Json::array({file})}}}}.dump();
        std::vector<int> statuses = post_at_once([&](int) { return admin(); }, "base", {body});
        std::vector<int> wanted(kAtOnce, repeated);
        wanted.back() = expected;
        std::sort(statuses.begin(), statuses.end());
        EXPECT_EQ(statuses, wanted);
    };
    post(put_model_file(1, 90U << 20), 422, 422);
    post(put_model_file(1, 7U << 20), 422, 422);
    post(put_model_file(100'000, 0), 201, 200);
    expect_little_memory();
}

TEST_F(StoreMemoryTest, BodiesOfManySmallValuesAreReadAsFarAsTheBudget) {
    std::string body = R"({"digests":[{})";
    while (body.size() < (1U << 20) - 10) body += ",{}";
    body += "]}";
    std::vector<std::jthread> threads;
    for (int i = 0; i < 5 * kAtOnce; ++i)
        threads.emplace_back([&, i] {
            const auto answer = site(i).call(Method::kPost, "/v1/blobs/missing", body);
            EXPECT_TRUE(answer.ok() && answer->status == 400) << (answer.ok() ? answer->body : "no answer");
        });
    threads.clear();
    expect_little_memory();
}

TEST_F(StoreMemoryTest, HeadersThatNoBaseHasAreNotRead) {
    std::vector<safetensors::TensorInfo> tensors = {{"w", safetensors::DType::kU8, {4}, 0, 0}};
    const std::string file = safetensors::make_header(tensors, {{"note", std::string(53U << 20, 'x')}}) + "abcd";
    constexpr std::size_t kChunkBytes = 16U << 20;
    Json chunks = Json::array();
    for (std::size_t at = 0; at < file.size(); at += kChunkBytes) {
        const std::string chunk = file.substr(at, kChunkBytes);
        for (int i = 0; i < kAtOnce; ++i) {
            http::Client client = site(i);
            put(client, chunk);
        }
        chunks.push_back({{"sha256", digest::sha256(chunk)}, {"size", chunk.size()}});
    }
    const Json files = {{{"path", "model.safetensors"}, {"size", file.size()}, {"chunks", chunks}}};
    const std::string body = Json{{"manifest", {{"schema", 1}, {"files", files}}}, {"kind", "update"}}.dump();
    EXPECT_EQ(post_at_once([&](int i) { return site(i); }, "out", {body}), std::vector<int>(kAtOnce, 422));
    expect_little_memory();
}

}  // namespace
}  // namespace atl
