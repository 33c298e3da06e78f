#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <mutex>

#include "shared/base/file.h"
#include "shared/base/subprocess.h"
#include "shared/http/testing/test_server.h"

namespace atl::cli {
namespace {

namespace fs = std::filesystem;
using http::Method;
using http::Request;
using http::Response;
using json::Json;

const std::string kDigest(64, 'a');

// A safetensors file of one tensor.
std::string weights() {
    std::string header = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    std::string bytes(8, '\0');
    bytes[0] = static_cast<char>(header.size());
    return bytes + header + std::string(8, '\0');
}

// `atoll model import` and `push` against a made-up store, which keeps what it is asked to do.
class ModelProgramTest : public testing::Test {
  protected:
    void SetUp() override {
        fs::create_directories(model_);
        write("config.json", R"({"num_hidden_layers":2,"hidden_size":32,"vocab_size":320})");
        write("model.safetensors", weights());
    }
    void write(const fs::path& file, const std::string& text) {
        ASSERT_TRUE(write_file_atomic(model_ / file, text).ok());
    }
    CommandResult run(const std::vector<std::string>& arguments) const {
        std::vector<std::string> all = {ATOLL_PROGRAM,  "--gateway",     server_.url(),
                                        "--token-file", token_.string(), "model"};
        all.insert(all.end(), arguments.begin(), arguments.end());
        return run_command(all).value();
    }
    // That nothing is sent of the directory, and that `said` names why.
    void expect_refused(const std::vector<std::string>& said) {
        const CommandResult result = run({"import", "tiny", model_.string()});
        EXPECT_EQ(result.exit_code, 2) << result.out << result.err;
        for (const std::string& words : said) EXPECT_NE(result.err.find(words), std::string::npos) << result.err;
        const std::lock_guard lock(mutex_);
        EXPECT_EQ(calls_, std::vector<std::string>()) << result.err;
    }

    void add_routes(http::Server& server) {
        const auto admins = http::Access::roles({auth::Role::kAdmin});
        const auto note = [this](const Request& request, const char* what) {
            const std::lock_guard lock(mutex_);
            calls_.emplace_back(what);
            if (!request.body.empty() && request.body.front() == '{') body_ = request.json().value();
        };
        server.route(Method::kGet, "/store/v1/models/:name", admins, [](const Request& request) {
            if (request.param("name") != "llama")
                return Response::problem(not_found("there is no such model", "model"));
            return Response::json(200, {{"name", "llama"}, {"tags", {{"final", kDigest}}}});
        });
        server.route(Method::kGet, "/store/v1/models/:name/versions/:version", admins, [](const Request& request) {
            if (request.param("version") == "finl") return Response::problem(not_found("no such version"));
            return Response::json(200, {{"digest", kDigest}, {"model", "llama"}});
        });
        server.route(Method::kPost, "/store/v1/models", admins, [note](const Request& request) {
            note(request, "made a model");
            return Response::json(201, Json::object());
        });
        server.route(Method::kPost, "/store/v1/blobs/missing", admins, [note](const Request& request) {
            note(request, "asked for blobs");
            return Response::json(200, {{"missing", Json::array()}});
        });
        server.route(Method::kPost, "/store/v1/models/:name/versions", admins, [this, note](const Request& request) {
            note(request, "made a version");
            if (is_refusing_) return Response::problem(invalid_argument("manifest", "is no model"));
            return Response::json(201, {{"digest", kDigest}, {"size", 100}, {"tags", Json::array()}});
        });
    }

