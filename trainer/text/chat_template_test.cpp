#include "trainer/text/chat_template.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "shared/run_settings/chat_templates.h"
#include "trainer/text/chat_formats.h"

namespace atl::text {
namespace {

using nlohmann::json;

const ChatTemplate::Ends kEnds = {"<s>", "</s>"};

json plain() {
    return {{"special_tokens", {"<a>", "<ab>"}},
            {"system", "<a>S {{content}}\n"},
            {"user", "<ab>{{content}}\n"},
            {"assistant", "<a>{{#answer}}{{content}}{{eos}}{{/answer}}\n"}};
}

ChatTemplate chat_template(const json& description) {
    auto parsed = ChatTemplate::parse(description.dump(), kEnds);
    check(parsed.ok(), parsed.ok() ? "" : parsed.error().message);
    return std::move(parsed).value();
}

std::vector<std::string> texts_of(const prompt::Document& document,
                                  const std::vector<prompt::Document::Range>& ranges) {
    std::vector<std::string> texts;
    for (const auto& [begin, end] : ranges) texts.push_back(document.text.substr(begin, end - begin));
    return texts;
}

using Texts = std::vector<std::string>;
const Conversation kTalk = {{Role::kSystem, "be kind", {}},
                            {Role::kUser, "why <a>?", {}},
                            {Role::kAssistant, "so", {}},
                            {Role::kUser, "{{content}}", {}},
                            {Role::kAssistant, "</s>", {}}};

TEST(ChatTemplateTest, MessagesAreWrittenWithTheSpecialTokensOfTheTemplateAlone) {
    const prompt::Document document = chat_template(plain()).render(kTalk, false, "f:1").value();
    EXPECT_EQ(document.text, "<a>S be kind\n<ab>why <a>?\n<a>so</s>\n<ab>{{content}}\n<a></s></s>\n");
    EXPECT_EQ(texts_of(document, document.specials), (Texts{"<a>", "<ab>", "<a>", "</s>", "<ab>", "<a>", "</s>"}));
    EXPECT_EQ(document.specials.back().end, document.text.size() - 1) << "what the message says is no special token";
    EXPECT_EQ(texts_of(document, document.answers), (Texts{"so</s>", "</s></s>"}));
}

TEST(ChatTemplateTest, AnswersAreTheLastOneOrWhatTheMessagesSay) {
    const auto answers = [](const Conversation& conversation, bool last_only) {
        const prompt::Document document = chat_template(plain()).render(conversation, last_only, "f:1").value();
        return texts_of(document, document.answers);
    };
    EXPECT_EQ(answers(kTalk, true), (Texts{"</s></s>"}));
    Conversation marked = kTalk;
    marked[4].train = false;
    EXPECT_EQ(answers(marked, false), (Texts{"so</s>"}));
    EXPECT_EQ(answers(marked, true), Texts());
    marked[2].train = true;
    EXPECT_EQ(answers(marked, true), (Texts{"so</s>"}));
}

TEST(ChatTemplateTest, ASystemTextMayGoIntoTheFirstMessageOfTheUser) {
    json description = plain();
    description.erase("system");
    description["begin"] = "{{bos}}";
    description["user_after_system"] = "[{{system}}] {{content}}\n";
    description["trim"] = true;
    Conversation talk = kTalk;
    talk[0].content = " be kind ";
    talk[1].content = "\u3000 why\n";
    EXPECT_EQ(chat_template(description).render({talk.begin(), talk.begin() + 3}, false, "f:1")->text,
              "<s>[ be kind ] why\n<a>so</s>\n");
    description["default_system"] = "hello";
    EXPECT_EQ(chat_template(description).render({talk[1], talk[2]}, false, "f:1")->text, "<s>[hello] why\n<a>so</s>\n");
    const auto nobody = chat_template(description).render({talk[2]}, false, "f:1");
    EXPECT_EQ(nobody.error().message, "f:1: the conversation has no message of the user to take the system's text");
}

// As transformers 5.23.0 renders Llama-2-chat's template.
TEST(ChatTemplateTest, ASystemTextAndTheUsersMayLoseWhiteSpaceAsOneText) {
    const auto llama2 = std::find_if(chat_formats().begin(), chat_formats().end(),
                                     [](const ChatFormat& format) { return format.name == "llama2"; });
    const auto text = [&](const char* system, const char* user) {
        const Conversation talk = {{Role::kSystem, system, {}}, {Role::kUser, user, {}}, {Role::kAssistant, "y", {}}};
        return ChatTemplate::parse(llama2->json, kEnds)->render(talk, false, "f:1")->text;
    };
    EXPECT_EQ(text("s", "x"), "<s>[INST] <<SYS>>\ns\n<</SYS>>\n\nx [/INST] y </s>");
    EXPECT_EQ(text(" s \n", "\n x\u3000"), "<s>[INST] <<SYS>>\n s \n\n<</SYS>>\n\n\n x [/INST] y </s>");
    EXPECT_EQ(text("s", "\u00a0x"), "<s>[INST] <<SYS>>\ns\n<</SYS>>\n\n\u00a0x [/INST] y </s>");
    EXPECT_EQ(text("s", "  "), "<s>[INST] <<SYS>>\ns\n<</SYS>> [/INST] y </s>");
    const Conversation plain_talk = {{Role::kUser, "\n x ", {}}, {Role::kAssistant, "y", {}}};
    EXPECT_EQ(ChatTemplate::parse(llama2->json, kEnds)->render(plain_talk, false, "f:1")->text,
              "<s>[INST] x [/INST] y </s>");
}

TEST(ChatTemplateTest, ADefaultIsForConversationsWithoutASystemText) {
    json description = plain();
    description["default_system"] = "hello";
    EXPECT_TRUE(
        chat_template(description).render({kTalk[1], kTalk[2]}, false, "f:1")->text.starts_with("<a>S hello\n"));
    EXPECT_TRUE(chat_template(description).render(kTalk, false, "f:1")->text.starts_with("<a>S be kind\n"));
}

TEST(ChatTemplateTest, RolesWithoutATextAreRefusedWithTheirPlace) {
    json description = plain();
    description["alternate"] = true;
    Conversation talk = {kTalk[0], kTalk[1], kTalk[1], kTalk[2]};
    talk[0].place = "system";
    talk[2].place = "conversations[1].from";
    const auto twice = chat_template(description).render(talk, false, "f:1");
    ASSERT_FALSE(twice.ok());
    EXPECT_TRUE(twice.error().message.starts_with("f:1: conversations[1].from: user and assistant must alternate"));
    description.erase("system");
    EXPECT_EQ(chat_template(description).render(talk, false, "f:1").error().message,
              "f:1: system: the chat template has no text for the role system");
    const Conversation tool = {
        {Role::kUser, "a", {}}, {Role::kTool, "b", {}, "messages[1].role"}, {Role::kAssistant, "c", {}}};
    EXPECT_EQ(chat_template(plain()).render(tool, false, "f:1").error().message,
              "f:1: messages[1].role: the chat template has no text for the role tool");
    description = plain();
    description["tool"] = "<a>T {{content}}\n";
    EXPECT_EQ(chat_template(description).render(tool, false, "f:1")->text, "<ab>a\n<a>T b\n<a>c</s>\n");
}

TEST(ChatTemplateTest, BrokenDescriptionsAreRefusedByMember) {
    const std::pair<const char*, json> cases[] = {{"user", nullptr},
                                                  {"user", "hello"},
                                                  {"user", "{{content}} {{content}}"},
                                                  {"user", "{{content"},
                                                  {"user", "{{content}} {{name}}"},
                                                  {"user", "{{#answer}}{{content}}{{/answer}}"},
                                                  {"user", "{{system}} {{content}}"},
                                                  {"user", 7},
                                                  {"assistant", "{{content}}"},
                                                  {"begin", "{{content}}"},
                                                  {"user_after_system", "{{system}} {{content}}"},
                                                  {"special_tokens", "<a>"},
                                                  {"special_tokens", {7}},
                                                  {"trim", "yes"},
                                                  {"trim_with_system", true},
                                                  {"jinja", "x"}};
    for (const auto& [member, value] : cases) {
        json description = plain();
        description[member] = value;
        const auto parsed = ChatTemplate::parse(description.dump(), kEnds);
        ASSERT_FALSE(parsed.ok()) << member << " " << value;
        EXPECT_EQ(parsed.error().field, member) << value << ": " << parsed.error().message;
    }
    EXPECT_FALSE(ChatTemplate::parse("{", kEnds).ok());
    EXPECT_FALSE(ChatTemplate::parse("[]", kEnds).ok());
    json description = plain();
    description.erase("system");
    description["default_system"] = "x";
    EXPECT_EQ(ChatTemplate::parse(description.dump(), kEnds).error().field, "default_system");
    EXPECT_EQ(ChatTemplate::parse(plain().dump(), {"<s>", ""}).error().field, "assistant") << "no end token";
}

TEST(ChatTemplateTest, EachNamedTemplateIsADescriptionThatDatasetsMayName) {
    EXPECT_EQ(chat_formats().size() + 1, run_settings::kChatTemplates.size()) << "and auto";
    for (const ChatFormat& format : chat_formats()) {
        const auto parsed = ChatTemplate::parse(format.json, kEnds);
        EXPECT_TRUE(parsed.ok()) << format.name << ": " << parsed.error().message;
        EXPECT_TRUE(run_settings::is_chat_template(format.name)) << format.name;
    }
}

}  // namespace
}  // namespace atl::text
