#include "shared/json/printable.h"

#include "shared/json/json.h"

namespace atl::json {

std::string printable(std::string_view bytes) {
    // nlohmann's replacing dump is a complete UTF-8 repair; what it escapes comes back by parsing.
    const std::string repaired = Json(std::string(bytes)).dump(-1, ' ', false, Json::error_handler_t::replace);
    std::string text = Json::parse(repaired).get<std::string>();
    std::erase_if(text, [](unsigned char c) { return (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f; });
    return text;
}

bool is_utf8(std::string_view bytes) try {
    static_cast<void>(Json(std::string(bytes)).dump());  // of nlohmann's two ways to dump the one that throws
    return true;
} catch (const Json::type_error&) {
    return false;
}

}  // namespace atl::json
