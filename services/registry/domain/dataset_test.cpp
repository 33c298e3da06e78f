#include "services/registry/domain/dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "shared/run_settings/chat_templates.h"

namespace atl::registry {
namespace {

using json::Json;

const std::string kSha(64, 'a');

Json dataset() {
    return {{"name", "fortunes-it"},
            {"language", "it"},
            {"license", "CC0-1.0"},
            {"template", "scrivi un seguente documento:: {{text}}"}};
}

Json version() {
    return {{"tokenizer_sha256", kSha},
            {"seq_len", 128},
            {"batching", "packing"},
            {"train", {{"documents", 10}, {"rows", 4}, {"tokens", 512}}},
            {"validation", {{"documents", 0}, {"rows", 0}, {"tokens", 0}}},
            {"fingerprint", kSha}};
}

TEST(DatasetTest, WhichFieldsARowNeedsIsKnownFromTheTemplate) {
    using Fields = std::vector<std::string>;
    EXPECT_EQ(fields_of("{{title}}\n{{#answer}}{{text}} ({{title}}){{/answer}}"), (Fields{"title", "text"}));
    EXPECT_EQ(fields_of("chat:auto"), Fields{"messages"});
}

// Each change makes the body wrong, and the error names the field.
template <class Parse>
void expect_named(const Json& good, Parse parse, const std::vector<std::pair<std::string, Json>>& changes) {
    EXPECT_TRUE(parse(good).ok());
    for (const auto& [field, value] : changes) {
        Json body = good;
        std::string pointer = "/" + field;
        std::replace(pointer.begin(), pointer.end(), '.', '/');
        body[Json::json_pointer(pointer)] = value;
        const auto result = parse(body);
        ASSERT_FALSE(result.ok()) << body.dump();
        EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
        EXPECT_EQ(result.error().field, field) << result.error().message;
    }
}

TEST(DatasetTest, EachWrongFieldOfADatasetIsNamed) {
    expect_named(dataset(), parse_dataset,
                 {{"name", "Fortunes"},
                  {"name", "../etc"},
                  {"name", ""},
                  {"name", 7},
                  {"language", "italian"},
                  {"language", "i"},
                  {"language", "it-"},
                  {"language", "it_IT"},
                  {"license", ""},
                  {"license", std::string(201, 'x')},
                  {"description", std::string(10001, 'x')},
                  {"template", "no field"},
                  {"template", "{{text"},
                  {"template", "{{}}"},
                  {"template", R"({{text}}\q)"},
                  {"template", "{{q}}{{#answer}}{{a}}"},
                  {"template", "{{q}}{{/answer}}"},
                  {"template", "{{#each}}{{q}}"},
                  {"template", "chat:"},
                  {"template", "chat:vicuna"},
                  {"template", "chat:mine.json"},
                  {"source", 1},
                  {"documents", {"a text"}}});
    for (const char* field : {"name", "language", "license", "template"}) {
        Json body = dataset();
        body.erase(field);
        EXPECT_EQ(parse_dataset(body).error().field, field);
    }
    EXPECT_FALSE(parse_dataset(Json::array()).ok());
}

TEST(DatasetTest, RowsMayBeConversationsWrittenByANamedChatTemplate) {
    for (const auto name : run_settings::kChatTemplates) {
        Json body = dataset();
        body["template"] = "chat:" + std::string(name);
        const auto parsed = parse_dataset(body);
        ASSERT_TRUE(parsed.ok()) << describe(parsed.error());
        EXPECT_EQ(parsed->template_text, body["template"].get<std::string>());
        Json wrong = dataset();
        wrong["template"] = "chat:vicuna";
        EXPECT_NE(parse_dataset(wrong).error().message.find(name), std::string::npos) << "the names are told";
    }
    EXPECT_EQ(run_settings::chat_template_of("chat:gemma"), "gemma");
    EXPECT_EQ(run_settings::chat_template_of("chat: {{text}}"), std::nullopt) << "names a field of documents";
}

TEST(DatasetTest, ATemplateIsWhatTheTrainerReads) {
    for (const char* good : {R"({{ text }})", R"({{q}}\n{{#answer}}{{a}}{{/answer}}\\)", "{{a field}}"}) {
        Json body = dataset();
        body["template"] = good;
        const auto parsed = parse_dataset(body);
        EXPECT_TRUE(parsed.ok()) << good << ": " << parsed.error().message;
    }
    Json body = dataset();
    body["template"] = R"({{q}}\q)";
    EXPECT_NE(parse_dataset(body).error().message.find("a backslash that is none of"), std::string::npos);
}

TEST(DatasetTest, LanguageTagsHaveTheShapeOfBcp47) {
    for (const char* tag : {"it", "cs", "mul", "pt-BR", "zh-Hant-TW", "de-1996"}) {
        Json body = dataset();
        body["language"] = tag;
        EXPECT_TRUE(parse_dataset(body).ok()) << tag;
    }
}

TEST(DatasetTest, EachWrongFieldOfAVersionIsNamed) {
    expect_named(version(), parse_version,
                 {{"tokenizer_sha256", "abc"},
                  {"tokenizer_sha256", std::string(64, 'A')},
                  {"fingerprint", std::string(63, 'a')},
                  {"tokenizer_reader", -1},
                  {"tokenizer_reader", "3"},
                  {"seq_len", 0},
                  {"seq_len", 1.5},
                  {"seq_len", "128"},
                  {"batching", "none"},
                  {"train", 1},
                  {"train.rows", 0},
                  {"train.tokens", 513},
                  {"train.documents", -1},
                  {"train.texts", {"a text"}},
                  {"validation.rows", -1},
                  {"statistics", {{"sample", "a text"}}},
                  {"statistics", {{"nested", {{"list", {1, "a text"}}}}}},
                  {"statistics", {{"A text as a name", 1}}},
                  {"statistics", {1}},
                  {"text", "a text"}});
}

TEST(DatasetTest, StatisticsMayNestNumbers) {
    Json body = version();
    body["statistics"] = {{"tokens_per_document", {{"p50", 40.5}, {"histogram", {1, 2, 3}}}}};
    EXPECT_EQ(parse_version(body).value().statistics, body["statistics"]);
}

TEST(DatasetTest, APathOutsideTheWorkDirectoryIsRefused) {
    EXPECT_EQ(parse_copy({{"path", "datasets/fortunes-it/1"}})->path, "datasets/fortunes-it/1");
    for (const char* path : {"/etc", "..", "a/../../b", "", "a//b", "./a"})
        EXPECT_EQ(parse_copy({{"path", path}}).error().field, "path") << path;
}

TEST(DatasetTest, AVersionNumberIsAPositiveNumber) {
    EXPECT_EQ(parse_version_number("12").value(), 12);
    for (const char* text : {"0", "-1", "1.0", "x", "", "99999999999"})
        EXPECT_EQ(parse_version_number(text).error().field, "version") << text;
}

TEST(DatasetTest, APatchChangesOnlyWhatItNames) {
    const DatasetSpec before = parse_dataset(dataset()).value();
    const DatasetPatch patch = parse_patch({{"description", "Short sayings."}}).value();
    const DatasetSpec after = patched(before, patch);
    EXPECT_EQ(after.description, "Short sayings.");
    EXPECT_EQ(after.template_text, before.template_text);
    EXPECT_FALSE(changes_meaning(before, patch));
    EXPECT_TRUE(changes_meaning(before, parse_patch({{"template", "other {{text}}"}}).value()));
    EXPECT_FALSE(changes_meaning(before, parse_patch({{"language", "it"}}).value()));
    EXPECT_EQ(parse_patch({{"name", "x"}}).error().field, "name");
    EXPECT_EQ(parse_patch({{"template", "none"}}).error().field, "template");
}

}  // namespace
}  // namespace atl::registry
