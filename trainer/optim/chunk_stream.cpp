#include "trainer/optim/chunk_stream.h"

#include <utility>

#include "shared/base/check.h"

namespace atl::optim {

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
    std::byte* const buffer = buffer_of(next_++);
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
    read_ = std::async(std::launch::async, [file = file_, records = chunks_[chunk], to = buffer_of(chunk)] {
        return file->read(records.first, records.count, to);
    });
}

void ChunkStream::begin_write(std::size_t chunk) {
    if (!status_.ok()) return;
    writes_[chunk % kBuffers] =
        std::async(std::launch::async, [file = file_, records = chunks_[chunk], from = buffer_of(chunk)] {
            return file->write(records.first, records.count, from);
        });
}

void ChunkStream::wait(std::future<Status>& transfer) {
    if (!transfer.valid()) return;
    const Status status = transfer.get();
    if (status_.ok()) status_ = status;
}

}  // namespace atl::optim
