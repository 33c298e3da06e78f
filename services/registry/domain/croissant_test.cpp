#include "services/registry/domain/croissant.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace atl::registry {
namespace {

const json::Json kFortunes = {{"name", "fortunes-it"},
                              {"description", ""},
                              {"license", "CC0-1.0"},
                              {"language", "it"},
                              {"template", "x {{text}}"},
                              {"source", "Debian"},
                              {"created_at", "2026-01-01T00:00:00.000Z"}};

TEST(CroissantTest, ADatasetWithoutAVersionHasNoFiles) {
    const auto document = croissant(kFortunes, nullptr);
    EXPECT_EQ(document["@type"], "sc:Dataset");
    EXPECT_EQ(document["conformsTo"], "http://mlcommons.org/croissant/1.0");
    EXPECT_EQ(document["inLanguage"], "it");
    EXPECT_FALSE(document.contains("distribution"));
}

TEST(CroissantTest, AVersionIsDescribedByItsFingerprintAndCounts) {
    const json::Json counts = {{"documents", 3}, {"rows", 2}, {"tokens", 256}};
    const json::Json version = {
        {"dataset", "fortunes-it"}, {"version", 2},          {"tokenizer_sha256", "t"},
        {"seq_len", 128},           {"batching", "packing"}, {"train", counts},
        {"validation", counts},     {"fingerprint", "f"},    {"created_at", "2026-01-02T00:00:00.000Z"}};
    const auto document = croissant(kFortunes, version);
    EXPECT_EQ(document["version"], "2.0.0");
    EXPECT_EQ(document["distribution"][0]["sha256"], "f");
    EXPECT_EQ(document["distribution"][0]["@id"], document["recordSet"][0]["field"][0]["source"]["fileObject"]["@id"]);
    EXPECT_EQ(document["additionalProperty"].size(), 10U);
}

}  // namespace
}  // namespace atl::registry
