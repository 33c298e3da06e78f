#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

// The template of a dataset whose rows are conversations is "chat:NAME" ("chat:chatml").
namespace atl::run_settings {

// `auto` (as the tokenizer tells) and those that atoll-trainer has (trainer/text/chat_formats.h).
inline constexpr std::array<std::string_view, 8> kChatTemplates = {"auto",   "chatml",  "qwen2.5", "llama3",
                                                                   "llama2", "mistral", "gemma",   "zephyr"};

// The name in a dataset's template; nothing: its rows are documents.
constexpr std::optional<std::string_view> chat_template_of(std::string_view dataset_template) {
    constexpr std::string_view kPrefix = "chat:";
    const bool names_field = dataset_template.find("{{") != std::string_view::npos;
    if (!dataset_template.starts_with(kPrefix) || names_field) return std::nullopt;
    return dataset_template.substr(kPrefix.size());
}

constexpr bool is_chat_template(std::string_view name) {
    return std::find(kChatTemplates.begin(), kChatTemplates.end(), name) != kChatTemplates.end();
}

}  // namespace atl::run_settings
