#include "shared/config/config.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <tuple>

#include "shared/base/file.h"

namespace atl::config {
namespace {

class ConfigTest : public testing::Test {
  protected:
    Result<json::Json> load_text(std::string_view text) {
        EXPECT_TRUE(write_file_atomic(file_, text).ok());
        return load(file_);
    }
    std::string error_of(std::string_view text) {
        const auto result = load_text(text);
        EXPECT_FALSE(result.ok()) << text;
        return result.ok() ? "" : result.error().message.substr(directory_.path().string().size() + 1);
    }

    TemporaryDirectory directory_;
    std::filesystem::path file_ = directory_.path() / "c.yaml";
};

TEST_F(ConfigTest, YamlBecomesTypedJson) {
    const auto value = load_text(
        "port: 7401\naddress: 127.0.0.1\nratio: 0.5\non: true\nnone: ~\nquoted: \"12\"\nlist: [1, two]\n"
        "own:\n  deep: {a: b}\nword: inf\n");
    ASSERT_TRUE(value.ok()) << value.error().message;
    EXPECT_EQ(*value, json::Json::parse(R"({"port":7401,"address":"127.0.0.1","ratio":0.5,"on":true,"none":null,
        "quoted":"12","list":[1,"two"],"own":{"deep":{"a":"b"}},"word":"inf"})"));
}

TEST_F(ConfigTest, JsonIsReadToo) {
    EXPECT_EQ(load_text(R"({"a": {"b": [1, "x"]}})").value().dump(), R"({"a":{"b":[1,"x"]}})");
}

TEST_F(ConfigTest, EnvironmentVariablesAreReplacedOnce) {
    ::setenv("ATOLL_TEST_PORT", "7402", 1);
    ::setenv("ATOLL_TEST_NAME", "${ATOLL_TEST_PORT}", 1);
    const auto value =
        load_text("port: ${ATOLL_TEST_PORT}\nurl: http://h:${ATOLL_TEST_PORT}/\ntext: \"${ATOLL_TEST_NAME}\"");
    ASSERT_TRUE(value.ok()) << value.error().message;
    EXPECT_EQ((*value)["port"], 7402);
    EXPECT_EQ((*value)["url"], "http://h:7402/");
    EXPECT_EQ((*value)["text"], "${ATOLL_TEST_PORT}");
}

TEST_F(ConfigTest, WhatIsWrittenIsReadBackAsItIs) {
    const json::Json object = {{"name", "leonardo"},
                               {"none", nullptr},
                               {"empty", json::Json::object()},
                               {"template", "#!/bin/bash -l\nexport A=${SLURM_JOB_ID}\n\n  {{ command }}\n"},
                               {"odd", {{"a b", "it's \"x\": #1\n"}, {"yes", "no"}, {"time", "1:00:00"}, {"n", "007"}}},
                               {"list", {"a", "-b", "", 1, true, {{"deep", "${A}"}}}},
                               {"spaces", "  x\n"},
                               {"price", "$$${X} $"},
                               {"number", 0.5}};
    const auto read = parse(to_yaml(object), "text");
    ASSERT_TRUE(read.ok()) << read.error().message << "\n" << to_yaml(object);
    EXPECT_EQ(*read, object) << to_yaml(object);
    EXPECT_NE(to_yaml(object).find("name: leonardo\n"), std::string::npos);
    EXPECT_NE(to_yaml(object).find("template: |\n  #!/bin/bash -l\n"), std::string::npos);
}

TEST_F(ConfigTest, ErrorsNameTheFileAndTheLine) {
    for (const auto& [text, place, what] :
         {std::tuple{"a: 1\nb: ${ATOLL_TEST_UNSET}\n", "c.yaml:2:", "ATOLL_TEST_UNSET"},
          {"a: 1\nb: 2\na: 3\n", "c.yaml:3:", "\"a\""},
          {"a: 1\nb: [1, 2\n", "c.yaml:", ""},
          {"a: ${X\n", "c.yaml:1:", "${"}}) {
        const std::string error = error_of(text);
        EXPECT_TRUE(error.starts_with(place)) << error;
        EXPECT_NE(error.find(what), std::string::npos) << error;
    }
}

TEST_F(ConfigTest, AMissingFileIsNotFound) {
    EXPECT_EQ(load(directory_.path() / "none").error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace atl::config
