#include "shared/site/hand_in.h"

#include <nlohmann/json.hpp>

#include "shared/base/text.h"
#include "shared/json/json.h"
#include "shared/json/printable.h"
#include "shared/site/exit_status.h"

namespace atl::site {
namespace {

constexpr std::size_t kDetailBytesMax = 800;
constexpr std::size_t kFieldBytesMax = 200;

}  // namespace

HandInFailure hand_in_failure(const Error& error) {
    return {error, is_refusal(error)};
}

nlohmann::json to_json(const HandInFailure& failure) {
    return {{"refused", failure.is_refused},
            {"error",
             {{"code", to_string(failure.error.code)},
              {"detail", shorten(json::printable(failure.error.message), kDetailBytesMax)},
              {"field", shorten(json::printable(failure.error.field), kFieldBytesMax)}}}};
}

Result<HandInFailure> parse_hand_in_failure(const nlohmann::json& value) {
    json::ObjectReader reader(value);
    json::ObjectReader error(reader.required_object("error"));
    const auto code = parse_error_code(error.required_string("code"));
    HandInFailure failure;
    failure.error = {code.value_or(ErrorCode::kInternal), error.required_string("detail"),
                     error.string_or("field", "")};
    failure.is_refused = reader.boolean_or("refused", false);
    for (json::ObjectReader* read : {&reader, &error}) read->allow_unknown();
    ATOLL_RETURN_IF_ERROR(reader.finish());
    ATOLL_RETURN_IF_ERROR(error.finish());
    if (!code) return invalid_argument("error.code", "is none of ours");
    return failure;
}

int push_exit_status(const Error& error) {
    if (is_transient(error.code)) return kExitTryLater;
    return error.code == ErrorCode::kInvalidArgument ? kExitUsage : 1;
}

}  // namespace atl::site
