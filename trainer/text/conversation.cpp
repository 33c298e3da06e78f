#include "trainer/text/conversation.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

namespace atl::text {
namespace {

using Json = nlohmann::json;

constexpr std::array kRoles = {Role::kSystem, Role::kUser, Role::kAssistant, Role::kTool};
// What a conversation may carry beside its texts: without it the model would learn something else than what was meant.
constexpr std::array kOtherRowParts = {"tools", "functions"};
constexpr std::array kOtherMessageParts = {"tool_calls",        "function_call", "reasoning",
                                           "reasoning_content", "thinking",      "audio"};

// How ShareGPT and what has grown out of it call those who speak.
struct Speaker {
    const char* name;
    Role role;
};
constexpr std::array kSpeakers = {
    Speaker{"human", Role::kUser},      Speaker{"user", Role::kUser},           Speaker{"input", Role::kUser},
    Speaker{"gpt", Role::kAssistant},   Speaker{"assistant", Role::kAssistant}, Speaker{"chatgpt", Role::kAssistant},
    Speaker{"bing", Role::kAssistant},  Speaker{"bard", Role::kAssistant},      Speaker{"bot", Role::kAssistant},
    Speaker{"model", Role::kAssistant}, Speaker{"output", Role::kAssistant},    Speaker{"system", Role::kSystem},
    Speaker{"tool", Role::kTool}};

std::string speaker_names() {
    std::string names;
    for (const Speaker& speaker : kSpeakers) names += (names.empty() ? "" : ", ") + std::string(speaker.name);
    return names;
}

const Json& member(const Json& object, const char* key) {
    static const Json null;
    const auto found = object.find(key);
    return found == object.end() ? null : *found;
}

template <class Keys>
Status refuse_parts(const Json& object, const Keys& keys, const std::string& path) {
    for (const char* key : keys)
        if (const Json& value = member(object, key);
            !value.is_null() && !value.empty() && value != "" && value != false)
            return invalid_argument("", path + key + " is not supported, only texts are");
    return {};
}

// A member that has two names: "role", which ShareGPT calls "from". Empty: it has neither.
Result<std::string> name_in_use(const Json& message, const char* name, const char* other, const std::string& path) {
    const bool has_name = !member(message, name).is_null();
    const bool has_other = !member(message, other).is_null();
    if (has_name && has_other)
        return invalid_argument("", path + name + " and " + other + " say the same: give one of them");
    return std::string(has_name ? name : has_other ? other : "");
}

Result<Role> read_role(const Json& message, const std::string& path, const std::string& name) {
    if (name.empty()) return invalid_argument("", path + "role is missing");
    const Json& role = member(message, name.c_str());
    if (name == "from") {
        for (const Speaker& speaker : kSpeakers)
            if (role == speaker.name) return speaker.role;
        return invalid_argument("", path + "from is none of " + speaker_names());
    }
    for (const Role known : kRoles)
        if (role == to_string(known)) return known;
    return invalid_argument("", path + "role is none of system, user, assistant and tool");
}

Result<std::string> read_content(const Json& message, const std::string& path) {
    ATOLL_TRY(std::string name, name_in_use(message, "content", "value", path));
    if (name.empty()) name = "content";
    const Json& content = member(message, name.c_str());
    if (content.is_string()) return content.get<std::string>();
    if (content.is_array())
        return invalid_argument("", path + name + " is a list of parts, which is not supported, only a string is");
    return invalid_argument("", path + name + (content.is_null() ? " is missing" : " is no string"));
}

Result<std::optional<bool>> read_train(const Json& message, Role role, const std::string& path) {
    const Json& train = member(message, "train");
    const Json& weight = member(message, "weight");
    if (!train.is_null() && !weight.is_null())
        return invalid_argument("", path + "train and weight say the same: give one of them");
    if (!train.is_null() && !train.is_boolean()) return invalid_argument("", path + "train is neither true nor false");
    if (!weight.is_null() && weight != 0 && weight != 1)
        return invalid_argument("", path + "weight is neither 0 nor 1; others are not supported");
    std::optional<bool> value;
    if (!train.is_null()) value = train.get<bool>();
    if (!weight.is_null()) value = weight == 1;
    if (value == true && role != Role::kAssistant)
        return invalid_argument("", path + (train.is_null() ? "weight" : "train") + " is set on a message of the " +
                                        to_string(role) + "; only the assistant's can count in the loss");
    return value;
}

Result<Message> read_message(const Json& message, const std::string& path) {
    if (!message.is_object()) return invalid_argument("", path + " is no JSON object");
    const std::string in = path + ".";
    ATOLL_RETURN_IF_ERROR(refuse_parts(message, kOtherMessageParts, in));
    ATOLL_TRY(const std::string name, name_in_use(message, "role", "from", in));
    ATOLL_TRY(const Role role, read_role(message, in, name));
    ATOLL_TRY(std::string content, read_content(message, in));
    ATOLL_TRY(const std::optional<bool> train, read_train(message, role, in));
    return Message{role, std::move(content), train, in + name};
}

// Appends the messages of the list `key`.
Status read_list(const Json& row, const char* key, Conversation& conversation) {
    const Json& messages = member(row, key);
    if (!messages.is_array()) return invalid_argument("", std::string(key) + " is no list");
    if (messages.empty()) return invalid_argument("", std::string(key) + " is empty");
    for (std::size_t i = 0; i < messages.size(); ++i) {
        const std::string path = std::string(key) + "[" + std::to_string(i) + "]";
        ATOLL_TRY(Message message, read_message(messages[i], path));
        if (message.role == Role::kSystem && !conversation.empty())
            return invalid_argument("", path + " is of the system; there may be one such message, the first");
        conversation.push_back(std::move(message));
    }
    return {};
}

bool has(const Json& row, const char* key) {
    return !member(row, key).is_null();
}

Error no_conversation(const Json& row) {
    if (row.contains("prompt") && row.contains("completion") && has(row, "prompt") != has(row, "completion"))
        return invalid_argument("", has(row, "prompt") ? "completion is null" : "prompt is null");
    std::string message = "the row has neither messages, conversations, nor prompt and completion";
    if (!member(row, "instruction").is_null() && !member(row, "output").is_null())
        message +=
            R"(; --template '{{instruction}}\n{{input}}\n{{#answer}}{{output}}{{/answer}}' takes rows like this)";
    return invalid_argument("", message);
}

// As TRL has it, what stands in the prompt is no answer.
Status read_prompt(const Json& row, Conversation& conversation) {
    const Json& prompt = member(row, "prompt");
    const Json& completion = member(row, "completion");
    if (prompt.is_string() && completion.is_string()) {
        conversation.push_back({Role::kUser, prompt.get<std::string>(), {}, "prompt"});
        conversation.push_back({Role::kAssistant, completion.get<std::string>(), {}, "completion"});
        return {};
    }
    if (!prompt.is_array() || !completion.is_array())
        return invalid_argument("", "prompt and completion are neither two strings nor two lists of messages");
    ATOLL_RETURN_IF_ERROR(read_list(row, "prompt", conversation));
    for (Message& message : conversation)
        if (message.role == Role::kAssistant && !message.train) message.train = false;
    return read_list(row, "completion", conversation);
}

// The system's text beside the conversation, as LLaMA-Factory and Anthropic have it.
Status read_system(const Json& row, Conversation& conversation) {
    const Json& system = member(row, "system");
    if (system.is_null() || system == "" || conversation[0].role == Role::kSystem) return {};
    if (!system.is_string()) return invalid_argument("", "system is no string");
    conversation.insert(conversation.begin(), {Role::kSystem, system.get<std::string>(), {}, "system"});
    return {};
}

Result<Conversation> read_conversation(const Json& row) {
    if (!row.is_object()) return invalid_argument("", "the row is no JSON object");
    ATOLL_RETURN_IF_ERROR(refuse_parts(row, kOtherRowParts, ""));
    Conversation conversation;
    const char* answers = "messages";
    if (has(row, "messages")) {
        ATOLL_RETURN_IF_ERROR(read_list(row, "messages", conversation));
        ATOLL_RETURN_IF_ERROR(read_system(row, conversation));
    } else if (has(row, "conversations")) {
        answers = "conversations";
        ATOLL_RETURN_IF_ERROR(read_list(row, "conversations", conversation));
        ATOLL_RETURN_IF_ERROR(read_system(row, conversation));
    } else if (has(row, "prompt") && has(row, "completion")) {
        answers = "completion";
        ATOLL_RETURN_IF_ERROR(read_prompt(row, conversation));
        ATOLL_RETURN_IF_ERROR(read_system(row, conversation));
    } else {
        return no_conversation(row);
    }
    const bool is_answered = std::any_of(conversation.begin(), conversation.end(), [&](const Message& message) {
        return message.role == Role::kAssistant && message.place.starts_with(answers);
    });
    if (!is_answered) return invalid_argument("", std::string(answers) + " has none of the assistant");
    return conversation;
}

}  // namespace

const char* to_string(Role role) {
    switch (role) {
        case Role::kSystem:
            return "system";
        case Role::kUser:
            return "user";
        case Role::kAssistant:
            return "assistant";
        case Role::kTool:
            return "tool";
    }
    return "user";
}

Result<Conversation> parse_conversation(const nlohmann::json& row, std::string_view where) {
    auto conversation = read_conversation(row);
    if (conversation.ok()) return conversation;
    return invalid_argument(std::string(where), std::string(where) + ": " + conversation.error().message);
}

}  // namespace atl::text
