#include "shared/http/server/refused_tokens.h"

namespace atl::http {

void RefusedTokens::begin_second() {
    const std::int64_t now = now_s_();
    if (now == second_) return;
    second_ = now;
    refused_.clear();
}

bool RefusedTokens::are_too_many(const std::string& address) {
    const std::lock_guard lock(mutex_);
    begin_second();
    const auto found = refused_.find(address);
    return found != refused_.end() && found->second >= max_;
}

void RefusedTokens::count(const std::string& address) {
    const std::lock_guard lock(mutex_);
    begin_second();
    ++refused_[address];
}

}  // namespace atl::http
