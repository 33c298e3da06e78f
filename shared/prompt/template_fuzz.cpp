// libFuzzer target: any bytes as a prompt template.
//   CC=clang-19 CXX=clang++-19 cmake -B build/fuzz -G Ninja -DATOLL_FUZZ=ON -DATOLL_SERVICES=OFF -DATOLL_TESTS=OFF
//   ninja -C build/fuzz template_fuzz && build/fuzz/bin/template_fuzz -max_total_time=60 CORPUS
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "shared/prompt/template.h"

// A row of all its fields makes a document whose answers lie within it, one behind the other.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace atl::prompt;
    const auto made = Template::parse({reinterpret_cast<const char*>(data), size});
    if (!made.ok()) return made.error().message.empty() ? std::abort(), 0 : 0;
    nlohmann::json row = nlohmann::json::object();
    for (const std::string& field : made->fields()) row[field] = "a text with {{braces}}";
    const auto document = made->render(row, "row");
    if (!document.ok()) std::abort();
    std::size_t at = 0;
    for (const auto& answer : document->answers) {
        if (answer.begin < at || answer.end < answer.begin || answer.end > document->text.size()) std::abort();
        at = answer.end;
    }
    if (made->has_answer() != !document->answers.empty()) std::abort();
    return 0;
}
