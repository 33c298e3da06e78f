#include "shared/store_client/transfer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "shared/base/file.h"
#include "shared/digest/digest.h"
#include "shared/http/testing/test_server.h"
#include "shared/store_client/remote_file.h"

namespace atl::store_client {
namespace {

namespace fs = std::filesystem;
using auth::Role;
using http::Method;
using http::Request;
using http::Response;
using json::Json;

// The store's blob and version routes, from memory.
class FakeStore {
  public:
    std::string url() const { return server_.url(); }
    TransferOptions options(int connections = 3) const {
        TransferOptions options;
        options.store.base_url = url();
        options.store.token = server_.token(Role::kOperator);
        options.store.attempts_max = 1;
        options.connections = connections;
        return options;
    }
    http::Client client() const { return server_.client(Role::kOperator); }

    void add_version(const Manifest& manifest) {
        const std::lock_guard lock(mutex_);
        versions_[manifest_digest(manifest)] = to_json(manifest);
    }
    void replace_version(const std::string& digest, const Manifest& manifest) {
        const std::lock_guard lock(mutex_);
        versions_[digest] = to_json(manifest);
    }
    void damage_blob(const std::string& sha256) {
        const std::lock_guard lock(mutex_);
        blobs_.at(sha256)[0] ^= 1;
    }

    std::atomic<int> puts = 0;
    std::atomic<int> gets = 0;
    std::atomic<int> calls_until_failure = 1 << 30;  // of PUT and GET together; then 500 for every one

  private:
    bool fails() { return calls_until_failure.fetch_sub(1) <= 0; }

    void add_routes(http::Server& server) {
        const auto access = http::Access::roles({Role::kOperator});
        server.route(Method::kPost, "/v1/blobs/missing", access,
                     [this](const Request& request) { return missing(request); });
        server.route(Method::kPut, "/v1/blobs/:sha256", access,
                     [this](const Request& request) { return put(request); });
        server.route(Method::kGet, "/v1/blobs/:sha256", access,
                     [this](const Request& request) { return get(request); });
        server.route(Method::kGet, "/v1/versions/:digest", access, [this](const Request& request) {
            const std::lock_guard lock(mutex_);
            return Response::json(200, {{"manifest", versions_.at(request.param("digest"))}});
        });
    }
    Response missing(const Request& request) {
        const std::lock_guard lock(mutex_);
        const Json body = request.json().value();
        Json missing = Json::array();
        for (const Json& digest : body.at("digests"))
            if (!blobs_.contains(digest.get<std::string>())) missing.push_back(digest);
        return Response::json(200, {{"missing", missing}});
    }
    Response put(const Request& request) {
        if (fails()) return Response::problem(internal_error("broken"));
        ++puts;
        if (digest::sha256(request.body) != request.param("sha256"))
            return Response::problem(invalid_argument("sha256", "differs"));
        const std::lock_guard lock(mutex_);
        blobs_[request.param("sha256")] = request.body;
        return Response::json(201, Json::object());
    }
    Response get(const Request& request) {
        if (fails()) return Response::problem(internal_error("broken"));
        ++gets;
        const std::lock_guard lock(mutex_);
        Response response = Response::text(200, blobs_.at(request.param("sha256")), "application/octet-stream");
        unsigned long first = 0;
        unsigned long last = 0;
        if (std::sscanf(request.header("range").c_str(), "bytes=%lu-%lu", &first, &last) == 2) {
            response.status = 206;
            response.body = response.body.substr(first, last - first + 1);
        }
        return response;
    }

    std::mutex mutex_;
    std::map<std::string, std::string> blobs_;
    std::map<std::string, Json> versions_;
    http::TestServer server_{[this](http::Server& server) { add_routes(server); }, server_options()};

