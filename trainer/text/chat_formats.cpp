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
    // Each was compared with its format by transformers 5.23.0 on a dozen conversations.
    static const std::vector<ChatFormat> formats = {
        {"chatml",
         kChatMl,
         {"fcf7a096fe99a48fd9ad2b250bf9237e96e8f48bffec1c7ea4d3f225176cd40e",    // teknium/OpenHermes-2.5-Mistral-7B
          "153280e3ff55d19da1398bdb3914ee2a51b80429bfaedde11d7d216c39db80f3",    // trl's setup_chat_format
          "eae48a3307931acb10a6fce475a36b711709672ea79ee1a9bc52f083d8b0a2af"}},  // Qwen/Qwen3-Coder
        {"qwen2.5",
         kQwen25,
         {"55b2f4a26ac9ee719330a61a0c39d9e538b0e9322212f048326318cff4f8674a"}},  // Qwen/Qwen2.5-7B-Instruct
        {"llama3",
         kLlama3,
         {"4f46ecd43418f216df8c26936c60e5d04bcc81db47db5d86fbe889f64212dd4c"}},  // meta-llama/Meta-Llama-3-8B-Instruct
        {"llama2",
         kLlama2,
         {"e8d5b5a546d3f19df16a5320c614fab05bdc4edd50e850f1afd947b503ea41cf"}},  // meta-llama/Llama-2-7b-chat-hf
        {"mistral",
         kMistral,
         {"bbc58aad99454df60138be9530c9601a0adfe3d8932cda975e1f10b2410ddc51"}},  // mistralai/Mistral-7B-Instruct-v0.2
        {"gemma",
         kGemma,
         {"8d9e3a3c114fb2053ec500184677af4f7e5f8ec2582443cd535834e68b3ade29"}},  // google/gemma-3-4b-it
        {"zephyr",
         kZephyr,
         {"4f39e3a4b9e3d369b42fd00d93a78f171914bb4e58ec84fc420433d7a153288a"}},  // HuggingFaceH4/zephyr-7b-beta
    };
    return formats;
}

std::string chat_format_names() {
    std::string names;
    for (const ChatFormat& format : chat_formats()) names += (names.empty() ? "" : ", ") + std::string(format.name);
    return names;
}

}  // namespace atl::text
