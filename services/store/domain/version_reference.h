#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>

#include "shared/base/result.h"

// What names a version of a model beside its whole digest and its tags.
namespace atl::store {

inline constexpr std::size_t kDigestBeginningMin = 8;  // characters

struct NewestVersion {};  // "newest": the last one that a job can begin with, a base or a global model
struct RoundVersion {     // "round3": the global model of that round
    std::int64_t round;
};
struct DigestBeginning {  // "3f6c0a11", or "3F6C0A11", whose text is in small letters too; up to the whole of it
    std::string text;
};
struct ShortBeginning {};  // hexadecimal, but fewer than kDigestBeginningMin characters
struct UnknownVersion {};

using VersionReference = std::variant<UnknownVersion, NewestVersion, RoundVersion, DigestBeginning, ShortBeginning>;
VersionReference parse_version_reference(const std::string& text);

// kInvalidArgument: the text cannot be a tag, or names a version already.
Status check_tag(const std::string& tag);

}  // namespace atl::store