    std::mutex mutex_;
    std::vector<std::string> calls_;  // what changes something, or may send something
    Json body_;                       // of the last of them
    std::atomic<bool> is_refusing_ = false;
    TemporaryDirectory directory_;
    fs::path model_ = directory_.path() / "model";
    http::TestServer server_{[this](http::Server& server) { add_routes(server); }};
    fs::path token_ = [this] {
        auto file = directory_.path() / "token";
        EXPECT_TRUE(write_file_atomic(file, server_.token(auth::Role::kAdmin)).ok());
        return file;
    }();
};

TEST_F(ModelProgramTest, AModelIsMadeWithItsFirstVersionSoThatARefusedOneLeavesNone) {
    is_refusing_ = true;
    const CommandResult refused = run({"import", "tiny", model_.string(), "--description", "for tests"});
    EXPECT_EQ(refused.exit_code, 2) << refused.err;
    is_refusing_ = false;
    const CommandResult made = run({"import", "tiny", model_.string(), "--description", "for tests"});
    EXPECT_EQ(made.exit_code, 0) << made.err;
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(std::count(calls_.begin(), calls_.end(), "made a model"), 0);
    EXPECT_EQ(body_.at("new_model"), (Json{{"description", "for tests"}}));
}

TEST_F(ModelProgramTest, AParentIsNamedAsAVersionIsAnywhere) {
    EXPECT_EQ(run({"push", "tiny", model_.string(), "--parent", "llama@round3"}).exit_code, 0);
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(body_.at("parents"), Json::array({kDigest}));
}

TEST_F(ModelProgramTest, NewestIsNoTag) {
    const std::string directory = model_.string();
    for (const std::vector<std::string>& arguments :
         std::vector<std::vector<std::string>>{{"import", "llama", directory, "--tag", "newest"},
                                               {"push", "llama", directory, "--tag", "newest"},
                                               {"tag", "llama@final", "newest"}}) {
        const CommandResult result = run(arguments);
        EXPECT_EQ(result.exit_code, 2) << result.out;
        EXPECT_NE(result.err.find("'newest' always means the newest one; choose another"), std::string::npos)
            << result.err;
    }
}

TEST_F(ModelProgramTest, AVersionIsWhatTheStoreTakesForOne) {
    const CommandResult shown = run({"show", "llama@round3", "--json"});
    EXPECT_EQ(shown.exit_code, 0) << shown.err;
    EXPECT_NE(shown.out.find(kDigest), std::string::npos) << shown.out;
    const CommandResult unknown = run({"show", "llama@finl"});
    EXPECT_EQ(unknown.exit_code, 2);
    EXPECT_NE(unknown.err.find("no such version; did you mean final?"), std::string::npos) << unknown.err;
}

TEST_F(ModelProgramTest, NothingOfElsewhereThatALinkNamesIsSent) {
    const fs::path secret = directory_.path() / "secret";
    ASSERT_TRUE(write_file_atomic(secret, "{}").ok());
    const fs::path link = model_ / "special_tokens_map.json";
    fs::create_symlink(secret, link);
    expect_refused({link.string(), secret.string(), "outside the directory", "cp -rL"});
    const CommandResult pushed = run({"push", "tiny", model_.string()});
    EXPECT_EQ(pushed.exit_code, 2) << "nor by push";
    fs::remove(link);
    fs::create_directory_symlink(directory_.path(), model_ / "more");
    expect_refused({"more", "outside the directory"});
    fs::remove(model_ / "more");
    fs::create_symlink("nowhere", link);
    expect_refused({link.string(), "leads nowhere"});
}

TEST_F(ModelProgramTest, OnlyFilesAreSent) {
    ASSERT_EQ(::mkfifo((model_ / "pipe").c_str(), 0600), 0);
    expect_refused({"pipe", "neither a file nor a directory"});
}

TEST_F(ModelProgramTest, LinksWithinTheDirectoryAndIntoTheCacheOfHuggingFaceAreFollowed) {
    fs::rename(model_ / "model.safetensors", model_ / "weights");
    fs::create_symlink("weights", model_ / "model.safetensors");
    EXPECT_EQ(run({"import", "tiny", model_.string()}).exit_code, 0);
    const fs::path cache = directory_.path() / "models--tiny";
    const fs::path snapshot = cache / "snapshots/0123abcd";
    fs::create_directories(snapshot);
    fs::create_directories(cache / "blobs");
    for (const char* file : {"config.json", "model.safetensors"}) {
        fs::copy_file(model_ / file, cache / "blobs" / file);
        fs::create_symlink(fs::path("../../blobs") / file, snapshot / file);
    }
    const CommandResult imported = run({"import", "tiny", snapshot.string()});
    EXPECT_EQ(imported.exit_code, 0) << imported.err;
}

TEST_F(ModelProgramTest, EachJsonFileIsJson) {
    write("special_tokens_map.json", "root:x:0:0");
    expect_refused({"special_tokens_map.json", "is not JSON"});
    write("special_tokens_map.json", "{}");
    write("tokenizer.json", "{}");
    std::filesystem::resize_file(model_ / "tokenizer.json", 65U << 20);
    expect_refused({"tokenizer.json: has 65.0 MiB", "at most 64.0 MiB"});
}

TEST_F(ModelProgramTest, SizesThatNoModelHasAreRefusedByName) {
    for (const auto& [member, value] : {std::pair<std::string, Json>{"num_hidden_layers", 1LL << 31},
                                        {"hidden_size", 1LL << 40},
                                        {"vocab_size", 1LL << 62},
                                        {"num_attention_heads", -1},
                                        {"intermediate_size", 0},
                                        {"head_dim", 2.5},
                                        {"vocab_size", "many"}}) {
        write("config.json", Json{{member, value}}.dump());
        expect_refused({"config.json: " + member + ": must be a whole number from 1 to"});
    }
}

TEST_F(ModelProgramTest, ANameThatSteersATerminalIsRefused) {
    write("a\xE2\x80\xAEtxt.json", "{}");
    const CommandResult result = run({"import", "tiny", model_.string()});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.err.find("cannot hold the name"), std::string::npos) << result.err;
    EXPECT_EQ(result.err.find("\xE2\x80\xAE"), std::string::npos) << "nor is it shown";
}

}  // namespace
}  // namespace atl::cli
