#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <future>

#include "shared/base/file.h"
#include "shared/base/subprocess.h"
#include "shared/http/testing/test_server.h"

namespace atl::cli {
namespace {

using http::Method;
using http::Request;
using http::Response;
using json::Json;

constexpr std::size_t kPart = 8 << 20;

// `atoll facility put-image` against a made-up dispatch, whose site keeps what comes and has the image in its place
// when it is whole. The program is killed after the second part.
class PutImageCommandTest : public testing::Test {
  protected:
    std::vector<std::string> command(const std::vector<std::string>& arguments) const {
        std::vector<std::string> all = {ATOLL_PROGRAM,   "--gateway", server_.url(), "--token-file",
                                        token_.string(), "facility",  "put-image"};
        all.insert(all.end(), arguments.begin(), arguments.end());
        return all;
    }
    CommandResult run(const std::vector<std::string>& arguments) const {
        return run_command(command(arguments)).value();
    }
    void add_routes(http::Server& server) {
        const auto admins = http::Access::roles({auth::Role::kAdmin});
        server.route(Method::kGet, "/dispatch/v1/facilities/:name", admins, [](const Request& request) {
            if (request.param("name") != "leonardo") return Response::problem(not_found("no such facility"));
            return Response::json(200, {{"name", "leonardo"}, {"work_dir", "/scratch"}});
        });
        server.route(Method::kGet, "/dispatch/v1/facilities", admins, [](const Request&) {
            return Response::json(200, {{"items", {{{"name", "leonardo"}}}}, {"next", nullptr}});
        });
        server.route(Method::kPatch, "/dispatch/v1/facilities/:name", admins, [this](const Request& request) {
            const std::lock_guard lock(mutex_);
            site_.patch = request.json().value();
            return Response::json(200, site_.patch);
        });
        server.route(Method::kPut, "/dispatch/v1/facilities/:name/image", admins,
                     [this](const Request& request) { return take_part(request); });
    }
    Response take_part(const Request& request) {
        const std::lock_guard lock(mutex_);
        const auto offset = std::stoull(request.query.at("offset"));
        auto& [bytes, place, offsets, patch] = site_;
        if (!request.body.empty()) offsets.push_back(offset);
        bytes.replace(std::min<std::size_t>(offset, bytes.size()), request.body.size(), request.body);
        if (!request.body.empty() && offsets.size() == 2) ::kill(program_.get(), SIGKILL);
        place = request.query.at("path") + " " + request.query.at("sha256");
        const auto total = std::stoull(request.query.at("bytes"));
        return Response::json(
            200, {{"in_place", bytes.size() == total}, {"bytes_done", bytes.size()}, {"bytes_total", total}});
    }

    struct Site {
        std::string bytes;
        std::string place;
        std::vector<std::size_t> offsets;  // of the parts that came
        Json patch;
    };
    Site site() {
        const std::lock_guard lock(mutex_);
        return site_;
    }

    std::mutex mutex_;
    Site site_;
    std::promise<pid_t> program_is_;
    std::shared_future<pid_t> program_ = program_is_.get_future().share();
    http::TestServer server_{[this](http::Server& server) { add_routes(server); }, {.request_bytes_max = 17 << 20}};
    TemporaryDirectory directory_;
    std::filesystem::path token_ = directory_.path() / "token";
};

TEST_F(PutImageCommandTest, AnImageGoesOnAfterAKillAndIsPinnedWhenItIsInItsPlace) {
    ASSERT_TRUE(write_file_atomic(token_, server_.token(auth::Role::kAdmin)).ok());
    std::string bytes(3 * kPart + 17, 'x');
    bytes.replace(32, 9, "SIF_MAGIC");
    bytes[2 * kPart] = 'y';
    const std::string file = directory_.path() / "trainer.sif";
    ASSERT_TRUE(write_file_atomic(file, bytes).ok());
    const std::string sha256 = run_command({"sha256sum", file})->out.substr(0, 64);
    const auto log = directory_.path() / "log";
    const auto killed = start_daemon(command({"leonardo", file}), {.log = log, .environment = {}, .directory = {}});
    ASSERT_TRUE(killed.ok());
    program_is_.set_value(*killed);
    int status = 0;
    ASSERT_EQ(::waitpid(*killed, &status, 0), *killed);
    EXPECT_TRUE(WIFSIGNALED(status)) << read_file(log).value();
    EXPECT_TRUE(site().patch.is_null()) << "what is not there is not pinned";
    const CommandResult put = run({"leonardo", file});
    ASSERT_EQ(put.exit_code, 0) << put.err;
    EXPECT_EQ(site().offsets, (std::vector<std::size_t>{0, kPart, 2 * kPart, 3 * kPart}));
    EXPECT_TRUE(site().bytes == bytes);
    const std::string place = "/scratch/atoll-" + sha256.substr(0, 12) + ".sif";
    EXPECT_EQ(site().place, place + " " + sha256);
    EXPECT_EQ(site().patch, (Json{{"image", {{"path", place}, {"sha256", sha256}}}, {"programs", nullptr}}));
    EXPECT_EQ(run({"leonardo", file, "--path", "/home/me/a b&c.sif"}).exit_code, 0);
    EXPECT_EQ(site().place, "/home/me/a b&c.sif " + sha256);
    EXPECT_EQ(run({"nobody", file}).exit_code, 2);
    EXPECT_EQ(run({"leonardo", file + ".absent"}).exit_code, 2);
    EXPECT_NE(run({"leonardo", token_.string()}).err.find("is no SIF file"), std::string::npos);
}

}  // namespace
}  // namespace atl::cli
