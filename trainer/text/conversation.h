#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"

namespace atl::text {

enum class Role { kSystem, kUser, kAssistant, kTool };
const char* to_string(Role role);

struct Message {
    Role role = Role::kUser;
    std::string content;
    // `train`, or `weight` 0 or 1 (OpenAI's name): whether the loss counts it. Not given: as --loss-on says.
    std::optional<bool> train = {};
    std::string place = {};  // of its role in the row, for error messages: "messages[3].role"
};

// At least one message of the assistant; at most one of the system, the first.
using Conversation = std::vector<Message>;

// The conversation of a row, which is the first of these that it has (other members of row and messages are ignored):
//
//   {"messages": [{"role": …, "content": …}, …]}      as OpenAI and Hugging Face have it
//   {"conversations": [{"from": …, "value": …}, …]}   as ShareGPT has it; `from` may be human or gpt, among others
//   {"prompt": …, "completion": …}                    two strings, of the user and of the assistant; or two lists of
//                                                     messages, of which only the completion's count in the loss
//
// Either pair of keys is read in any of the lists. Beside any of these, a string `system` is the first message
// where no other is the system's. kInvalidArgument names the member that is wrong, without quoting the texts,
// or what is not supported (tools, calls of functions, reasoning, contents in parts); `where` ("file:line") begins the
// message.
Result<Conversation> parse_conversation(const nlohmann::json& row, std::string_view where);

}  // namespace atl::text
