#include "trainer/train/warn.h"

#include <cstdio>

namespace atl::train {
namespace {

std::string& prefix() {
    static std::string text = "atoll-trainer: ";
    return text;
}

}  // namespace

void name_command(const std::string& name) {
    prefix() = "atoll-trainer " + name + ": ";
}

void warn(const std::string& message) {
    std::fputs((prefix() + message + "\n").c_str(), stderr);
}

}  // namespace atl::train