    static http::ServerOptions server_options() {
        http::ServerOptions options;
        options.request_bytes_max = 9U << 20;
        return options;
    }
};

std::string random_bytes(std::size_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::string bytes(count, '\0');
    for (std::size_t i = 0; i + 4 <= count; i += 4) {
        const std::uint32_t word = static_cast<std::uint32_t>(random());
        std::memcpy(&bytes[i], &word, sizeof word);
    }
    return bytes;
}

std::map<std::string, std::string> contents(const fs::path& directory) {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(directory))
        if (entry.is_regular_file())
            files[entry.path().lexically_relative(directory).string()] = read_file(entry.path()).value();
    return files;
}

// A model of four chunks of weights, two of them equal, and small files.
class TransferTest : public testing::Test {
  protected:
    void SetUp() override {
        fs::create_directories(model_ / "original");
        fs::create_directories(model_ / ".cache");
        const std::string weights = random_bytes(2 * kChunkBytes + 1000, 1);
        write("model.safetensors", weights);
        write("original/copy.bin", weights.substr(0, kChunkBytes));
        write("config.json", "{}");
        write("empty", "");
        write(".cache/lock", "hidden");
    }
    void write(const std::string& name, const std::string& bytes) {
        ASSERT_TRUE(write_file_atomic(model_ / name, bytes).ok());
    }
    std::string upload() {
        auto uploaded = upload_directory(model_, store_.options());
        EXPECT_TRUE(uploaded.ok()) << (uploaded.ok() ? "" : uploaded.error().message);
        store_.add_version(uploaded->manifest);
        return manifest_digest(uploaded->manifest);
    }
    std::map<std::string, std::string> expected() const {
        auto files = contents(model_);
        files.erase(".cache/lock");
        return files;
    }
    std::size_t entries(const fs::path& directory) const {
        return static_cast<std::size_t>(std::distance(fs::directory_iterator(directory), {}));
    }

