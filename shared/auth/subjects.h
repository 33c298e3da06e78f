#pragma once

#include <string_view>

#include "shared/auth/auth.h"

namespace atl::auth {

// The subjects of the services' own tokens, which have the role of an operator. Nobody else is given one of them.
inline constexpr std::string_view kDispatch = "dispatch";
inline constexpr std::string_view kAggregation = "aggregation";

inline bool is_reserved_subject(std::string_view subject) {
    return subject == kDispatch || subject == kAggregation;
}
inline bool is_service(const Principal& principal, std::string_view subject) {
    return principal.role == Role::kOperator && principal.subject == subject;
}

}  // namespace atl::auth
