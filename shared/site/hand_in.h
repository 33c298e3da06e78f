#pragma once

#include <nlohmann/json_fwd.hpp>

#include "shared/base/result.h"

namespace atl::site {

// Why an update was not handed in, as `atoll push` and `atoll seal` print it for the coordinator:
// {"refused": …, "error": {"code": …, "detail": …, "field": …}}, at most some 1,000 bytes.
struct HandInFailure {
    Error error;
    bool is_refused = false;  // the update has been looked at and will not be taken, now or later
};
HandInFailure hand_in_failure(const Error& error);
nlohmann::json to_json(const HandInFailure& failure);
// kInvalidArgument: it is none.
Result<HandInFailure> parse_hand_in_failure(const nlohmann::json& value);

// What `atoll push` exits with. What may go well later is told apart from what was refused; kTooLarge says that this
// attempt has uploaded too much, and what is not there may be made again: neither is for ever.
int push_exit_status(const Error& error);

}  // namespace atl::site
