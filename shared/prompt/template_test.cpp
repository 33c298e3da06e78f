#include "shared/prompt/template.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace atl::prompt {
namespace {

std::string render(const char* text, const char* row) {
    const auto parsed = Template::parse(text);
    check(parsed.ok(), "the template is good");
    const auto document = parsed->render(nlohmann::json::parse(row), "in.jsonl:3");
    return document.ok() ? document->text : "error: " + document.error().message;
}

TEST(TemplateTest, FieldsAreFilledIn) {
    EXPECT_EQ(render("scrivi un seguente documento:: {{text}}", R"({"text":"è così"})"),
              "scrivi un seguente documento:: è così");
    EXPECT_EQ(render("{{q}}\n{{ a }} ({{q}})", R"({"q":"why","a":"so","x":1})"), "why\nso (why)");
    EXPECT_EQ(render("{{n}} {{b}} {{f}}", R"({"n":3,"b":true,"f":0.5})"), "3 true 0.5");
}

TEST(TemplateTest, EscapesAreWhatTheySayAndOnlyInTheTemplate) {
    EXPECT_EQ(render(R"({{q}}\n\t{{a}}\\n)", R"({"q":"C:\\new","a":"b"})"), "C:\\new\n\tb\\n");
    for (const char* wrong : {R"({{q}}\x)", R"({{q}}\)"}) {
        const auto refused = Template::parse(wrong);
        ASSERT_FALSE(refused.ok()) << wrong;
        EXPECT_NE(refused.error().message.find("\\\\"), std::string::npos) << refused.error().message;
    }
}

TEST(TemplateTest, BracesInAFieldAreText) {
    EXPECT_EQ(render("{{a}}{{b}}", R"({"a":"{{b}}","b":"}}"})"), "{{b}}}}");
    EXPECT_EQ(render("{a} {{a}}}", R"({"a":"x"})"), "{a} x}");
}

TEST(TemplateTest, AMissingOrStructuredFieldIsNamedWithItsLine) {
    EXPECT_NE(render("{{text}}", R"({"txt":"x"})").find("in.jsonl:3: "), std::string::npos);
    EXPECT_NE(render("{{text}}", R"({"text":null})").find("in.jsonl:3: "), std::string::npos);
    EXPECT_NE(render("{{text}}", R"({"text":["x"]})").find("\"text\""), std::string::npos);
    EXPECT_NE(render("{{text}}", R"(["x"])").find("in.jsonl:3: "), std::string::npos);
}

TEST(TemplateTest, WhereAFieldIsMissingTheUsualNamesAmongTheRowsAreSaidAndNoOther) {
    const auto said = [](const nlohmann::json& row) {
        const std::string error = Template::parse("{{text}}")->render(row, "f:1").error().message;
        const std::string begin = "f:1: the row has no field \"text\", which the template names";
        EXPECT_TRUE(error.starts_with(begin)) << error;
        return error.substr(std::min(begin.size(), error.size()));
    };
    EXPECT_EQ(said({{"testo", 1}}), "; it has \"testo\"");
    EXPECT_EQ(said({{"content", 1}, {"title", 2}, {"Rossi", 3}}), "; it has \"content\", \"title\" and 1 more");
    EXPECT_EQ(said({{"Rossi", 1}}), "; it has 1 other") << "perhaps the first row of a table without a header";
    EXPECT_EQ(said({{"Il treno parte", 1}, {"\x1b[31m", 1}}), "; it has 2 others");
    EXPECT_EQ(said(nlohmann::json::object()), "; it has none");
}

TEST(TemplateTest, AnswersAreTheMarkedBytes) {
    const auto parsed = Template::parse("D: {{q}}\nR: {{#answer}}{{a}}.{{/answer}} {{ #answer }}{{b}}{{ /answer }}\n");
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    EXPECT_TRUE(parsed->has_answer());
    EXPECT_EQ(parsed->fields(), (std::vector<std::string>{"q", "a", "b"}));
    const auto document = parsed->render({{"q", "è?"}, {"a", "{{/answer}}"}, {"b", ""}}, "f:1");
    ASSERT_TRUE(document.ok());
    EXPECT_EQ(document->text, "D: è?\nR: {{/answer}}. \n");
    ASSERT_EQ(document->answers.size(), 2U);
    EXPECT_EQ(document->text.substr(document->answers[0].begin, document->answers[0].end - document->answers[0].begin),
              "{{/answer}}.");
    EXPECT_EQ(document->answers[1].begin, document->text.size() - 1);
    EXPECT_EQ(document->answers[1].end, document->text.size() - 1);
    EXPECT_FALSE(Template::parse("{{answer}}")->has_answer()) << "a field may have that name";
}

TEST(TemplateTest, BrokenTemplatesAreRefused) {
    for (const char* bad : {"", "no field", "{{text", "{{}}", "{{  }}", "a {{text}} b {{", "{{#answer}}{{a}}",
                            "{{a}}{{/answer}}", "{{#answer}}{{a}}{{#answer}}{{/answer}}{{/answer}}",
                            "{{#reply}}{{a}}{{/reply}}", "{{#answer}}a{{/answer}}"}) {
        const auto parsed = Template::parse(bad);
        ASSERT_FALSE(parsed.ok()) << bad;
        EXPECT_EQ(parsed.error().field, "template");
    }
}

}  // namespace
}  // namespace atl::prompt
