#include "tests/reference/page.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "shared/base/file.h"

namespace atl::reference {

void expect_page(const std::string& name, const std::string& made) {
    const std::filesystem::path file = std::filesystem::path(ATOLL_DOCS) / "reference" / name;
    if (std::getenv("ATOLL_WRITE_DOCS") != nullptr) {
        ASSERT_TRUE(write_file_atomic(file, made).ok());
    }
    const auto page = read_file(file);
    ASSERT_TRUE(page.ok()) << page.error().message;
    EXPECT_TRUE(*page == made) << file << " is not as the tables; ATOLL_WRITE_DOCS=1 writes it";
}

}  // namespace atl::reference
