#pragma once

#include <gtest/gtest.h>

// Whether this build has a sanitizer that takes several times the memory of the program.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ATOLL_SANITIZED 1
#else
#define ATOLL_SANITIZED 0
#endif

// The first line of a test, or of a SetUp(), that measures or limits a process's memory.
#define ATOLL_SKIP_IF_SANITIZED() \
    if (ATOLL_SANITIZED) GTEST_SKIP() << "a sanitizer's memory is not the program's"
