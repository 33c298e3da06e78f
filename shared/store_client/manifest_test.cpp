#include "shared/store_client/manifest.h"

#include <gtest/gtest.h>

#include "shared/json/json.h"

namespace atl::store_client {
namespace {

using json::Json;

const std::string kSha(64, 'a');

Json chunk(std::uint64_t size) {
    return {{"sha256", kSha}, {"size", size}};
}

Json file(const std::string& path, std::uint64_t size) {
    return {{"path", path}, {"size", size}, {"chunks", size == 0 ? Json::array() : Json::array({chunk(size)})}};
}

Json manifest(Json files) {
    return {{"schema", 1}, {"files", std::move(files)}};
}

struct BadManifest {
    const char* why;
    Json value;
    const char* field;
};

std::vector<BadManifest> bad_manifests() {
    Json other_sum = file("a", 3);
    other_sum["size"] = 4;
    Json extra = file("a", 3);
    extra["mode"] = 420;
    Json bad_digest = file("a", 3);
    bad_digest["chunks"][0]["sha256"] = std::string(64, 'A');
    Json other_schema = manifest({file("a", 3)});
    other_schema["schema"] = 2;
    return {
        {"a parent directory", manifest({file("../a", 3)}), "manifest.files[0].path"},
        {"a parent directory inside", manifest({file("a/../b", 3)}), "manifest.files[0].path"},
        {"an absolute path", manifest({file("/etc/passwd", 3)}), "manifest.files[0].path"},
        {"an empty part", manifest({file("a//b", 3)}), "manifest.files[0].path"},
        {"a name that no file system takes", manifest({file("a/" + std::string(256, 'x'), 3)}),
         "manifest.files[0].path"},
        {"a trailing slash", manifest({file("a/", 3)}), "manifest.files[0].path"},
        {"a dot", manifest({file(".", 3)}), "manifest.files[0].path"},
        {"a NUL", manifest({file(std::string("a\0b", 3), 3)}), "manifest.files[0].path"},
        {"a backslash", manifest({file("a\\b", 3)}), "manifest.files[0].path"},
        {"a line", manifest({file("a\nb", 3)}), "manifest.files[0].path"},
        {"a right-to-left override", manifest({file("a\xE2\x80\xAEtxt.json", 3)}), "manifest.files[0].path"},
        {"a C1 control", manifest({file("a\xC2\x9B", 3)}), "manifest.files[0].path"},
        {"no files", manifest(Json::array()), "manifest.files"},
        {"a file twice", manifest({file("a", 3), file("a", 3)}), "manifest.files[1].path"},
        {"files out of order", manifest({file("b", 3), file("a", 3)}), "manifest.files[1].path"},
        {"a file below a file", manifest({file("a", 3), file("a.b", 1), file("a/b", 3)}), "manifest.files"},
        {"a sum that differs", manifest({other_sum}), "manifest.files[0].size"},
        {"an unknown member", manifest({extra}), "manifest.files[0].mode"},
        {"an upper-case digest", manifest({bad_digest}), "manifest.files[0].chunks[0].sha256"},
        {"a chunk above 16 MiB", manifest({file("a", kChunkBytesMax + 1)}), "manifest.files[0].chunks[0].size"},
        {"another schema", other_schema, "manifest.schema"},
        {"an array", Json::array(), "manifest"},
    };
}

TEST(ManifestTest, WhatCannotBeAModelIsRefusedByName) {
    for (const BadManifest& bad : bad_manifests()) {
        const auto result = parse_manifest(bad.value);
        ASSERT_FALSE(result.ok()) << bad.why;
        EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument) << bad.why;
        EXPECT_EQ(result.error().field, bad.field) << bad.why;
    }
}

TEST(ManifestTest, ReadingAndWritingGivesTheSameCanonicalBytes) {
    const auto parsed = parse_manifest(manifest({file("a", 3), file("b/c", 0)}));
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    EXPECT_EQ(canonical_json(*parsed), R"({"files":[{"chunks":[{"sha256":")" + kSha +
                                           R"(","size":3}],"path":"a","size":3},)"
                                           R"({"chunks":[],"path":"b/c","size":0}],"schema":1})");
    EXPECT_EQ(parsed->size_bytes(), 3U);
}

TEST(ManifestTest, TheDigestIsTheCanonicalBytesSha256) {
    const auto parsed = parse_manifest(manifest({file("config.json", 7)}));
    ASSERT_TRUE(parsed.ok());
    // printf '{"files":[…]…}' | sha256sum
    EXPECT_EQ(manifest_digest(*parsed), "561d0fb4f7116527329f736c6de6a84b2f962903280c629b9af65b259607e29f");
}

TEST(ManifestTest, FilesAreFoundByPath) {
    const auto parsed = parse_manifest(manifest({file("a", 3), file("b/c", 0)}));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(parsed->find("a"), &parsed->files[0]);
    EXPECT_EQ(parsed->find("b"), nullptr);
    EXPECT_EQ(parsed->find("b/c"), &parsed->files[1]);
}

}  // namespace
}  // namespace atl::store_client
