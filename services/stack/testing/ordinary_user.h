#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

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
};

}  // namespace atl::stack
