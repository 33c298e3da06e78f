#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace atl::text {

// A chat template that has a name.
struct ChatFormat {
    std::string_view name;
    std::string_view json;  // as a ChatTemplate has it
    // It is recognised where a tokenizer's own chat template (Jinja) holds each of `signs` and none of `never`; where a
    // tokenizer has none, its special tokens are looked at in the same way.
    std::vector<std::string_view> signs;
    std::vector<std::string_view> never;
};

// chatml, qwen2.5, llama3, llama2, mistral, gemma, zephyr.
std::span<const ChatFormat> chat_formats();

// "chatml, qwen2.5, …"
std::string chat_format_names();

}  // namespace atl::text
