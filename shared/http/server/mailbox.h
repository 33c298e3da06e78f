#pragma once

#include <functional>
#include <mutex>
#include <vector>

#include "shared/base/file.h"

namespace atl::http {

// Work that any thread leaves for one that waits in poll or epoll.
class Mailbox {
  public:
    Mailbox();

    // Becomes readable when there is work.
    int fd() const { return wake_.get(); }
    void post(std::function<void()> work);
    // Does the work, in order. On the thread that waits; no work that is posted meanwhile is missed.
    void run();
    // Drops what was not run and whatever is still posted.
    void close();

  private:
    UniqueFd wake_;
    std::mutex mutex_;
    std::vector<std::function<void()>> work_;
    bool closed_ = false;
};

}  // namespace atl::http
