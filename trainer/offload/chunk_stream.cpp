#include "trainer/offload/chunk_stream.h"

#include <utility>

#include "shared/base/check.h"

namespace atl::offload {

TransferThread::TransferThread() : thread_([this] { run(); }) {}

TransferThread::~TransferThread() {
    {
        const std::lock_guard lock(mutex_);
        ending_ = true;
    }
    wake_.notify_one();
}

std::future<Status> TransferThread::begin(std::function<Status()> transfer) {
    std::packaged_task<Status()> task(std::move(transfer));
    std::future<Status> outcome = task.get_future();
    {
        const std::lock_guard lock(mutex_);
        waiting_.push_back(std::move(task));
    }
    wake_.notify_one();
    return outcome;
}

void TransferThread::run() {
    std::unique_lock lock(mutex_);
    for (;;) {
        wake_.wait(lock, [&] { return ending_ || !waiting_.empty(); });
        if (waiting_.empty()) return;
        std::packaged_task<Status()> task = std::move(waiting_.front());
        waiting_.pop_front();
        lock.unlock();
        task();
        lock.lock();
    }
}

ChunkStream::ChunkStream(StateFile& file, std::vector<Chunk> chunks, const std::array<std::byte*, kBuffers>& buffers)
    : file_(&file), chunks_(std::move(chunks)), buffers_(buffers) {}

std::byte* ChunkStream::next() {
    check(next_ < chunks_.size(), "there is no further chunk");
    if (next_ > 0) begin_write(next_ - 1);
    if (next_ == 0) begin_read(0);
    wait(read_);
    if (next_ + 1 < chunks_.size()) {
        wait(writes_[(next_ + 1) % kBuffers]);
        begin_read(next_ + 1);
    }
    std::byte* const buffer = chunk_buffer(next_++);
    return status_.ok() ? buffer : nullptr;
}

Status ChunkStream::finish() {
    check(next_ == 0 || next_ == chunks_.size(), "finished before the last chunk");
    if (next_ > 0) begin_write(next_ - 1);
    for (std::future<Status>& write : writes_) wait(write);
    next_ = 0;
    return status_;
}

void ChunkStream::begin_read(std::size_t chunk) {
    if (!status_.ok()) return;
    read_ = reader_.begin([file = file_, records = chunks_[chunk], to = chunk_buffer(chunk)] {
        return file->read(records.first, records.count, to);
    });
}

void ChunkStream::begin_write(std::size_t chunk) {
    if (!status_.ok()) return;
    writes_[chunk % kBuffers] = writer_.begin([file = file_, records = chunks_[chunk], from = chunk_buffer(chunk)] {
        return file->write(records.first, records.count, from);
    });
}

void ChunkStream::wait(std::future<Status>& transfer) {
    if (!transfer.valid()) return;
    const Status status = transfer.get();
    if (status_.ok()) status_ = status;
}

}  // namespace atl::offload
