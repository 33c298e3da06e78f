// libFuzzer target: any bytes as the JSON of a row with a conversation. Seeds: the rows of conversation_test.cpp.
//   CC=clang-19 CXX=clang++-19 cmake -B build/fuzz -G Ninja -DATOLL_FUZZ=ON -DATOLL_SERVICES=OFF -DATOLL_TESTS=OFF
//   ninja -C build/fuzz conversation_fuzz && build/fuzz/bin/conversation_fuzz -max_total_time=60 CORPUS SEEDS
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "shared/json/json.h"
#include "trainer/text/chat_formats.h"
#include "trainer/text/chat_template.h"

// A conversation has an answer and at most one message of the system, the first; each is written or refused by every
// named template, with answers within the text.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace atl::text;
    const auto row = atl::json::parse({reinterpret_cast<const char*>(data), size});
    if (!row.ok()) return 0;
    const auto conversation = parse_conversation(*row, "f:1");
    if (!conversation.ok()) return 0;
    const auto is = [](Role role) { return [role](const Message& message) { return message.role == role; }; };
    if (std::ranges::none_of(*conversation, is(Role::kAssistant))) std::abort();
    if (std::any_of(conversation->begin() + 1, conversation->end(), is(Role::kSystem))) std::abort();
    for (const ChatFormat& format : chat_formats()) {
        const auto chat = ChatTemplate::parse(format.json, {"<s>", "</s>"});
        if (!chat.ok()) std::abort();
        const auto document = chat->render(*conversation, (size & 1) != 0, "f:1");
        if (!document.ok()) continue;
        for (const auto& [begin, end] : document->answers)
            if (begin > end || end > document->text.size()) std::abort();
    }
    return 0;
}
