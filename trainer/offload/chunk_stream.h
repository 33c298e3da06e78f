#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "trainer/offload/state_file.h"

namespace atl::offload {

// Runs one transfer after another, in the order they came, beside the thread that asks for them.
class TransferThread {
  public:
    TransferThread();
    // What was asked for is still done.
    ~TransferThread();
    TransferThread(const TransferThread&) = delete;
    TransferThread& operator=(const TransferThread&) = delete;

    std::future<Status> begin(std::function<Status()> transfer);

  private:
    void run();

    std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<std::packaged_task<Status()>> waiting_;
    bool ending_ = false;
    std::jthread thread_;  // last: it uses the others
};

// Passes the chunks of a StateFile, of some neighbouring records each, through three buffers: while the caller changes
// chunk n, chunk n + 1 is read and n − 1 written. Not thread-safe.
//
// A thread that reads and one that writes, not io_uring: a chunk is megabytes, so a system call and a wake-up are lost
// in it, two transfers at a time keep a disk busy, and many sites' containers forbid io_uring.
class ChunkStream {
  public:
    static constexpr std::size_t kBuffers = 3;
    struct Chunk {
        std::size_t first = 0;  // record
        std::size_t count = 0;
    };

    // The buffers hold the largest chunk each and begin at pages. They and the file outlive the stream.
    ChunkStream(StateFile& file, std::vector<Chunk> chunks, const std::array<std::byte*, kBuffers>& buffers);

    // The next chunk in order, to be changed in place until the next call. Null after an error.
    std::byte* next();
    // After the last one: waits until all is written; the next chunk is then the first again. The first error of all
    // calls so far.
    Status finish();

  private:
    std::byte* chunk_buffer(std::size_t chunk) const { return buffers_[chunk % kBuffers]; }
    void begin_read(std::size_t chunk);
    void begin_write(std::size_t chunk);
    void wait(std::future<Status>& transfer);

    StateFile* file_;
    std::vector<Chunk> chunks_;
    std::array<std::byte*, kBuffers> buffers_;
    std::size_t next_ = 0;
    Status status_;
    std::future<Status> read_;                          // under way
    std::array<std::future<Status>, kBuffers> writes_;  // by buffer
    TransferThread reader_;                             // their destructors wait
    TransferThread writer_;
};

}  // namespace atl::offload
