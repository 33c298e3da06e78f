#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace atl {

// The Postgres and Kafka that ctest's fixture started, as its stack.json says ($ATOLL_TEST_STACK).
class TestStack {
  public:
    // Empty when the variable is not set; a set one that cannot be used ends the test program.
    static std::optional<TestStack> from_environment();
    TestStack(TestStack&&) noexcept = default;
    TestStack(const TestStack&) = delete;
    ~TestStack();  // drops the databases

    std::string create_database();                       // a new, empty one; its conninfo
    const std::string& kafka() const { return kafka_; }  // "FILE@host:port"
    // A name nobody else uses, "x_01h…": for topics, consumer groups and schemas.
    std::string unique(const std::string& prefix) const;

  private:
    TestStack(std::string postgres, std::string kafka);
    std::string postgres_;
    std::string kafka_;
    std::vector<std::string> databases_;
};

// Base of tests that need the stack: they are skipped when run by hand without it.
class StackTest : public testing::Test {
  protected:
    void SetUp() override {
        if (!stack_) GTEST_SKIP() << "ATOLL_TEST_STACK is not set; ctest sets it";
    }
    TestStack& stack() { return *stack_; }

  private:
    std::optional<TestStack> stack_ = TestStack::from_environment();
};

// Polls until the condition holds; false when it did not within some minutes.
bool eventually(const std::function<bool()>& condition);

// A TCP port of loopback on which nothing listens.
std::uint16_t free_port();

}  // namespace atl
