#pragma once

#include <string>
#include <thread>

#include "shared/auth/auth.h"

namespace atl::dispatch {

// Keeps an issuer, and with it its copies, up to date with the file of its private key, in a thread of its own: a key
// that was replaced signs within some seconds. One that cannot be read stays out, and the log says so.
class KeyWatch {
  public:
    KeyWatch(auth::Issuer issuer, std::string file);

  private:
    Status renew();

    auth::Issuer issuer_;
    std::string file_;
    std::string key_;      // of the file, as last read
    std::jthread thread_;  // last: stopped first
};

}  // namespace atl::dispatch