    TemporaryDirectory temporary_;
    fs::path model_ = temporary_.path() / "model";
    fs::path sites_ = temporary_.path() / "site";
    FakeStore store_;
};

TEST_F(TransferTest, AVersionComesBackAsItWentIn) {
    const std::string digest = upload();
    ASSERT_TRUE(download_version(digest, sites_ / "copy", store_.options()).ok());
    EXPECT_EQ(contents(sites_ / "copy"), expected());
    EXPECT_EQ(entries(sites_), 1U) << "the partial directory stayed";
}

TEST_F(TransferTest, WhatIsLeftOutOfAVersionIsNotFetched) {
    write("state.bin", "not wanted");
    const std::string digest = upload();
    TransferOptions options = store_.options();
    options.leaves_out = [](const std::string& path) { return path == "state.bin"; };
    for (int i = 0; i < 2; ++i) {  // once it is there it is what was wanted
        ASSERT_TRUE(download_version(digest, sites_ / "copy", options).ok());
        auto wanted = expected();
        wanted.erase("state.bin");
        EXPECT_EQ(contents(sites_ / "copy"), wanted);
    }
}

TEST_F(TransferTest, AVersionMayHaveMoreFilesThanAProcessMayHaveOpen) {
    for (int i = 0; i < 100; ++i) write("file" + std::to_string(i), std::to_string(i));
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
    const auto open_now = static_cast<rlim_t>(std::distance(fs::directory_iterator("/proc/self/fd"), {}));
    const rlimit few{open_now + 40, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    const std::string digest = upload();
    const Status copied = download_version(digest, sites_ / "copy", store_.options());
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    ASSERT_TRUE(copied.ok()) << copied.error().message;
    EXPECT_EQ(contents(sites_ / "copy"), expected());
}

TEST_F(TransferTest, AVersionThatTheDiskCannotHoldIsNotBegun) {
    const std::size_t most = fs::space(temporary_.path()).available / kChunkBytesMax;
    for (const std::size_t count : {most + 1000, most - 1}) {  // the second one would leave hardly a byte to others
        const Manifest huge{{{"junk.bin", count * kChunkBytesMax, {count, {std::string(64, 'a'), kChunkBytesMax}}}}};
        store_.add_version(huge);
        const Status copied = download_version(manifest_digest(huge), sites_ / "copy", store_.options());
        ASSERT_FALSE(copied.ok());
        EXPECT_EQ(copied.error().code, ErrorCode::kInsufficientStorage) << "to be tried again when there is room";
        EXPECT_EQ(store_.gets, 0);
    }
}

TEST_F(TransferTest, EqualChunksTravelOnceAndPresentOnesNever) {
    const auto first = upload_directory(model_, store_.options());
    ASSERT_TRUE(first.ok());
    EXPECT_EQ(store_.puts, 4) << "three chunks of weights, one config";
    EXPECT_EQ(first->bytes_sent, 2 * kChunkBytes + 1000 + 2);
    write("config.json", "{\"changed\":1}");
    const auto second = upload_directory(model_, store_.options());
    ASSERT_TRUE(second.ok());
    EXPECT_EQ(store_.puts, 5);
    EXPECT_EQ(second->bytes_sent, 13U);
}

TEST_F(TransferTest, ABrokenUploadGoesOnWhereItStopped) {
    store_.calls_until_failure = 2;
    ASSERT_FALSE(upload_directory(model_, store_.options(1)).ok());
    EXPECT_EQ(store_.puts, 2);
    store_.calls_until_failure = 100;
    ASSERT_TRUE(upload_directory(model_, store_.options(1)).ok());
    EXPECT_EQ(store_.puts, 4);
}

TEST_F(TransferTest, ABrokenDownloadLeavesNothingUnderTheNameAndGoesOnWhereItStopped) {
    const std::string digest = upload();
    store_.calls_until_failure = 2;
    EXPECT_FALSE(download_version(digest, sites_ / "copy", store_.options(1)).ok());
    EXPECT_FALSE(fs::exists(sites_ / "copy"));
    EXPECT_EQ(store_.gets, 2);
    store_.calls_until_failure = 100;
    ASSERT_TRUE(download_version(digest, sites_ / "copy/", store_.options(1)).ok());
    EXPECT_EQ(store_.gets, 5) << "five chunks, each fetched once";
    EXPECT_EQ(contents(sites_ / "copy"), expected());
}

TEST_F(TransferTest, AChunkThatWasDamagedMeanwhileIsFetchedAgain) {
    const std::string digest = upload();
    store_.calls_until_failure = 4;
    EXPECT_FALSE(download_version(digest, sites_ / "copy", store_.options(1)).ok());
    const fs::path partial = fs::directory_iterator(sites_)->path() / "model.safetensors";
    std::string bytes = read_file(partial).value();
    bytes[100] ^= 1;
    ASSERT_TRUE(write_file_atomic(partial, bytes).ok());
    store_.calls_until_failure = 100;
    ASSERT_TRUE(download_version(digest, sites_ / "copy", store_.options(1)).ok());
    EXPECT_EQ(store_.gets, 6);
    EXPECT_EQ(contents(sites_ / "copy"), expected());
}

TEST_F(TransferTest, BytesThatDoNotMatchTheirDigestAreNeverShown) {
    const std::string digest = upload();
    store_.damage_blob(digest::sha256("{}"));
    const Status status = download_version(digest, sites_ / "copy", store_.options());
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().field, "config.json");
    EXPECT_NE(status.error().message.find("`atoll model verify MODEL@" + digest.substr(0, 16) + "` tells the store"),
              std::string::npos)
        << status.error().message;
    EXPECT_FALSE(fs::exists(sites_ / "copy"));
    TransferOptions telling = store_.options();
    telling.on_damaged = [](const std::string& blob) { return "; told of " + blob; };
    EXPECT_TRUE(download_version(digest, sites_ / "copy", telling)
                    .error()
                    .message.ends_with("; told of " + digest::sha256("{}")));
}

TEST_F(TransferTest, AManifestThatIsNotTheDigestsIsRefused) {
    const std::string digest = upload();
    Manifest other = scan_directory(model_, 1).value();
    other.files.pop_back();
    store_.replace_version(digest, other);
    const Status status = download_version(digest, sites_ / "copy", store_.options());
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kInternal);
    EXPECT_NE(status.error().message.find(digest), std::string::npos) << status.error().message;
    EXPECT_FALSE(fs::exists(sites_ / "copy"));
}

TEST_F(TransferTest, WhatIsThereAlreadyIsNotFetchedAndAnythingElseIsLeftAlone) {
    const std::string digest = upload();
    ASSERT_TRUE(download_version(digest, sites_ / "copy", store_.options()).ok());
    const int gets = store_.gets;
    EXPECT_TRUE(download_version(digest, sites_ / "copy", store_.options()).ok());
    EXPECT_EQ(store_.gets, gets);
    // Another version of the same model differs in bytes, not in sizes.
    std::string other = read_file(sites_ / "copy/config.json").value();
    other[0] ^= 1;
    for (const std::string& mine : {other, std::string("mine, and longer")}) {
        ASSERT_TRUE(write_file_atomic(sites_ / "copy/config.json", mine).ok());
        EXPECT_EQ(download_version(digest, sites_ / "copy", store_.options()).error().code, ErrorCode::kConflict);
        EXPECT_EQ(read_file(sites_ / "copy/config.json").value(), mine);
    }
}

