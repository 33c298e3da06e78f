#include "trainer/text/conversation.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "shared/base/file.h"

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

// "role text train place;" of each message.
std::string described(const char* row) {
    const auto parsed = parse_conversation(json::parse(row), "f:1");
    if (!parsed.ok()) return parsed.error().message;
    std::string seen;
    for (const Message& message : *parsed)
        seen += std::string(to_string(message.role)) + " " + message.content +
                (!message.train   ? " "
                 : *message.train ? " yes "
                                  : " no ") +
                message.place + ";";
    return seen;
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
    EXPECT_NE(error_of({{"text", "x"}}).find("neither messages, conversations, nor prompt and completion"),
              std::string::npos);
    EXPECT_NE(error_of(json::array()).find("no JSON object"), std::string::npos);
    EXPECT_NE(error_of({{"messages", json::array()}, {"tools", {1}}}).find("tools is not supported"),
              std::string::npos);
}

TEST(ConversationTest, ConversationsOfShareGptAreRead) {
    EXPECT_EQ(
        described(R"({"id": "a", "conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": "q"},
                            {"from": "gpt", "value": "a", "weight": 0}]})"),
        "system s conversations[0].from;user q conversations[1].from;assistant a no conversations[2].from;");
    EXPECT_EQ(described(R"({"messages": null, "conversations": [{"role": "user", "content": "q"},
                            {"from": "model", "content": "a"}]})"),
              "user q conversations[0].role;assistant a conversations[1].from;")
        << "either pair of keys";
    EXPECT_EQ(described(R"({"messages": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}],
                            "conversations": []})"),
              "user q messages[0].from;assistant a messages[1].from;")
        << "messages come first";
    for (const char* user : {"human", "user", "input"})
        for (const char* assistant : {"gpt", "assistant", "chatgpt", "bing", "bard", "bot", "model", "output"}) {
            const json row = {
                {"conversations", {{{"from", user}, {"value", "q"}}, {{"from", assistant}, {"value", "a"}}}}};
            EXPECT_EQ(described(row.dump().c_str()), "user q conversations[0].from;assistant a conversations[1].from;");
        }
}

TEST(ConversationTest, PromptAndCompletionAreOneTurnOrTwoLists) {
    EXPECT_EQ(described(R"({"prompt": "q", "completion": "a", "id": 3})"), "user q prompt;assistant a completion;");
    EXPECT_EQ(described(R"({"prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"},
                                       {"role": "assistant", "content": "a"}, {"role": "user", "content": "r"}],
                            "completion": [{"role": "assistant", "content": "b"}]})"),
              "system s prompt[0].role;user q prompt[1].role;assistant a no prompt[2].role;user r prompt[3].role;"
              "assistant b completion[0].role;")
        << "no answer of the prompt counts";
    EXPECT_EQ(described(R"({"prompt": "p", "messages": [{"role": "assistant", "content": "a"}]})"),
              "assistant a messages[0].role;")
        << "a prompt beside messages says nothing";
}

TEST(ConversationTest, ASystemTextBesideAConversationIsItsFirstMessage) {
    EXPECT_EQ(
        described(
            R"({"system": "s", "conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]})"),
        "system s system;user q conversations[0].from;assistant a conversations[1].from;");
    EXPECT_EQ(
        described(
            R"({"system": "s", "conversations": [{"from": "system", "value": "t"}, {"from": "gpt", "value": "a"}]})"),
        "system t conversations[0].from;assistant a conversations[1].from;");
    EXPECT_EQ(described(R"({"system": "s", "messages": [{"role": "user", "content": "q"},
                            {"role": "assistant", "content": "a"}]})"),
              "system s system;user q messages[0].role;assistant a messages[1].role;");
    EXPECT_EQ(described(R"({"system": "s", "messages": [{"role": "system", "content": "t"},
                            {"role": "assistant", "content": "a"}]})"),
              "system t messages[0].role;assistant a messages[1].role;");
    EXPECT_EQ(described(R"({"system": "", "prompt": "q", "completion": "a"})"),
              "user q prompt;assistant a completion;");
    EXPECT_EQ(described(R"({"system": "s", "prompt": "q", "completion": "a"})"),
              "system s system;user q prompt;assistant a completion;");
}

TEST(ConversationTest, WhatIsWrongInOtherFormsIsNamedAsWell) {
    const std::pair<const char*, const char*> cases[] = {
        {R"({"conversations": [{"from": "secret", "value": "secret"}]})",
         "conversations[0].from is none of human, user, input, gpt, assistant"},
        {R"({"conversations": [{"from": "human", "role": "user", "value": "secret"}]})",
         "conversations[0].role and from say the same"},
        {R"({"conversations": [{"from": "human", "content": "a", "value": "secret"}]})",
         "conversations[0].content and value say the same"},
        {R"({"conversations": [{"role": "human", "value": "secret"}]})", "conversations[0].role is none of system"},
        {R"({"conversations": [{"from": "human"}]})", "conversations[0].content is missing"},
        {R"({"conversations": [{"from": "human", "value": 7}]})", "conversations[0].value is no string"},
        {R"({"conversations": [{"from": "human", "value": "secret"}]})", "conversations has none of the assistant"},
        {R"({"conversations": "secret"})", "conversations is no list"},
        {R"({"conversations": [{"from": "gpt", "value": "a"}], "system": ["secret"]})", "system is no string"},
        {R"({"messages": [{"role": "assistant", "content": "a"}], "system": [{"type": "text", "text": "secret"}]})",
         "system is no string"},
        {R"({"conversations": [{"from": "gpt", "value": "a"}], "tools": "secret"})", "tools is not supported"},
        {R"({"prompt": "secret", "completion": [{"role": "assistant", "content": "a"}]})",
         "prompt and completion are neither two strings nor two lists"},
        {R"({"prompt": [{"role": "assistant", "content": "a"}], "completion": [{"role": "user", "content": "secret"}]})",
         "completion has none of the assistant"},
        {R"({"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "system", "content": "secret"}]})",
         "completion[0] is of the system"},
        {R"({"prompt": "secret", "completion": null})", "completion is null"},
        {R"({"prompt": "secret"})", "neither messages, conversations, nor prompt and completion"},
        {R"({"instruction": "secret", "input": "", "output": "secret"})", "{{#answer}}{{output}}{{/answer}}"}};
    for (const auto& [row, expected] : cases) {
        const std::string error = error_of(json::parse(row));
        EXPECT_NE(error.find(expected), std::string::npos) << row << ": " << error;
        EXPECT_EQ(error.find("secret"), std::string::npos) << error;
    }
}

// tests/numerics/make_conversation_goldens.py made the rows, and TRL their messages.
TEST(ConversationTest, RowsAreReadAsTrlReadsThem) {
    const json cases = json::parse(read_file(ATOLL_FIXTURES "/chat/rows.json").value());
    ASSERT_EQ(cases.size(), 200U);
    for (const json& one : cases) {
        json messages;
        if (const auto parsed = parse_conversation(one["row"], "f:1"); parsed.ok())
            for (const Message& message : *parsed)
                messages.push_back({to_string(message.role), message.content,
                                    message.role == Role::kAssistant && message.train.value_or(true)});
        EXPECT_EQ(messages, one["messages"]) << one["row"].dump();
    }
}

}  // namespace
}  // namespace atl::text
