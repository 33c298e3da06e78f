#include "trainer/text/chat_template.h"

#include <algorithm>
#include <array>
#include <utility>

#include "shared/json/json.h"

namespace atl::text {
namespace {

// White space as Python's str.strip and Jinja's trim have it.
constexpr std::array<std::string_view, 29> kSpaces = {
    "\t",     "\n",     "\v",     "\f",     "\r",     "\x1c",   "\x1d",   "\x1e",   "\x1f",   " ",
    "\u0085", "\u00a0", "\u1680", "\u2000", "\u2001", "\u2002", "\u2003", "\u2004", "\u2005", "\u2006",
    "\u2007", "\u2008", "\u2009", "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"};

std::string_view trimmed_behind(std::string_view text) {
    const auto at_back = [&](std::string_view space) { return text.ends_with(space); };
    for (const auto* space = kSpaces.begin(); space != kSpaces.end();) {
        space = std::find_if(kSpaces.begin(), kSpaces.end(), at_back);
        if (space != kSpaces.end()) text.remove_suffix(space->size());
    }
    return text;
}

std::string_view trimmed(std::string_view text) {
    const auto at_front = [&](std::string_view space) { return text.starts_with(space); };
    for (const auto* space = kSpaces.begin(); space != kSpaces.end();) {
        space = std::find_if(kSpaces.begin(), kSpaces.end(), at_front);
        if (space != kSpaces.end()) text.remove_prefix(space->size());
    }
    return trimmed_behind(text);
}

Error bad(const std::string& field, const std::string& what) {
    return invalid_argument(field, field + ": " + what);
}

}  // namespace

// What a text of the template is made of.
struct ChatTemplate::Compiler {
    const Ends& ends;
    const std::vector<std::string>& listed;  // special tokens
    std::vector<std::string>& used;

    Result<Pieces> compile(const std::string& field, const std::string& text) {
        Pieces pieces;
        if (text.empty()) return pieces;
        const bool names_field = text.find("{{") != std::string::npos;
        // A template without a field is refused elsewhere; "begin" may be one.
        ATOLL_TRY(const prompt::Template parsed, prompt::Template::parse(names_field ? text : text + "{{none}}"));
        for (const prompt::Template::Part& part : parsed.parts()) {
            if (part.kind == prompt::Template::Kind::kText) split(part.text, pieces);
            if (part.kind == prompt::Template::Kind::kAnswerBegin) pieces.push_back({Kind::kAnswerBegin, ""});
            if (part.kind == prompt::Template::Kind::kAnswerEnd) pieces.push_back({Kind::kAnswerEnd, ""});
            if (part.kind == prompt::Template::Kind::kField && names_field)
                ATOLL_RETURN_IF_ERROR(add_field(field, part.text, pieces));
        }
        return pieces;
    }

    Status add_field(const std::string& field, const std::string& name, Pieces& pieces) {
        if (name == "content" || name == "system") {
            pieces.push_back({name == "content" ? Kind::kContent : Kind::kSystem, name});
            return {};
        }
        if (name != "bos" && name != "eos")
            return bad(field, "{{" + name + "}} is none of {{content}}, {{system}}, {{bos}} and {{eos}}");
        const std::string& token = name == "bos" ? ends.bos : ends.eos;
        if (token.empty()) return bad(field, "the tokenizer has no token for {{" + name + "}}");
        add_special(token, pieces);
        return {};
    }

    void add_special(const std::string& token, Pieces& pieces) {
        pieces.push_back({Kind::kSpecial, token});
        if (std::find(used.begin(), used.end(), token) == used.end()) used.push_back(token);
    }

