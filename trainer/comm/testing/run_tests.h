#pragma once

#include <gtest/gtest.h>

#include "trainer/comm/launch.h"

namespace atl::comm {

// The main() of a test program whose tests all ranks run, with `world` for them: it fails on every rank when one did.
inline int run_tests(int argc, char** argv, Comm*& world) {
    testing::InitGoogleTest(&argc, argv);
    auto owner = open_world();
    if (!owner.ok()) return 1;
    world = owner->get();
    double failed = RUN_ALL_TESTS();
    world->all_reduce(std::span(&failed, 1), Reduction::kMax);
    return failed == 0 ? 0 : 1;
}

}  // namespace atl::comm
