#include "shared/http/server/mailbox.h"

#include <sys/eventfd.h>

#include <utility>

namespace atl::http {

Mailbox::Mailbox() : wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    check(wake_.valid(), "no descriptor is left for an eventfd");
}

void Mailbox::post(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    work_.push_back(std::move(work));
    ::eventfd_write(wake_.get(), 1);
}

void Mailbox::run() {
    eventfd_t count = 0;
    ::eventfd_read(wake_.get(), &count);  // before looking: what comes from here on wakes anew
    std::vector<std::function<void()>> work;
    {
        const std::lock_guard lock(mutex_);
        work.swap(work_);
    }
    for (const auto& one : work) one();
}

void Mailbox::close() {
    std::vector<std::function<void()>> dropped;  // dies after the lock, as what it holds may post
    const std::lock_guard lock(mutex_);
    closed_ = true;
    dropped.swap(work_);
}

}  // namespace atl::http
