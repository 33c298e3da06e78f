#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shared/pg/pg.h"
#include "tests/integration/test_stack.h"

namespace atl::pg {

// Base of tests that want a database of their own.
class DatabaseTest : public StackTest {
  protected:
    void SetUp() override {
        StackTest::SetUp();
        if (IsSkipped()) return;
        conninfo_ = stack().create_database();
        connection_.emplace(connect(conninfo_).value());
    }
    Rows query(const std::string& sql, const std::vector<Param>& params = {}) {
        return connection_->query(sql, params).value();
    }

    std::string conninfo_;
    std::optional<Connection> connection_;
};

}  // namespace atl::pg
