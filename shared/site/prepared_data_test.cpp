#include "shared/site/prepared_data.h"

#include <gtest/gtest.h>

#include "shared/json/json.h"

namespace atl::site {
namespace {

using json::Json;

TEST(PreparedDataTest, ADataFileGivesItsCountsOrNamesWhatIsWrong) {
    const Json good = {{"schema", 1},     {"tokenizer_sha256", std::string(64, '1')},
                       {"seq_len", 128},  {"batching", "packing"},
                       {"documents", 10}, {"rows", 5},
                       {"tokens", 600},   {"fingerprint", std::string(64, '2')}};
    const PreparedSplit split = read_data_json(good.dump(), "train.data.json").value();
    EXPECT_EQ(split.rows, 5);
    EXPECT_EQ(split.fingerprint, std::string(64, '2'));
    EXPECT_EQ(split.without_end, 0) << "of an earlier release";
    Json endless = good;
    endless["without_end"] = 10;
    EXPECT_EQ(read_data_json(endless.dump(), "train.data.json")->without_end, 10);
    endless["without_end"] = 11;
    EXPECT_EQ(read_data_json(endless.dump(), "train.data.json").error().field, "train.data.json.without_end");
    EXPECT_EQ(split.longer + split.tokens_truncated + split.bytes, 0) << "of an earlier release, too";
    Json cut = good;
    cut.update({{"longer", 10}, {"tokens_truncated", 7}, {"bytes", 9000}});
    const PreparedSplit cut_split = read_data_json(cut.dump(), "train.data.json").value();
    EXPECT_EQ(cut_split.longer, 10);
    EXPECT_EQ(cut_split.tokens_truncated, 7);
    EXPECT_EQ(cut_split.bytes, 9000);
    cut["longer"] = 11;
    EXPECT_EQ(read_data_json(cut.dump(), "train.data.json").error().field, "train.data.json.longer");
    EXPECT_EQ(split.tokenizer_reader, 0) << "of a release before there was one";
    Json read_anew = good;
    read_anew["tokenizer_reader"] = 3;
    EXPECT_EQ(read_data_json(read_anew.dump(), "train.data.json")->tokenizer_reader, 3);
    read_anew["tokenizer_reader"] = -1;
    EXPECT_EQ(read_data_json(read_anew.dump(), "train.data.json").error().field, "train.data.json.tokenizer_reader");
    const auto field_with = [&](const char* key, const Json& value) {
        Json wrong = good;
        wrong[key] = value;
        const auto read = read_data_json(wrong.dump(), "train.data.json");
        return read.ok() ? std::string("none") : read.error().field;
    };
    for (const char* key : {"rows", "tokens", "documents", "seq_len"})
        for (const Json& value : {Json(-1), Json("5"), Json(1.5), Json(UINT64_MAX), Json()})
            EXPECT_EQ(field_with(key, value), std::string("train.data.json.") + key) << value;
    for (const char* key : {"tokenizer_sha256", "fingerprint", "batching"})
        EXPECT_EQ(field_with(key, std::string("a\0b", 3)), std::string("train.data.json.") + key);
    EXPECT_EQ(field_with("template", std::string("a\0b", 3)), "none") << "nobody reads it";
    for (const std::string& text : {std::string("no JSON"), std::string("[]"), std::string(1 << 20, ' ')})
        EXPECT_EQ(read_data_json(text, "train.data.json").error().field, "train.data.json");
}

TEST(PreparedDataTest, SplitsOfTwoPreparationsAreNoVersion) {
    PreparedSplit train;
    train.tokenizer_sha256 = std::string(64, '1');
    train.tokenizer_reader = 2;
    train.seq_len = 128;
    train.batching = "packing";
    train.longer = 2;
    train.fingerprint = std::string(64, '2');
    PreparedSplit validation = train;
    validation.rows = 3;
    EXPECT_EQ(describe_version(train, validation).error().field, "fingerprint") << "the same rows";
    validation.fingerprint = std::string(64, '3');
    const Json version = describe_version(train, validation).value();
    EXPECT_EQ(version.at("validation").at("rows"), 3);
    EXPECT_EQ(version.at("tokenizer_reader"), 2);
    EXPECT_EQ(version.at("statistics").at("longer"), 4);
    EXPECT_EQ(version.at("fingerprint"), joint_fingerprint(train, validation));
    for (const auto& [key, change] : std::vector<std::pair<const char*, void (*)(PreparedSplit&)>>{
             {"tokenizer_sha256", [](PreparedSplit& split) { split.tokenizer_sha256 = std::string(64, '3'); }},
             {"tokenizer_reader", [](PreparedSplit& split) { split.tokenizer_reader = 3; }},
             {"seq_len", [](PreparedSplit& split) { split.seq_len = 256; }},
             {"batching", [](PreparedSplit& split) { split.batching = "padding"; }},
             {"split", [](PreparedSplit& split) { split.split = "train"; }}}) {
        PreparedSplit other = validation;
        change(other);
        EXPECT_EQ(describe_version(train, other).error().field, key);
    }
}

}  // namespace
}  // namespace atl::site
