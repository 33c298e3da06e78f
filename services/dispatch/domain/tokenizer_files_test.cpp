#include "services/dispatch/domain/tokenizer_files.h"

#include <gtest/gtest.h>

#include "shared/digest/digest.h"

namespace atl::dispatch {
namespace {

using json::Json;

store_client::ManifestFile file(const std::string& path, const std::string& chunks) {
    store_client::ManifestFile one{path, chunks.size(), {}};
    for (const char chunk : chunks) one.chunks.push_back({std::string(64, chunk), 1});
    return one;
}

TEST(TokenizerFilesTest, AreThoseThatDecideHowTextsAreCut) {
    EXPECT_EQ(
        tokenizer_files(
            {{file("chat_template.jinja", "a"), file("config.json", "a"), file("special_tokens_map.json", "c"),
              file("tokenizer.json", "de"), file("tokenizer_config.json", "b")}}),
        (Json{{"vocabulary", {{"tokenizer.json", digest::sha256(std::string(64, 'd') + std::string(64, 'e'))}}},
              {"settings",
               {{"special_tokens_map.json", std::string(64, 'c')}, {"tokenizer_config.json", std::string(64, 'b')}}}}));
    EXPECT_TRUE(tokenizer_files({{file("config.json", "a"), file("tokenizer_config.json", "b")}}).is_null());
}

}  // namespace
}  // namespace atl::dispatch
