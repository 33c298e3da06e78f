#pragma once

#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <memory>

#include "tests/e2e/small_federation.h"

namespace atl::e2e {

// Base of tests that share one federation, which takes longer to start than they to run.
class FederationTest : public testing::Test {
  protected:
    static void SetUpTestSuite() {
        // What `atoll up` leaves behind becomes this process' child, so that kill_component() can reap it: not every
        // container has an init that does, and PostgreSQL starts beside no process id of its own that is still taken.
        ::prctl(PR_SET_CHILD_SUBREAPER, 1);
        federation_ = std::make_unique<SmallFederation>();
        const Status status = federation_->set_up();
        ASSERT_TRUE(status.ok()) << status.error().message;
    }
    static void TearDownTestSuite() { federation_.reset(); }

    inline static std::unique_ptr<SmallFederation> federation_;
};

}  // namespace atl::e2e
