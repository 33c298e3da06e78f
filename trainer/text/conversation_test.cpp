#include "trainer/text/conversation.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace atl::text {
namespace {

using nlohmann::json;

std::string error_of(const json& row) {
    const auto parsed = parse_conversation(row, "in.jsonl:7");
    return parsed.ok() ? "none" : parsed.error().message;
}

std::string error_of_messages(const char* messages) {
    return error_of({{"messages", json::parse(messages)}});
}

TEST(ConversationTest, MessagesHaveRolesTextsAndMarks) {
    const auto parsed = parse_conversation(json::parse(R"({"id": 7, "tools": [], "messages": [
        {"role": "system", "content": "", "weight": null},
        {"role": "user", "content": "è?", "name": "x", "train": false},
        {"role": "assistant", "content": "a", "tool_calls": null, "reasoning_content": "", "thinking": false},
        {"role": "tool", "content": "b"},
        {"role": "assistant", "content": "c", "weight": 0},
        {"role": "assistant", "content": "d", "train": true}]})"),
                                           "f:1");
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    std::string seen;
    for (const Message& message : *parsed)
        seen += std::string(to_string(message.role)) + " " + message.content +
                (!message.train   ? ";"
                 : *message.train ? " yes;"
                                  : " no;");
    EXPECT_EQ(seen, "system ;user è? no;assistant a;tool b;assistant c no;assistant d yes;");
}

TEST(ConversationTest, WhatIsWrongIsNamedWithItsPlaceAndNothingIsQuoted) {
    const std::pair<const char*, const char*> cases[] = {
        {R"([])", "in.jsonl:7: messages is empty"},
        {R"({"role": "user"})", "messages is no list"},
        {R"(["secret"])", "messages[0] is no JSON object"},
        {R"([{"content": "secret"}])", "messages[0].role is missing"},
        {R"([{"role": "secret", "content": "secret"}])",
         "messages[0].role is none of system, user, assistant and tool"},
        {R"([{"role": 3, "content": "secret"}])", "messages[0].role is none of"},
        {R"([{"role": "user"}])", "messages[0].content is missing"},
        {R"([{"role": "user", "content": 7}])", "messages[0].content is no string"},
        {R"([{"role": "user", "content": [{"type": "text", "text": "secret"}]}])",
         "messages[0].content is a list of parts"},
        {R"([{"role": "user", "content": "secret"}])", "messages has none of the assistant"},
        {R"([{"role": "system", "content": "a"}, {"role": "system", "content": "b"}])", "messages[1] is of the system"},
        {R"([{"role": "user", "content": "a"}, {"role": "system", "content": "b"}])", "messages[1] is of the system"},
        {R"([{"role": "assistant", "content": "a", "tool_calls": [{}]}])", "messages[0].tool_calls is not supported"},
        {R"([{"role": "assistant", "content": "a", "reasoning_content": "b"}])",
         "messages[0].reasoning_content is not"},
        {R"([{"role": "assistant", "content": "a", "train": 1}])", "messages[0].train is neither"},
        {R"([{"role": "assistant", "content": "a", "weight": 0.5}])", "messages[0].weight is neither 0 nor 1"},
        {R"([{"role": "assistant", "content": "a", "weight": "1"}])", "messages[0].weight is neither 0 nor 1"},
        {R"([{"role": "assistant", "content": "a", "weight": 1, "train": true}])", "train and weight say the same"},
        {R"([{"role": "user", "content": "a", "weight": 1}])", "messages[0].weight is set on a message of the user"}};
    for (const auto& [messages, expected] : cases) {
        const std::string error = error_of_messages(messages);
        EXPECT_TRUE(error.starts_with("in.jsonl:7: ")) << error;
        EXPECT_NE(error.find(expected), std::string::npos) << messages << ": " << error;
        EXPECT_EQ(error.find("secret"), std::string::npos) << error;
    }
    EXPECT_NE(error_of({{"text", "x"}}).find("no field \"messages\""), std::string::npos);
    EXPECT_NE(error_of(json::array()).find("no JSON object"), std::string::npos);
    EXPECT_NE(error_of({{"messages", json::array()}, {"tools", {1}}}).find("tools is not supported"),
              std::string::npos);
}

}  // namespace
}  // namespace atl::text