TEST_F(TransferTest, TwoDownloadsAtOnceFetchEachChunkOnce) {
    const std::string digest = upload();
    Status other;
    std::jthread thread([&] { other = download_version(digest, sites_ / "copy", store_.options()); });
    const Status mine = download_version(digest, sites_ / "copy", store_.options());
    thread.join();
    EXPECT_TRUE(mine.ok() && other.ok());
    EXPECT_EQ(store_.gets, 5);
    EXPECT_EQ(contents(sites_ / "copy"), expected());
}

TEST_F(TransferTest, ProgressEndsAtTheTotal) {
    std::vector<Progress> seen;
    TransferOptions options = store_.options();
    options.progress = [&](const Progress& progress) { seen.push_back(progress); };
    ASSERT_TRUE(upload_directory(model_, options).ok());
    ASSERT_FALSE(seen.empty());
    EXPECT_EQ(seen.back().bytes_total, 3 * kChunkBytes + 1000 + 2);
    EXPECT_EQ(seen.back().bytes_done, seen.back().bytes_total);
}

TEST_F(TransferTest, ARemoteFileReadsAsTheLocalOne) {
    const Manifest manifest = upload_directory(model_, store_.options()).value().manifest;
    const RemoteFile remote(std::make_shared<ClientPool>(store_.options().store), *manifest.find("model.safetensors"));
    const std::string local = read_file(model_ / "model.safetensors").value();
    ASSERT_EQ(remote.size(), local.size());
    const std::pair<std::uint64_t, std::uint64_t> ranges[] = {
        {0, 8}, {kChunkBytes - 3, 6}, {0, local.size()}, {local.size() - 1, 1}, {5, kChunkBytes}, {7, 0}};
    for (const auto& [offset, size] : ranges) {
        std::string bytes(size, '\0');
        ASSERT_TRUE(remote.read(offset, std::as_writable_bytes(std::span(bytes))).ok());
        EXPECT_EQ(bytes, local.substr(offset, size));
    }
    std::string beyond(2, '\0');
    EXPECT_EQ(remote.read(local.size() - 1, std::as_writable_bytes(std::span(beyond))).error().code,
              ErrorCode::kInvalidArgument);
}

TEST_F(TransferTest, AWholeChunkOfWrongBytesIsRefusedByTheRemoteFile) {
    const Manifest manifest = upload_directory(model_, store_.options()).value().manifest;
    store_.damage_blob(digest::sha256("{}"));
    const RemoteFile remote(std::make_shared<ClientPool>(store_.options().store), *manifest.find("config.json"));
    std::string bytes(2, '\0');
    EXPECT_EQ(remote.read(0, std::as_writable_bytes(std::span(bytes))).error().field, "config.json");
}

using Ranges = std::vector<std::pair<std::uint64_t, std::uint64_t>>;  // offset, size

// Reads the ranges of a checked file and finishes; what was read must be right.
Status read_checked(CheckedFile& file, const std::string& local, const Ranges& ranges) {
    for (const auto& [offset, size] : ranges) {
        std::string bytes(size, '\0');
        ATOLL_RETURN_IF_ERROR(file.read(offset, std::as_writable_bytes(std::span(bytes))));
        EXPECT_EQ(bytes, local.substr(offset, size)) << offset;
    }
    return file.finish();
}

