#include "trainer/text/chat_formats.h"

namespace atl::text {
namespace {

// OpenAI's ChatML, as Hugging Face's `setup_chat_format` and most models with <|im_start|> have it.
constexpr std::string_view kChatMl = R"json({
"special_tokens": ["<|im_start|>", "<|im_end|>"],
"system": "<|im_start|>system\n{{content}}<|im_end|>\n",
"user": "<|im_start|>user\n{{content}}<|im_end|>\n",
"assistant": "<|im_start|>assistant\n{{#answer}}{{content}}<|im_end|>{{/answer}}\n"})json";

// Qwen2.5-Instruct without tools: ChatML with a text of the system by default.
constexpr std::string_view kQwen25 = R"json({
"special_tokens": ["<|im_start|>", "<|im_end|>"],
"system": "<|im_start|>system\n{{content}}<|im_end|>\n",
"user": "<|im_start|>user\n{{content}}<|im_end|>\n",
"assistant": "<|im_start|>assistant\n{{#answer}}{{content}}<|im_end|>{{/answer}}\n",
"default_system": "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."})json";

// Meta-Llama-3-Instruct (3.1 and later put the date into the system's text).
constexpr std::string_view kLlama3 = R"json({
"special_tokens": ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
"begin": "{{bos}}",
"system": "<|start_header_id|>system<|end_header_id|>\n\n{{content}}<|eot_id|>",
"user": "<|start_header_id|>user<|end_header_id|>\n\n{{content}}<|eot_id|>",
"assistant": "<|start_header_id|>assistant<|end_header_id|>\n\n{{#answer}}{{content}}<|eot_id|>{{/answer}}",
"trim": true})json";

// Llama-2-chat.
constexpr std::string_view kLlama2 = R"json({
"user": "{{bos}}[INST] {{content}} [/INST]",
"user_after_system": "{{bos}}[INST] <<SYS>>\n{{system}}\n<</SYS>>\n\n{{content}} [/INST]",
"assistant": "{{#answer}} {{content}} {{eos}}{{/answer}}",
"trim": true,
"trim_with_system": true,
"alternate": true})json";

// Mistral-7B-Instruct-v0.2, where [INST] is text (it is a token in v0.3 and later).
constexpr std::string_view kMistral = R"json({
"begin": "{{bos}}",
"user": " [INST] {{content}} [/INST]",
"user_after_system": " [INST] {{system}}\n\n{{content}} [/INST]",
"assistant": "{{#answer}} {{content}}{{eos}}{{/answer}}",
"alternate": true})json";

// Gemma 3 for texts (Gemma and Gemma 2 are the same and take no message of the system).
constexpr std::string_view kGemma = R"json({
"special_tokens": ["<start_of_turn>", "<end_of_turn>"],
"begin": "{{bos}}",
"user": "<start_of_turn>user\n{{content}}<end_of_turn>\n",
"user_after_system": "<start_of_turn>user\n{{system}}\n\n{{content}}<end_of_turn>\n",
"assistant": "<start_of_turn>model\n{{#answer}}{{content}}<end_of_turn>{{/answer}}\n",
"trim": true,
"alternate": true})json";

// Zephyr and TinyLlama-Chat, which have no tokens for it but the end token.
constexpr std::string_view kZephyr = R"json({
"system": "<|system|>\n{{content}}{{eos}}\n",
"user": "<|user|>\n{{content}}{{eos}}\n",
"assistant": "<|assistant|>\n{{#answer}}{{content}}{{eos}}{{/answer}}\n"})json";

}  // namespace

std::span<const ChatFormat> chat_formats() {
    static const std::vector<ChatFormat> formats = {
        {"chatml", kChatMl, {"<|im_start|>", "<|im_end|>"}, {"You are", "<think>"}},
        {"qwen2.5",
         kQwen25,
         {"<|im_start|>", "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."},
         {}},
        {"llama3",
         kLlama3,
         {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
         {"Cutting Knowledge Date", "<|eom_id|>"}},
        {"llama2", kLlama2, {"[INST]", "<<SYS>>"}, {}},
        {"mistral", kMistral, {" [INST] ", " [/INST]"}, {"<<SYS>>"}},
        {"gemma", kGemma, {"<start_of_turn>", "<end_of_turn>"}, {}},
        {"zephyr", kZephyr, {"<|user|>", "<|assistant|>", "eos_token"}, {"<|end|>"}},
    };
    return formats;
}

std::string chat_format_names() {
    std::string names;
    for (const ChatFormat& format : chat_formats()) names += (names.empty() ? "" : ", ") + std::string(format.name);
    return names;
}

}  // namespace atl::text
