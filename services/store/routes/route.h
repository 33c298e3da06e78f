#pragma once

#include <functional>
#include <utility>

#include "shared/http/server/server.h"

namespace atl::store {

// Makes a route's handler of a function that may fail: an Error becomes problem+json.
inline http::Handler answer_with(std::function<Result<http::Response>(const http::Request&)> work) {
    return [work = std::move(work)](const http::Request& request) {
        auto response = work(request);
        return response.ok() ? std::move(response).value()
                             : http::Response::problem(response.error(), request.request_id);
    };
}

}  // namespace atl::store
