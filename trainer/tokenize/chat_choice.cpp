#include "trainer/tokenize/chat_choice.h"

#include <algorithm>
#include <utility>

#include "shared/base/file.h"
#include "shared/digest/digest.h"
#include "shared/json/json.h"
#include "trainer/text/chat_formats.h"

namespace atl::tokenize {
namespace {

constexpr const char* kField = "chat-template";

using text::ChatFormat;
using tokenizer::Tokenizer;

// The file's text; empty: there is none.
Result<std::string> read_if_there(const std::filesystem::path& path) {
    auto text = read_file(path);
    if (!text.ok() && text.error().code == ErrorCode::kNotFound) return std::string();
    return text;
}

// The Jinja text of "chat_template" in a JSON file: a string, or a list of named ones, of which "default" counts.
Result<std::string> template_member(const std::filesystem::path& path) {
    ATOLL_TRY(const std::string text, read_if_there(path));
    if (text.empty()) return std::string();
    const auto object = json::parse(text);
    if (!object.ok() || !object->is_object()) return invalid_argument(kField, path.string() + " is no JSON object");
    const auto found = object->find("chat_template");
    if (found == object->end()) return std::string();
    if (found->is_string()) return found->get<std::string>();
    for (const json::Json& entry : *found)
        if (entry.is_object() && entry.value("name", json::Json()) == "default" && entry.contains("template") &&
            entry["template"].is_string())
            return entry["template"].get<std::string>();
    return std::string();
}

// The tokenizer's own chat template (Jinja), from the files in the order in which transformers takes them; empty: none.
// A chat_template.json beside them belongs to a processor of images or sounds, and a tokenizer does not read it.
Result<std::string> read_own_template(const std::filesystem::path& directory) {
    ATOLL_TRY(std::string text, read_if_there(directory / "chat_template.jinja"));
    return text.empty() ? template_member(directory / "tokenizer_config.json") : Result<std::string>(text);
}

// Its special tokens are tokens, and those of the tokenizer would not silently be text in it.
Status check_tokens(const text::ChatTemplate& chat_template, const Tokenizer& tokenizer) {
    for (const std::string& text : chat_template.special_tokens()) {
        const auto found = tokenizer.special_tokens().find(text);
        if (found == tokenizer.special_tokens().end())
            return invalid_argument("", "the tokenizer has no token " + text + ", which the chat template holds");
        if (found->second.strips_spaces)
            return invalid_argument("", "the token " + text +
                                            " takes the white space beside it with it (lstrip or rstrip), which is "
                                            "not supported in a chat template");
    }
    for (const auto& [text, token] : tokenizer.special_tokens())
        if (token.stays_text && chat_template.holds_text(text))
            return invalid_argument("", "the chat template holds " + text +
                                            ", a token of the tokenizer, which its special_tokens do not name");
    return {};
}

Result<text::ChatTemplate> parse_for(std::string_view json, const Tokenizer& tokenizer) {
    const text::ChatTemplate::Ends ends = {tokenizer.special_text(tokenizer.bos()),
                                           tokenizer.special_text(tokenizer.eos())};
    ATOLL_TRY(text::ChatTemplate parsed, text::ChatTemplate::parse(json, ends));
    ATOLL_RETURN_IF_ERROR(check_tokens(parsed, tokenizer));
    return parsed;
}

// Names those that this tokenizer has the tokens for.
std::string ways_on(const Tokenizer& tokenizer) {
    std::string names;
    for (const ChatFormat& format : text::chat_formats())
        if (parse_for(format.json, tokenizer).ok()) names += (names.empty() ? "" : ", ") + std::string(format.name);
    if (names.empty()) return "describe one in a JSON file: this tokenizer lacks the tokens of those with a name";
    return "name one of " + names + ", or a JSON file that describes it";
}

Error no_such_name(const std::string& wanted, const Tokenizer& tokenizer) {
    std::error_code error;
    if (std::filesystem::is_regular_file(wanted, error))
        return invalid_argument(kField,
                                "there is no chat template of this name, but a file: the name of a chat "
                                "template's file must end in .json");
    return invalid_argument(kField, "there is no chat template of this name: " + ways_on(tokenizer));
}

// A template is known by all of its text: parts of it do not tell what it writes.
Result<const ChatFormat*> recognize(const std::filesystem::path& directory, const Tokenizer& tokenizer) {
    ATOLL_TRY(std::string own, read_own_template(directory));
    if (own.empty()) return invalid_argument(kField, "the tokenizer has no chat template: " + ways_on(tokenizer));
    if (own.ends_with('\n')) own.pop_back();
    const std::string digest = digest::sha256(own);
    for (const ChatFormat& format : text::chat_formats())
        if (std::find(format.originals.begin(), format.originals.end(), digest) != format.originals.end())
            return &format;
    return invalid_argument(kField, "the tokenizer's own chat template (sha256 " + digest.substr(0, 12) +
                                        "…) is none of those that auto knows: if you know that it writes the same as "
                                        "one of them, " +
                                        ways_on(tokenizer));
}

// Of a name or "auto".
Result<const ChatFormat*> find_format(const std::string& wanted, const std::filesystem::path& tokenizer_directory,
                                      const Tokenizer& tokenizer) {
    if (wanted == "auto") return recognize(tokenizer_directory, tokenizer);
    for (const ChatFormat& format : text::chat_formats())
        if (format.name == wanted) return &format;
    return no_such_name(wanted, tokenizer);
}

}  // namespace

bool is_chat_template_file(const std::string& wanted) {
    return wanted.find('/') != std::string::npos || wanted.ends_with(".json");
}

Result<ChatChoice> choose_chat_template(const std::string& wanted, const std::filesystem::path& tokenizer_directory,
                                        const Tokenizer& tokenizer) {
    ChatChoice choice;
    if (is_chat_template_file(wanted)) {
        choice.name = wanted;
        auto json = read_file(wanted);
        if (!json.ok()) return Error{json.error().code, json.error().message, kField};
        choice.json = std::move(json).value();
    } else {
        ATOLL_TRY(const ChatFormat* const format, find_format(wanted, tokenizer_directory, tokenizer));
        choice.name = format->name;
        choice.json = format->json;
    }
    auto parsed = parse_for(choice.json, tokenizer);
    if (!parsed.ok()) return invalid_argument(kField, choice.name + ": " + describe(parsed.error()));
    choice.chat_template = std::move(parsed).value();
    return choice;
}

}  // namespace atl::tokenize
