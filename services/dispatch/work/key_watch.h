#pragma once

#include <functional>
#include <string>
#include <thread>

#include "shared/auth/auth.h"

namespace atl::dispatch {

// Keeps an issuer, and with it its copies, up to date with the file of its private key, in a thread of its own: a key
// that was replaced signs within some seconds. One that cannot be read stays out, and the log says so.
class KeyWatch {
  public:
    // `on_new_key` may be called by that thread, after the issuer has it.
    KeyWatch(auth::Issuer issuer, std::string file, std::function<void()> on_new_key);

  private:
    Status renew();

    auth::Issuer issuer_;
    std::string file_;
    std::function<void()> on_new_key_;
    std::string key_;      // of the file, as last read
    std::jthread thread_;  // last: stopped first
};

}  // namespace atl::dispatch
