#pragma once

#include <string>

namespace atl::reference {

// docs/reference/NAME is as it is made here; with ATOLL_WRITE_DOCS=1 it is written first.
void expect_page(const std::string& name, const std::string& made);

}  // namespace atl::reference
