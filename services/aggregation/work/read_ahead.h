#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "shared/aggregate/aggregator.h"
#include "shared/store_client/remote_file.h"

namespace atl::aggregation {

// The updates themselves are at fault, or what was asked for: it is not there (404), clashes (409) or is wrong (400,
// 412, 413, 422). Trying again changes nothing.
bool is_final(ErrorCode code);

// What a failed request to the store says of what it was about. Only an answer that is_final() stays as it is. Whatever
// else goes wrong is the store's own trouble, a 500 or a token that is not good as much as no answer: kUnavailable, to
// be waited for.
Error answer_of_store(Error error);

// One window of read-ahead bytes, shared by the files of one input: whoever reads last has it.
struct Window {
    std::mutex mutex;
    const void* owner = nullptr;
    std::uint64_t begin = 0;
    std::vector<std::byte> bytes;
};

// A file of a version in the store. Averaging reads it tensor by tensor, in order; this asks for whole windows, so that
// small tensors cost no request each. Windows begin at multiples of window_bytes. What is made of it counts only after
// check_chunks(). Errors name the model; what the store answers is as answer_of_store() sees it.
class ReadAhead final : public aggregate::ByteSource {
  public:
    // `model`: for messages.
    ReadAhead(store_client::CheckedFile file, std::string model, std::shared_ptr<Window> window,
              std::size_t window_bytes);

    std::uint64_t size() const override { return file_.size(); }
    Status read(std::uint64_t offset, std::span<std::byte> into) const override;
    // Compares every chunk of which something was read with its digest, whatever was read of it. kInvalidArgument for
    // one that differs, also where a read has found it.
    Status check_chunks() const;
    std::string damaged_chunk() const;  // that a read or check_chunks() has found
    void forget_checks() const;         // each chunk is compared again when it is read again

  private:
    Status fill(std::uint64_t offset) const;
    Status named(const Status& status) const;

    mutable store_client::CheckedFile file_;  // under the window's mutex
    mutable Status damaged_;                  // under the window's mutex: what a read found that the digest forbids
    std::string model_;
    std::shared_ptr<Window> window_;
    std::size_t window_bytes_;
};

// A window for each of `input_count` inputs, within 64 MiB in all: a power of two from 64 KiB to 8 MiB.
std::size_t window_bytes_for(std::size_t input_count);

}  // namespace atl::aggregation