    // At each place the longest special token.
    void split(std::string_view text, Pieces& pieces) {
        std::string literal;
        const auto end_literal = [&] {
            if (!literal.empty()) pieces.push_back({Kind::kText, std::exchange(literal, "")});
        };
        while (!text.empty()) {
            const std::string* longest = nullptr;
            for (const std::string& token : listed)
                if (text.starts_with(token) && (longest == nullptr || token.size() > longest->size())) longest = &token;
            if (longest == nullptr) {
                literal += text[0];
                text.remove_prefix(1);
                continue;
            }
            end_literal();
            add_special(*longest, pieces);
            text.remove_prefix(longest->size());
        }
        end_literal();
    }

    static std::ptrdiff_t count(const Pieces& pieces, Kind kind) {
        return std::count_if(pieces.begin(), pieces.end(), [&](const Piece& piece) { return piece.kind == kind; });
    }

    // Each text has the fields that belong to it, once.
    static Status check_pieces(const char* field, const Pieces& pieces) {
        const std::string_view name = field;
        if (pieces.empty()) return {};
        if (count(pieces, Kind::kContent) != (name == "begin" ? 0 : 1))
            return bad(field, name == "begin" ? "must not hold {{content}}" : "must hold {{content}} once");
        if (count(pieces, Kind::kSystem) != (name == "user_after_system" ? 1 : 0))
            return bad(field, name == "user_after_system" ? "must hold {{system}} once"
                                                          : "{{system}} is of user_after_system");
        if (count(pieces, Kind::kAnswerBegin) != (name == "assistant" ? 1 : 0))
            return bad(field, name == "assistant" ? "must mark once what counts in the loss: {{#answer}}…{{/answer}}"
                                                  : "{{#answer}} is of assistant");
        return {};
    }
};

// What a message puts into a text of the template.
struct ChatTemplate::Values {
    std::string_view content;
    std::string_view system;
    bool counts = false;
    bool after_system = false;  // the text is user_after_system
};

Result<ChatTemplate> ChatTemplate::parse(std::string_view json, const Ends& ends) {
    ATOLL_TRY(const json::Json object, json::parse(json));
    json::ObjectReader reader(object);
    std::vector<std::string> listed;
    for (const json::Json& token : reader.array_or_null("special_tokens")) {
        const std::string text = token.is_string() ? token.get<std::string>() : "";
        if (text.empty()) reader.fail("special_tokens", "has an entry that is no text");
        listed.push_back(text);
    }
    ChatTemplate result;
    const std::pair<const char*, Pieces*> texts[] = {
        {"begin", &result.begin_}, {"system", &result.system_}, {"user_after_system", &result.user_after_system_},
        {"user", &result.user_},   {"tool", &result.tool_},     {"assistant", &result.assistant_}};
    Compiler compiler{ends, listed, result.special_tokens_};
    Status status;
    for (const auto& [name, pieces] : texts) {
        const bool required = pieces == &result.user_ || pieces == &result.assistant_;
        auto compiled = compiler.compile(name, required ? reader.required_string(name) : reader.string_or(name, ""));
        if (status.ok() && !compiled.ok()) status = bad(name, compiled.error().message);
        if (!status.ok()) continue;
        *pieces = std::move(compiled).value();
        status = Compiler::check_pieces(name, *pieces);
    }
    result.default_system_ = reader.string_or("default_system", "");
    result.trim_ = reader.boolean_or("trim", false);
    result.trim_with_system_ = reader.boolean_or("trim_with_system", false);
    result.alternate_ = reader.boolean_or("alternate", false);
    if (!result.system_.empty() && !result.user_after_system_.empty())
        reader.fail("user_after_system", "stands in the place of system: give one of them");
    if (!result.default_system_.empty() && result.system_.empty() && result.user_after_system_.empty())
        reader.fail("default_system", "needs system or user_after_system");
    if (result.trim_with_system_ && (!result.trim_ || result.user_after_system_.empty()))
        reader.fail("trim_with_system", "needs trim and user_after_system");
    ATOLL_RETURN_IF_ERROR(reader.finish());
    ATOLL_RETURN_IF_ERROR(status);
    return result;
}

void ChatTemplate::append_content(const Values& values, prompt::Document& document) const {
    const bool with_system = trim_with_system_ && values.after_system;
    const std::string_view content = !trim_        ? values.content
                                     : with_system ? trimmed_behind(values.content)
                                                   : trimmed(values.content);
    if (with_system && content.empty()) document.text.resize(trimmed_behind(document.text).size());
    document.text += content;
}

void ChatTemplate::append(const Pieces& pieces, const Values& values, prompt::Document& document) const {
    for (const Piece& piece : pieces) {
        const std::size_t at = document.text.size();
        switch (piece.kind) {
            case Kind::kText:
                document.text += piece.text;
                break;
            case Kind::kSpecial:
                document.text += piece.text;
                document.specials.push_back({at, document.text.size()});
                break;
            case Kind::kContent:
                append_content(values, document);
                break;
            case Kind::kSystem:
                document.text += values.system;
                break;
            case Kind::kAnswerBegin:
                if (values.counts) document.answers.push_back({at, at});
                break;
            case Kind::kAnswerEnd:
                if (values.counts) document.answers.back().end = at;
                break;
        }
    }
}

Status ChatTemplate::check_order(const Conversation& conversation, std::size_t first, std::string_view where) const {
    const auto fault = [&](std::size_t at, const std::string& what) {
        return invalid_argument(std::string(where), std::string(where) + ": " + conversation[at].place + ": " + what);
    };
    if (first > 0 && system_.empty() && user_after_system_.empty())
        return fault(0, "the chat template has no text for the role system");
    for (std::size_t i = first; i < conversation.size(); ++i) {
        const Role role = conversation[i].role;
        if (role == Role::kTool && tool_.empty()) return fault(i, "the chat template has no text for the role tool");
        if (alternate_ && role != ((i - first) % 2 == 0 ? Role::kUser : Role::kAssistant))
            return fault(i, "user and assistant must alternate in this chat template, the user first");
    }
    return {};
}

Result<prompt::Document> ChatTemplate::render(const Conversation& conversation, bool last_only,
                                              std::string_view where) const {
    const std::size_t first = conversation[0].role == Role::kSystem ? 1 : 0;
    ATOLL_RETURN_IF_ERROR(check_order(conversation, first, where));
    std::size_t last_answer = 0;
    for (std::size_t i = 0; i < conversation.size(); ++i)
        if (conversation[i].role == Role::kAssistant) last_answer = i;

    prompt::Document document;
    append(begin_, {}, document);
    const bool has_system = first > 0 || !default_system_.empty();
    const std::string_view system = first > 0 ? conversation[0].content : default_system_;
    if (has_system && !system_.empty()) append(system_, {system, {}, false}, document);
    bool system_waits = has_system && system_.empty();
    for (std::size_t i = first; i < conversation.size(); ++i) {
        const Message& message = conversation[i];
        const bool takes_system = system_waits && message.role == Role::kUser;
        const Pieces& pieces = takes_system                       ? user_after_system_
                               : message.role == Role::kUser      ? user_
                               : message.role == Role::kAssistant ? assistant_
                                                                  : tool_;
        if (takes_system) system_waits = false;
        const bool counts = message.train.value_or(!last_only || i == last_answer);
        append(pieces, {message.content, system, message.role == Role::kAssistant && counts, takes_system}, document);
    }
    if (system_waits)
        return invalid_argument(
            std::string(where),
            std::string(where) + ": the conversation has no message of the user to take the system's text");
    return document;
}

bool ChatTemplate::holds_text(std::string_view text) const {
    for (const Pieces* pieces : {&begin_, &system_, &user_, &assistant_, &tool_, &user_after_system_})
        for (const Piece& piece : *pieces)
            if (piece.kind == Kind::kText && piece.text.find(text) != std::string::npos) return true;
    return false;
}

}  // namespace atl::text
