#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "services/stack/stack_user.h"
#include "shared/base/result.h"

namespace atl::stack {

// Base of tests that start what `atoll up` starts, which nothing starts as root: where root runs them, the program is
// the user nobody from then on.
class OrdinaryUserTest : public ::testing::Test {
  protected:
    OrdinaryUserTest() {
        if (::geteuid() != 0) return;
        const auto nobody = user_of_stack("/", "nobody");
        const bool is_nobody = nobody.ok() && become(*nobody).ok();
        check(is_nobody, "root cannot become nobody");
    }
    void SetUp() override {
        std::error_code error;  // the link itself leads to the program whatever directories lie on the way
        const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
        if (error || ::access(program.c_str(), X_OK) != 0)
            GTEST_SKIP() << "nobody cannot enter the directory of the build, as in a home of mode 0700";
    }
};

}  // namespace atl::stack
