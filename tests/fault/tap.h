#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

#include "shared/base/file.h"

namespace atl::fault {

// Stands between clients and a server of this machine, passes everything on as it comes and counts the bytes of both
// directions. A connection ends on one side when it ends on the other.
class Tap {
  public:
    // `server`: "http://127.0.0.1:PORT".
    explicit Tap(const std::string& server);
    ~Tap();

    std::string address() const;
    std::uint64_t bytes() const { return bytes_; }

  private:
    void run(const std::stop_token& stop);

    std::uint16_t server_port_ = 0;
    std::uint16_t port_ = 0;
    UniqueFd listener_;
    std::atomic<std::uint64_t> bytes_ = 0;
    std::jthread thread_;
};

}  // namespace atl::fault
