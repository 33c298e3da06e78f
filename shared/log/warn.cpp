#include "shared/log/warn.h"

#include <cstdio>

#include "shared/base/text.h"
#include "shared/json/printable.h"

namespace atl::log {
namespace {

std::string& prefix() {
    static std::string text;
    return text;
}

}  // namespace

void name_command(const std::string& name) {
    prefix() = name + ": ";
}

void warn(const std::string& message) {
    // Further lines are indented: what somebody else wrote looks like no warning of its own.
    std::fputs(json::printable(prefix() + replace_all(message, "\n", "\n    ") + "\n").c_str(), stderr);
}

}  // namespace atl::log
