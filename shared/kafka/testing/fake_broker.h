#pragma once

#include <chrono>
#include <memory>
#include <string>

namespace atl::kafka {

// A broker of librdkafka's own, in this process, that answers wrongly when told to. It cannot create topics on request:
// name them here.
class FakeBroker {
  public:
    // It lets a group wait for 3 s before it has members. A consumer that asked for its lag before would get the wrong
    // answer to that question and not to its own.
    static constexpr std::chrono::milliseconds kDeafAfterMin{3500};

    FakeBroker(const std::string& topic, int partitions);
    ~FakeBroker();
    FakeBroker(const FakeBroker&) = delete;
    FakeBroker& operator=(const FakeBroker&) = delete;

    const std::string& address() const { return address_; }
    // The next question for a group's committed offsets is answered with NOT_COORDINATOR, as by a broker that has just
    // come back from a pause.
    void disown_group_once();
    // From now on nobody becomes a member of a group, so that its consumers have no partitions.
    void refuse_members();
    void accept_members();

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
    std::string address_;
};

}  // namespace atl::kafka
