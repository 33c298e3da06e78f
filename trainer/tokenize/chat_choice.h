#pragma once

#include <filesystem>
#include <string>

#include "shared/base/result.h"
#include "trainer/text/chat_template.h"
#include "trainer/tokenizer/tokenizer.h"

namespace atl::tokenize {

// The chat template of a run.
struct ChatChoice {
    std::string name;  // of a named one; else the file's
    std::string json;  // its description
    text::ChatTemplate chat_template;
};

// Whether `wanted` below names a file: it holds a "/" or ends with ".json".
bool is_chat_template_file(const std::string& wanted);

// Finds the one that `wanted` says: "auto" (the one whose original the tokenizer's own chat template is, to the
// letter), a name (trainer/text/chat_formats.h) or a JSON file. kInvalidArgument: no name of one, none known to be the
// tokenizer's own, a special token that the tokenizer lacks or that takes the white space beside it with it.
Result<ChatChoice> choose_chat_template(const std::string& wanted, const std::filesystem::path& tokenizer_directory,
                                        const tokenizer::Tokenizer& tokenizer);

}  // namespace atl::tokenize
