#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "trainer/kernels/backend.h"
#include "trainer/offload/chunk_stream.h"

namespace atl::parallel {

// What the optimizer keeps beside the weights, of the elements of each unit that this rank updates: fp32 masters where
// the weights are stored in another format, and moments. In memory, or in a file of chunks, of which memory holds three
// at a time.
class OptimizerState {
  public:
    enum class Part : std::uint8_t { kMasters, kFirstMoment, kSecondMoment };
    static constexpr std::size_t kPartCount = 3;

    struct Layout {
        // By unit: how many elements; 0: it is frozen. And whether it has masters.
        std::vector<std::int64_t> counts;
        std::vector<char> has_masters;
        int moment_count = 0;
        tensor::DType masters_dtype, moments_dtype;
        bool in_file = false;
    };
    // The arena is of device memory or of pinned memory, and of the latter for the chunks of a file, in which both the
    // device and the file work. With a measuring arena only the memory is counted.
    static OptimizerState lay_out(tensor::Arena& arena, Layout layout);
    // Makes the file, all zeros; nothing to do in memory. Errors name it.
    Status open(const std::filesystem::path& directory, int rank);

    bool has(Part part, std::size_t unit) const;
    // All of a part, in memory; empty: there is none, or it is in the file.
    tensor::Tensor in_memory(Part part, std::size_t unit) const;
    tensor::DType dtype(Part part) const {
        return part == Part::kMasters ? layout_.masters_dtype : layout_.moments_dtype;
    }
    int moment_count() const { return layout_.moment_count; }
    bool is_in_file() const { return layout_.in_file; }
    // What lies in the file instead of memory.
    std::int64_t file_bytes() const;

    // Zeros in memory; a file begins as zeros.
    void clear(kernels::Backend& backend, Part part) const;

    // Elements of a part from `at` on, as bytes of its dtype. What is written to a file may lie in memory until
    // something else is asked for.
    Status read(kernels::Backend& backend, Part part, std::size_t unit, std::int64_t at, std::span<std::byte> to);
    Status write(kernels::Backend& backend, Part part, std::size_t unit, std::int64_t at,
                 std::span<const std::byte> from);

    // Elements [begin, begin + count) of a unit, with what is kept for them; empty where nothing is.
    struct Piece {
        std::int64_t begin = 0;
        std::int64_t count = 0;
        std::array<tensor::Tensor, kPartCount> parts;
        const tensor::Tensor& operator[](Part part) const { return parts[static_cast<std::size_t>(part)]; }
    };
    // Shows all pieces of a unit, to be changed in place. In a step every unit has its turn, in their order, and then
    // end_update() says how it went; after an error no piece is shown any more.
    void update(kernels::Backend& backend, std::size_t unit, const std::function<void(const Piece&)>& change);
    Status end_update(kernels::Backend& backend);

  private:
    // Elements [begin, begin + count) of a unit, which are neighbouring records of the file, one a part.
    struct Chunk {
        std::size_t unit = 0;
        std::int64_t begin = 0;
        std::int64_t count = 0;
        std::size_t first_record = 0;
    };
    static constexpr std::size_t kNoRecord = static_cast<std::size_t>(-1);

    std::int64_t part_bytes(Part part, std::int64_t count) const { return tensor::size_bytes(dtype(part), count); }
    std::size_t part_count(std::size_t unit) const;
    // The record of a part within its chunk.
    std::size_t part_index(Part part, std::size_t unit) const;
    void lay_out_memory(tensor::Arena& arena);
    void lay_out_chunks(tensor::Arena& arena);
    std::int64_t bytes_in_file(const Chunk& chunk) const;
    Piece piece_in(const Chunk& chunk, std::byte* buffer) const;
    // Calls visit(bytes of the record in memory, from, count) for each record that holds part of a range of a part.
    Status visit(Part part, std::size_t unit, std::int64_t at, std::int64_t count,
                 const std::function<void(std::byte*, std::int64_t)>& visit_run);
    Status load_record(std::size_t record);
    Status flush();

    Layout layout_;
    std::array<std::vector<tensor::Tensor>, kPartCount> parts_;  // in memory, by unit
    std::vector<Chunk> chunks_;
    std::vector<std::size_t> first_chunks_;  // by unit, and one more
    std::array<std::byte*, offload::ChunkStream::kBuffers> buffers_{};
    std::unique_ptr<offload::StateFile> file_;
    std::unique_ptr<offload::ChunkStream> stream_;
    std::size_t loaded_ = kNoRecord;  // lies in the first buffer
    bool changed_ = false;            // and is not in the file yet
    Status status_;                   // of flush() before an update
};

}  // namespace atl::parallel
