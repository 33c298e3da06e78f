#include <gtest/gtest.h>

#include <mutex>

#include "shared/base/file.h"
#include "shared/base/subprocess.h"
#include "shared/http/testing/test_server.h"

namespace atl::cli {
namespace {

using http::Access;
using http::Method;
using http::Request;
using http::Response;
using json::Json;

// The program itself against a made-up registry and dispatch, which has one facility.
class DatasetAdoptTest : public testing::Test {
  protected:
    void add_routes(http::Server& server) {
        const Access anyone = Access::roles({auth::Role::kAdmin});
        server.route(Method::kGet, "/dispatch/v1/facilities/:name", anyone, [](const Request& request) {
            if (request.param("name") != "leonardo") return Response::problem(not_found("no such facility"));
            return Response::json(200, {{"name", "leonardo"}});
        });
        server.route(Method::kGet, "/dispatch/v1/facilities", anyone, [](const Request&) {
            return Response::json(200, {{"items", {{{"name", "leonardo"}}}}, {"next", nullptr}});
        });
        server.route(Method::kGet, "/registry/v1/datasets/:name", anyone, [](const Request& request) {
            return Response::json(200, {{"name", request.param("name")}, {"template", "x: {{text}}"}});
        });
        server.route(Method::kPost, "/registry/v1/datasets/:name/versions", anyone, [this](const Request& request) {
            const std::lock_guard lock(mutex_);
            posted_ = request.json().value();
            return Response::json(201, {{"version", 4}});
        });
        server.route(Method::kGet, "/registry/v1/datasets/:name/versions/:version/copies", anyone,
                     [this](const Request&) {
                         const std::lock_guard lock(mutex_);
                         return Response::json(200, {{"items", copies_}, {"next", nullptr}});
                     });
        server.route(Method::kPut, "/dispatch/v1/facilities/:name/copies/:dataset/:version", anyone,
                     [](const Request& request) {
                         const Json path = request.json()->at("path");
                         if (path == "/elsewhere")
                             return Response::problem(invalid_argument("path", "must be within the work directory"));
                         return Response::json(200, {{"path", path}, {"version", request.param("version")}});
                     });
    }
    Json posted() {
        const std::lock_guard lock(mutex_);
        return posted_;
    }
    void write_split(const std::string& split) {
        std::filesystem::create_directories(data_.path() / split);
        split_["fingerprint"] = std::string(64, split == "train" ? '2' : '3');
        ASSERT_TRUE(write_file_atomic(data_.path() / split / "data.json", split_.dump()).ok());
    }
    CommandResult adopt(const std::string& facility, const std::string& path,
                        const std::vector<std::string>& flags = {}) const {
        std::vector<std::string> command = {ATOLL_PROGRAM, "--gateway", server_.url(), "--token-file", token_file_,
                                            "dataset",     "adopt",     "diaries",     "--facility",   facility,
                                            "--path",      path,        "--data",      data_.path()};
        command.insert(command.end(), flags.begin(), flags.end());
        return run_command(command).value();
    }

    Json split_ = {{"tokenizer_sha256", std::string(64, '1')},
                   {"tokenizer_reader", 4},
                   {"fingerprint", std::string(64, '2')},
                   {"seq_len", 16},
                   {"batching", "packing"},
                   {"documents", 4},
                   {"rows", 2},
                   {"tokens", 20}};
    TemporaryDirectory data_;
    void set_copy(const std::string& facility, const std::string& path) {
        const std::lock_guard lock(mutex_);
        copies_ = Json::array({{{"facility", facility}, {"path", path}}});
    }

  private:
    std::mutex mutex_;
    Json copies_ = Json::array();
    Json posted_;

  protected:
    http::TestServer server_{[this](http::Server& server) { add_routes(server); }};
    std::string token_file_ = [this] {
        const auto file = data_.path() / "token";
        EXPECT_TRUE(write_file_atomic(file, server_.token(auth::Role::kAdmin)).ok());
        return file.string();
    }();
};

TEST_F(DatasetAdoptTest, ItRegistersTheVersionAndWhereItLies) {
    write_split("train");
    EXPECT_NE(adopt("leonardo", "prepared").err.find("validation/data.json"), std::string::npos) << "it is missing";
    split_["rows"] = 0;
    write_split("validation");
    EXPECT_EQ(adopt("nobody", "prepared").exit_code, 2);
    EXPECT_TRUE(posted().is_null()) << "nothing is registered where the facility is not known";
    const CommandResult adopted = adopt("leonardo", "prepared");
    EXPECT_EQ(adopted.out, "version 4 of diaries: 2 rows to train on, 0 to validate on; at leonardo in prepared\n")
        << adopted.err;
    EXPECT_EQ(posted().at("tokenizer_reader"), 4);
    EXPECT_EQ(posted().at("train"), (Json{{"documents", 4}, {"rows", 2}, {"tokens", 20}}));
    const CommandResult refused = adopt("leonardo", "/elsewhere");
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_NE(refused.err.find("atoll dataset rm diaries --version 4"), std::string::npos) << refused.err;
    set_copy("karolina", "prepared");
    EXPECT_EQ(adopt("leonardo", "/elsewhere").err.find("dataset rm"), std::string::npos)
        << "it would remove what another facility has";
}

TEST_F(DatasetAdoptTest, ACopyIsMovedOnlyWhenThatIsSaid) {
    for (const char* split : {"train", "validation"}) write_split(split);
    set_copy("leonardo", "prepared");
    EXPECT_EQ(adopt("leonardo", "prepared").exit_code, 0) << "it may be asked for again";
    const CommandResult moved = adopt("leonardo", "nowhere");
    EXPECT_EQ(moved.exit_code, 1) << moved.out;
    EXPECT_NE(moved.err.find("--path: version 4 of diaries lies at leonardo in prepared already"), std::string::npos)
        << moved.err;
    EXPECT_EQ(adopt("leonardo", "elsewhere", {"--move"}).exit_code, 0);
    set_copy("karolina", "prepared");
    EXPECT_EQ(adopt("leonardo", "nowhere").exit_code, 0) << "of another facility";
}

TEST_F(DatasetAdoptTest, WhatIsNoPairOfSplitsOfThisDatasetIsRefused) {
    const auto refused = [&](const std::string& why) {
        const CommandResult result = adopt("leonardo", "prepared/diaries");
        EXPECT_EQ(result.exit_code, 2) << why;
        EXPECT_NE(result.err.find(why), std::string::npos) << result.err;
        EXPECT_TRUE(posted().is_null()) << why;
    };
    split_["split"] = "train";
    for (const char* split : {"train", "validation"}) write_split(split);
    refused("the data to validate on are the training split");
    split_["split"] = "all";
    write_split("train");
    std::filesystem::copy(data_.path() / "train/data.json", data_.path() / "validation/data.json",
                          std::filesystem::copy_options::overwrite_existing);
    refused("train and validation are the same rows");
    split_["template"] = "y: {{text}}";
    for (const char* split : {"train", "validation"}) write_split(split);
    refused("were made by the template \"y: {{text}}\", diaries has \"x: {{text}}\"");
}

TEST_F(DatasetAdoptTest, SplitsOfTwoPreparationsAreRefused) {
    write_split("train");
    split_["seq_len"] = 32;
    write_split("validation");
    EXPECT_NE(adopt("leonardo", "prepared").err.find("another seq_len"), std::string::npos);
    EXPECT_TRUE(posted().is_null());
}

}  // namespace
}  // namespace atl::cli
