#include "shared/base/check.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace atl {
namespace {

std::function<void()>& abort_handler() {
    static std::function<void()> handler;
    return handler;
}

}  // namespace

void check(bool condition, std::string_view why, std::source_location where) {
    if (condition) [[likely]]
        return;
    std::fprintf(stderr, "check failed: %.*s (%s:%u, %s)\n", static_cast<int>(why.size()), why.data(),
                 where.file_name(), where.line(), where.function_name());
    if (abort_handler()) abort_handler()();
    std::abort();
}

void set_abort_handler(std::function<void()> handler) {
    abort_handler() = std::move(handler);
}

}  // namespace atl
