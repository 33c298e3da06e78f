#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

#include "shared/base/file.h"

namespace atl {

// A TCP port of loopback that leads to another address once it is open; before, connections to it are refused. A Kafka
// broker behind it is there for bootstrapping only from then on: whoever has reached it goes on with the address that
// the broker gives. Counts the bytes that pass.
class TcpGate {
  public:
    // "127.0.0.1:PORT", or "FILE@127.0.0.1:PORT": address() then has the file too.
    explicit TcpGate(const std::string& target);
    ~TcpGate();  // ends its connections

    std::string address() const;
    void open();
    std::uint64_t bytes() const { return bytes_; }  // of both directions

  private:
    void run(const std::stop_token& stop);

    std::string credentials_;
    std::uint16_t target_port_;
    UniqueFd listener_;
    std::atomic<std::uint64_t> bytes_ = 0;
    std::jthread thread_;
};

}  // namespace atl
