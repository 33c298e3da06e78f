#include "services/store/domain/version_reference.h"

#include <string_view>
#include <utility>

#include "shared/service/names.h"

namespace atl::store {
namespace {

constexpr std::string_view kRound = "round";
constexpr std::size_t kRoundDigitsMax = 9;
constexpr std::size_t kDigestCharacters = 64;

}  // namespace

VersionReference parse_version_reference(const std::string& text) {
    if (text == "newest") return NewestVersion{};
    const auto all_of = [](std::string_view part, const char* characters) {
        return !part.empty() && part.find_first_not_of(characters) == std::string_view::npos;
    };
    if (text.starts_with(kRound)) {
        const std::string digits = text.substr(kRound.size());
        if (!all_of(digits, "0123456789") || digits.size() > kRoundDigitsMax) return UnknownVersion{};
        return RoundVersion{std::stoll(digits)};
    }
    if (!all_of(text, "0123456789abcdefABCDEF") || text.size() > kDigestCharacters) return UnknownVersion{};
    if (text.size() < kDigestBeginningMin) return ShortBeginning{};
    std::string digest = text;
    for (char& c : digest)
        if (c >= 'A' && c <= 'F') c = static_cast<char>(c - 'A' + 'a');
    return DigestBeginning{std::move(digest)};
}

Status check_tag(const std::string& tag) {
    ATOLL_RETURN_IF_ERROR(service::check_name(tag, "tag"));
    const VersionReference meant = parse_version_reference(tag);
    const auto refused = [&](const std::string& what) {
        return invalid_argument("tag", tag + " already names " + what + "; choose another tag");
    };
    if (std::holds_alternative<NewestVersion>(meant)) return refused("the newest version");
    if (std::holds_alternative<RoundVersion>(meant)) return refused("the model of that round");
    // A tag goes before a digest: one of 8 hexadecimal digits could stand for another version than it says.
    if (std::holds_alternative<DigestBeginning>(meant)) return refused("versions whose digest begins so");
    return {};
}

}  // namespace atl::store
