#include "shared/log/warn.h"

#include <cstdio>

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
    std::fputs(json::printable(prefix() + message + "\n").c_str(), stderr);
}

}  // namespace atl::log
