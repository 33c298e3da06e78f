#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

namespace atl::http {

// Internal to this module. How many tokens of each address were refused in this second: to look at a signature costs
// more than all else that a stranger can ask for. Thread-safe.
class RefusedTokens {
  public:
    // `max` a second, of an address; of IPv6, of all that share its first 64 bits.
    RefusedTokens(int max, std::int64_t (*now_s)()) : max_(max), now_s_(now_s) {}

    bool are_too_many(const std::string& address);
    void count(const std::string& address);

  private:
    void begin_second();

    int max_;
    std::int64_t (*now_s_)();
    std::mutex mutex_;
    std::int64_t second_ = 0;
    std::unordered_map<std::string, int> refused_;
};

}  // namespace atl::http
