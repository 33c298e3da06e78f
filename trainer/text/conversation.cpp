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

Result<Role> read_role(const Json& message, const std::string& path) {
    const Json& role = member(message, "role");
    if (role.is_null()) return invalid_argument("", path + "role is missing");
    for (const Role known : kRoles)
        if (role == to_string(known)) return known;
    return invalid_argument("", path + "role is none of system, user, assistant and tool");
}

Result<std::string> read_content(const Json& message, const std::string& path) {
    const Json& content = member(message, "content");
    if (content.is_string()) return content.get<std::string>();
    if (content.is_array())
        return invalid_argument("", path + "content is a list of parts, which is not supported, only a string is");
    return invalid_argument("", path + "content " + (content.is_null() ? "is missing" : "is no string"));
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
    ATOLL_TRY(const Role role, read_role(message, in));
    ATOLL_TRY(std::string content, read_content(message, in));
    ATOLL_TRY(const std::optional<bool> train, read_train(message, role, in));
    return Message{role, std::move(content), train};
}

Result<Conversation> read_conversation(const Json& row) {
    if (!row.is_object()) return invalid_argument("", "the row is no JSON object");
    ATOLL_RETURN_IF_ERROR(refuse_parts(row, kOtherRowParts, ""));
    const Json& messages = member(row, "messages");
    if (!messages.is_array() || messages.empty())
        return invalid_argument("", messages.is_null()    ? "the row has no field \"messages\""
                                    : messages.is_array() ? "messages is empty"
                                                          : "messages is no list");
    Conversation conversation;
    for (std::size_t i = 0; i < messages.size(); ++i) {
        const std::string path = "messages[" + std::to_string(i) + "]";
        ATOLL_TRY(Message message, read_message(messages[i], path));
        if (message.role == Role::kSystem && i > 0)
            return invalid_argument("", path + " is of the system; there may be one such message, the first");
        conversation.push_back(std::move(message));
    }
    if (std::none_of(conversation.begin(), conversation.end(),
                     [](const Message& message) { return message.role == Role::kAssistant; }))
        return invalid_argument("", "messages has none of the assistant");
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
