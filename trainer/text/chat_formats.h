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
    // Of the Jinja templates that write every conversation in just this way: the sha256 of the whole text, without a
    // newline at its end. A template that differs by a letter may differ in what it writes.
    std::vector<std::string_view> originals;
};

// chatml, qwen2.5, llama3, llama2, mistral, gemma, zephyr.
std::span<const ChatFormat> chat_formats();

// "chatml, qwen2.5, …"
std::string chat_format_names();

}  // namespace atl::text
