#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"
#include "shared/prompt/template.h"
#include "trainer/text/conversation.h"

namespace atl::text {

// How a conversation is written for a model: a text around the messages of each role, as data. Hugging Face's chat
// templates are Jinja programs; those that only do this are written as a JSON object (all but user and assistant may be
// left out):
//
//   {"special_tokens": ["<|im_start|>", "<|im_end|>"],   tokens of the tokenizer in the texts below
//    "begin": "{{bos}}",                                 before the first message
//    "system": "<|im_start|>system\n{{content}}<|im_end|>\n",
//    "user": "<|im_start|>user\n{{content}}<|im_end|>\n",
//    "assistant": "<|im_start|>assistant\n{{#answer}}{{content}}<|im_end|>{{/answer}}\n",
//    "tool": …,
//    "user_after_system": "… {{system}} … {{content}} …",   in the place of "system": one text for it and the user
//    "default_system": "…",                                 for conversations without a message of the system
//    "trim": true,                contents lose their white space before and behind, but not {{system}}
//    "trim_with_system": true,    in user_after_system it is lost behind alone, as the content is part of one text with
//                                 the system's, which ends before the white space that only a content kept from its end
//    "alternate": true}           messages must alternate, the user's first
//
// {{bos}} and {{eos}} are the tokenizer's beginning and end token. What stands in {{#answer}}…{{/answer}} counts in the
// loss where the message does. Immutable.
class ChatTemplate {
  public:
    // The texts of the tokenizer's tokens; empty: it has none.
    struct Ends {
        std::string bos;
        std::string eos;
    };
    // kInvalidArgument names the member that is wrong.
    static Result<ChatTemplate> parse(std::string_view json, const Ends& ends);

    // The text of a conversation, with its special tokens; a text in a message is never one. Answers: of the messages
    // whose `train` says so, and of those without it; with `last_only` of these only the assistant's last. `where`
    // begins the message of an error: a role that the template has no text for, roles that do not alternate.
    Result<prompt::Document> render(const Conversation& conversation, bool last_only, std::string_view where) const;

    // Those that its texts hold.
    const std::vector<std::string>& special_tokens() const { return special_tokens_; }
    // Whether one of its texts holds this as text.
    bool holds_text(std::string_view text) const;

  private:
    enum class Kind { kText, kSpecial, kContent, kSystem, kAnswerBegin, kAnswerEnd };
    struct Piece {
        Kind kind = Kind::kText;
        std::string text;
    };
    using Pieces = std::vector<Piece>;
    struct Compiler;
    struct Values;
    void append_content(const Values& values, prompt::Document& document) const;
    void append(const Pieces& pieces, const Values& values, prompt::Document& document) const;
    Status check_order(const Conversation& conversation, std::size_t first, std::string_view where) const;

    std::vector<std::string> special_tokens_;
    Pieces begin_, system_, user_, assistant_, tool_, user_after_system_;  // without pieces: none
    std::string default_system_;
    bool trim_ = false;
    bool trim_with_system_ = false;
    bool alternate_ = false;
};

}  // namespace atl::text