TEST_F(TransferTest, ACheckedFileReadsAnyRangesAndEachChunkForItsDigestAtMostOnce) {
    const Manifest manifest = upload_directory(model_, store_.options()).value().manifest;
    const std::string local = read_file(model_ / "model.safetensors").value();
    const auto pool = std::make_shared<ClientPool>(store_.options().store);
    for (const Ranges& ranges :
         {Ranges{{0, 8}, {8, 100}, {4, 60}}, Ranges{{kChunkBytes - 3, 6}, {5, 10}}, Ranges{{0, local.size()}},
          Ranges{{2 * kChunkBytes + 7, 1}, {0, 1}, {2 * kChunkBytes, 9}, {local.size() - 1, 1}, {7, 0}}}) {
        CheckedFile file(RemoteFile(pool, *manifest.find("model.safetensors")));
        const auto status = read_checked(file, local, ranges);
        EXPECT_TRUE(status.ok()) << status.error().message;
    }
    CheckedFile in_order(RemoteFile(pool, *manifest.find("model.safetensors")));
    store_.gets = 0;
    Ranges halves;
    for (std::uint64_t at = 0; at < 2 * kChunkBytes; at += kChunkBytes / 2) halves.emplace_back(at, kChunkBytes / 2);
    EXPECT_TRUE(read_checked(in_order, local, halves).ok());
    EXPECT_EQ(store_.gets, 4) << "in order nothing is read twice";
    EXPECT_TRUE(read_checked(in_order, local, {{5, 1}}).ok());
    EXPECT_EQ(store_.gets, 5) << "it was checked";
    store_.damage_blob(manifest.find("model.safetensors")->chunks[0].sha256);
    EXPECT_TRUE(read_checked(in_order, local, {{5, 1}}).ok());
    in_order.forget();
    EXPECT_FALSE(read_checked(in_order, local, {{5, 1}}).ok());
    std::string beyond(2, '\0');
    EXPECT_EQ(in_order.read(local.size() - 1, std::as_writable_bytes(std::span(beyond))).error().field,
              "model.safetensors");
}

TEST_F(TransferTest, ADamagedByteIsFoundWhateverIsReadOfItsChunk) {
    const Manifest manifest = upload_directory(model_, store_.options()).value().manifest;
    const std::string local = read_file(model_ / "model.safetensors").value();
    store_.damage_blob(manifest.find("model.safetensors")->chunks[1].sha256);
    const auto pool = std::make_shared<ClientPool>(store_.options().store);
    for (const Ranges& ranges :
         {Ranges{{kChunkBytes + 100, 50}}, Ranges{{2 * kChunkBytes - 9, 3}}, Ranges{{kChunkBytes + 100, 50}, {0, 3}},
          Ranges{{kChunkBytes + 5000, 50}, {kChunkBytes + 100, 7}}}) {
        CheckedFile file(RemoteFile(pool, *manifest.find("model.safetensors")));
        const auto status = read_checked(file, local, ranges);
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
        EXPECT_EQ(status.error().field, "model.safetensors");
    }
    CheckedFile file(RemoteFile(pool, *manifest.find("model.safetensors")));
    EXPECT_TRUE(read_checked(file, local, {{0, 50}}).ok()) << "a chunk of which nothing is read does not matter";
}

TEST_F(TransferTest, VerifyingNamesTheFileThatDiffers) {
    const Manifest manifest = scan_directory(model_, 2).value();
    EXPECT_TRUE(verify_directory(model_, manifest, 2).ok());
    std::string weights = read_file(model_ / "model.safetensors").value();
    weights[kChunkBytes + 5] ^= 1;
    write("model.safetensors", weights);
    EXPECT_EQ(verify_directory(model_, manifest, 2).error().field, "model.safetensors");
    write("config.json", "{} ");
    EXPECT_EQ(verify_directory(model_, manifest, 2).error().field, "config.json");
    fs::remove(model_ / "config.json");
    EXPECT_TRUE(verify_directory(model_, manifest, 2).error().message.ends_with("config.json is not there"));
}

TEST_F(TransferTest, LinksToFilesCountAsFilesAndOddNamesAreRefused) {
    fs::create_symlink(model_ / "config.json", model_ / "link.json");
    const Manifest manifest = scan_directory(model_, 1).value();
    ASSERT_NE(manifest.find("link.json"), nullptr);
    EXPECT_EQ(manifest.find("link.json")->size, 2U);
    EXPECT_EQ(manifest.find(".cache/lock"), nullptr);
    write("a\\b", "x");
    EXPECT_EQ(scan_directory(model_, 1).error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(scan_directory(temporary_.path() / "nothing", 1).error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace atl::store_client
