#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <future>
#include <new>
#include <thread>

#include "services/store/routes/routes.h"
#include "shared/base/file.h"
#include "shared/digest/digest.h"
#include "shared/http/testing/test_server.h"

namespace atl::store {
namespace {

using http::Method;

// The routes without a database: an admin's requests need none.
class BlobRoutesTest : public testing::Test {
  protected:
    http::ClientResponse put(const std::string& bytes) {
        http::Client client = server_.client();
        return client.call(Method::kPut, "/v1/blobs/" + digest::sha256(bytes), bytes).value();
    }
    bool is_there(const std::string& bytes) { return blobs_->blob_size(digest::sha256(bytes)).ok(); }

    TemporaryDirectory temporary_;
    std::unique_ptr<BlobStore> blobs_ = BlobStore::open(temporary_.path()).value();
    Settings settings_{.root = temporary_.path(), .accel_prefix = "", .put_concurrency = 1, .topic_prefix = ""};
    pg::Pool pool_{"host=/nonexistent", "store", 1};
    metrics::Registry metrics_;
    Routing routing_{pool_, *blobs_, settings_, metrics_};
    http::TestServer server_{[this](http::Server& server) { add_blob_routes(server, routing_); }};
};

TEST_F(BlobRoutesTest, ABodyTooManyIsRefusedWithRetryAfterAndTakenLater) {
    std::promise<void> writing;
    std::promise<void> go_on;
    auto gate = go_on.get_future();
    blobs_->set_write_hook([&, first = true]() mutable {
        if (first) {
            first = false;
            writing.set_value();
            gate.wait();
        }
        return 0;
    });
    std::jthread slow([&] { EXPECT_EQ(put("slow").status, 201); });
    writing.get_future().wait();
    const auto refused = put("other");
    EXPECT_EQ(refused.status, 503);
    EXPECT_EQ(refused.headers.count("retry-after"), 1U);
    EXPECT_FALSE(is_there("other"));
    go_on.set_value();
    slow.join();
    EXPECT_EQ(put("other").status, 201);
}

TEST_F(BlobRoutesTest, AFullDiskIsSaidWithoutPathsAndTheNextBodyIsTaken) {
    blobs_->set_write_hook([first = true]() mutable { return std::exchange(first, false) ? ENOSPC : 0; });
    const auto refused = put("bytes");
    EXPECT_EQ(refused.status, 507);
    EXPECT_NE(refused.body.find("disk"), std::string::npos) << refused.body;
    EXPECT_EQ(refused.body.find(temporary_.path().string()), std::string::npos) << refused.body;
    EXPECT_FALSE(is_there("bytes"));
    EXPECT_EQ(put("bytes").status, 201);
}

// The permit and the bytes in hand go back although an exception passes.
TEST_F(BlobRoutesTest, AnExceptionWhileABodyIsKeptCostsThatBodyAlone) {
    blobs_->set_write_hook([first = true]() mutable {
        if (std::exchange(first, false)) throw std::bad_alloc();
        return 0;
    });
    EXPECT_EQ(put("bytes").status, 500);
    EXPECT_EQ(put("bytes").status, 201);
}

TEST_F(BlobRoutesTest, ADiskThatFailsIsAnErrorOfTheServer) {
    blobs_->set_write_hook([] { return EIO; });
    EXPECT_EQ(put("bytes").status, 500);
    EXPECT_FALSE(is_there("bytes"));
}

}  // namespace
}  // namespace atl::store
