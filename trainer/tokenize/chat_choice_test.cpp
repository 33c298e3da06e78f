#include "trainer/tokenize/chat_choice.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "shared/base/file.h"

namespace atl::tokenize {
namespace {

using Json = nlohmann::json;

const std::filesystem::path kChatFixtures = ATOLL_FIXTURES;

class ChatChoiceTest : public testing::Test {
  protected:
    // A directory with the fixture's tokenizer.Json and this tokenizer_config.json.
    ChatChoiceTest() { take_tokenizer("chat/tokenizer"); }

    void take_tokenizer(const std::string& name) {
        for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
            write(file, read_file(kChatFixtures / name / file).value());
        config_ = Json::parse(read_file(path("tokenizer_config.json")).value());
    }
    std::filesystem::path path(const std::string& name) const { return directory_.path() / name; }
    void write(const std::string& name, const std::string& text) const {
        check(write_file_atomic(path(name), text).ok(), "cannot write a test's file");
    }
    Result<ChatChoice> choose(const std::string& wanted) {
        write("tokenizer_config.json", config_.dump());
        tokenizer_ = tokenizer::Tokenizer::open(directory_.path()).value();
        return choose_chat_template(wanted, directory_.path(), *tokenizer_);
    }
    // The name, or the error.
    std::string chosen(const std::string& wanted) {
        const auto choice = choose(wanted);
        return choice.ok() ? choice->name : choice.error().field + ": " + choice.error().message;
    }

