#pragma once

#include <exception>
#include <type_traits>
#include <utility>

#include "shared/base/result.h"

namespace atl {

// What `work` returns, a Result; what it throws is its kInternal error. For the bodies of threads, as an exception that
// leaves one ends the whole process.
template <class Work>
std::invoke_result_t<Work> contained(Work&& work) {
    try {
        return std::forward<Work>(work)();
    } catch (const std::exception& exception) {
        return internal_error(exception.what());
    }
}

}  // namespace atl