    TemporaryDirectory directory_;
    Json config_;
    std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
    const Json jinja_ = Json::parse(read_file(kChatFixtures / "chat/goldens.json").value())["jinja"];
};

// Those of the goldens that are whole originals; of the others parts are left out there.
TEST_F(ChatChoiceTest, AnOriginalIsKnownByAllOfItsText) {
    for (const char* name : {"chatml", "llama3", "llama2", "zephyr"}) {
        const std::string text = jinja_[name];
        config_["chat_template"] = text;
        EXPECT_EQ(chosen("auto"), name);
        config_["chat_template"] = {{{"name", "rag"}, {"template", "x"}}, {{"name", "default"}, {"template", text}}};
        EXPECT_EQ(chosen("auto"), name);
        config_.erase("chat_template");
        write("chat_template.jinja", text + "\n");
        EXPECT_EQ(chosen("auto"), name) << "Jinja drops one newline at the end";
        write("chat_template.jinja", text + "\n\n");
        EXPECT_NE(chosen("auto").find("is none of those that auto knows"), std::string::npos);
        std::filesystem::remove(path("chat_template.jinja"));
    }
}

// transformers 5.23.0 and 4.57.6: AutoTokenizer reads no chat_template.json.
TEST_F(ChatChoiceTest, AProcessorsTemplateIsNotTheTokenizers) {
    for (const char* stray : {"zephyr", "llama3", "chatml"}) {
        write("chat_template.json", Json{{"chat_template", jinja_[stray]}}.dump());
        config_.erase("chat_template");
        EXPECT_NE(chosen("auto").find("the tokenizer has no chat template"), std::string::npos) << chosen("auto");
        for (const char* own : {"chatml", "zephyr"}) {
            config_["chat_template"] = jinja_[own];
            EXPECT_EQ(chosen("auto"), own) << stray;
        }
        write("chat_template.jinja", jinja_["llama2"].get<std::string>());
        EXPECT_EQ(chosen("auto"), "llama2") << stray;
        std::filesystem::remove(path("chat_template.jinja"));
    }
}

// Each has all the marks of a named template, and writes conversations in another way.
TEST_F(ChatChoiceTest, ATemplateThatOnlyLooksLikeOneThatIsKnownIsRefusedWithTheNames) {
    const std::string names = "name one of chatml, qwen2.5, llama3, llama2, mistral, gemma, zephyr, or a JSON file";
    const std::string chatml = jinja_["chatml"];
    const std::string tulu3 =
        "{% for message in messages %}{% if message['role'] == 'system' %}{{ '<|system|>\n' + message['content'] + "
        "'\n' }}"
        "{% elif message['role'] == 'user' %}{{ '<|user|>\n' + message['content'] + '\n' }}"
        "{% elif message['role'] == 'assistant' %}{{ '<|assistant|>\n' + message['content'] + eos_token + '\n' }}"
        "{% endif %}{% endfor %}";
    for (const std::string& other :
         {tulu3, "{{ bos_token }}" + chatml, chatml + "You are a bot", chatml + " ", "{{ '<think>' }}" + chatml,
          jinja_["llama3"].get<std::string>() + "Cutting Knowledge Date", jinja_["qwen2.5"].get<std::string>(),
          std::string("{{ 'USER: ' }}")}) {
        config_["chat_template"] = other;
        EXPECT_NE(chosen("auto").find("chat-template: the tokenizer's own chat template (sha256 "), std::string::npos);
        EXPECT_NE(chosen("auto").find(names), std::string::npos) << chosen("auto");
    }
    EXPECT_EQ(chosen("chatml"), "chatml") << "a name decides";
    EXPECT_NE(chosen("vicuna").find("chat-template: there is no chat template of this name: " + names),
              std::string::npos);
}

TEST_F(ChatChoiceTest, SpecialTokensAreNoChatTemplate) {
    EXPECT_NE(chosen("auto").find("chat-template: the tokenizer has no chat template: name one of "), std::string::npos)
        << chosen("auto");
    take_tokenizer("tokenizers/llama3");
    EXPECT_NE(chosen("gemma").find("the tokenizer has no token <start_of_turn>"), std::string::npos) << chosen("gemma");
}

TEST_F(ChatChoiceTest, OnlyTemplatesThatTheTokenizerHasTheTokensForAreNamed) {
    const auto small =
        tokenizer::Tokenizer::open(kChatFixtures / "tokenizers/small").value();  // as tokenizer-train makes
    const auto choose_for_small = [&](const std::string& wanted) {
        return choose_chat_template(wanted, kChatFixtures / "tokenizers/small", *small);
    };
    const std::string refusal = choose_for_small("auto").error().message;
    EXPECT_NE(refusal.find(": name one of llama2, mistral, zephyr, or a JSON file"), std::string::npos) << refusal;
    for (const char* name : {"llama2", "mistral", "zephyr"}) EXPECT_TRUE(choose_for_small(name).ok()) << name;
    for (const char* name : {"chatml", "qwen2.5", "llama3", "gemma"}) EXPECT_FALSE(choose_for_small(name).ok()) << name;
}

TEST_F(ChatChoiceTest, AFileDescribesATemplateOfItsOwn) {
    Json description = {{"special_tokens", {"<|im_start|>"}},
                        {"user", "<|im_start|>{{content}}"},
                        {"assistant", "<|im_start|>{{#answer}}{{content}}{{eos}}{{/answer}}"}};
    const std::string file = path("mine.json").string();
    write("mine.json", description.dump());
    EXPECT_EQ(chosen(file), file);
    description["user"] = "<|im_start|>{{content}}<|im_end|>";
    write("mine.json", description.dump());
    EXPECT_NE(chosen(file).find("holds <|im_end|>, a token of the tokenizer, which its special_tokens do not name"),
              std::string::npos)
        << chosen(file);
    description["user"] = "hello";
    write("mine.json", description.dump());
    EXPECT_NE(chosen(file).find("mine.json: user: must hold {{content}} once"), std::string::npos) << chosen(file);
    description.erase("user");
    write("mine.json", description.dump());
    EXPECT_NE(chosen(file).find("mine.json: user: is required (a string)"), std::string::npos) << chosen(file);
    EXPECT_NE(chosen("./none.json").find("chat-template: cannot open ./none.json"), std::string::npos);
}

TEST_F(ChatChoiceTest, AFilesNameMustEndInJson) {
    const std::filesystem::path before = std::filesystem::current_path();
    write("mine.txt", "{}");
    std::filesystem::current_path(directory_.path());
    const std::string refusal = chosen("mine.txt");
    std::filesystem::current_path(before);
    EXPECT_NE(refusal.find("must end in .json"), std::string::npos) << refusal;
}

TEST_F(ChatChoiceTest, ATokenThatTakesWhiteSpaceWithItIsRefused) {
    Json tokenizer = Json::parse(read_file(path("tokenizer.json")).value());
    for (Json& token : tokenizer["added_tokens"])
        if (token["content"] == "<|im_end|>") token["rstrip"] = true;
    write("tokenizer.json", tokenizer.dump());
    EXPECT_NE(chosen("chatml").find("the token <|im_end|> takes the white space"), std::string::npos)
        << chosen("chatml");
}

}  // namespace
}  // namespace atl::tokenize
