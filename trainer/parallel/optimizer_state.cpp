#include "trainer/parallel/optimizer_state.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "trainer/parallel/sharding.h"

namespace atl::parallel {
namespace {

using offload::StateFile;
using tensor::Category;
using tensor::Tensor;
using Part = OptimizerState::Part;

constexpr std::array<Part, OptimizerState::kPartCount> kParts = {Part::kMasters, Part::kFirstMoment,
                                                                 Part::kSecondMoment};
// Of a chunk: a megabyte of fp32, whole pages in every format.
constexpr std::int64_t kChunkElements = std::int64_t{1} << 18;

}  // namespace

OptimizerState OptimizerState::lay_out(tensor::Arena& arena, Layout layout) {
    OptimizerState state;
    state.layout_ = std::move(layout);
    if (state.layout_.in_file) {
        state.lay_out_chunks(arena);
    } else {
        state.lay_out_memory(arena);
    }
    return state;
}

bool OptimizerState::has(Part part, std::size_t unit) const {
    if (unit >= layout_.counts.size() || layout_.counts[unit] == 0) return false;
    if (part == Part::kMasters) return layout_.has_masters[unit] != 0;
    return layout_.moment_count >= (part == Part::kFirstMoment ? 1 : 2);
}

Tensor OptimizerState::in_memory(Part part, std::size_t unit) const {
    return has(part, unit) && !layout_.in_file ? parts_[static_cast<std::size_t>(part)][unit] : Tensor();
}

std::size_t OptimizerState::part_count(std::size_t unit) const {
    return static_cast<std::size_t>(std::ranges::count_if(kParts, [&](Part part) { return has(part, unit); }));
}

std::size_t OptimizerState::part_index(Part part, std::size_t unit) const {
    if (part == Part::kMasters) return 0;
    return (has(Part::kMasters, unit) ? 1U : 0U) + (part == Part::kSecondMoment ? 1U : 0U);
}

void OptimizerState::lay_out_memory(tensor::Arena& arena) {
    for (const Part part : kParts) {
        const Category category = part == Part::kMasters ? Category::kMasters : Category::kMoments;
        auto& tensors = parts_[static_cast<std::size_t>(part)];
        for (std::size_t unit = 0; unit < layout_.counts.size(); ++unit) {
            tensors.push_back(has(part, unit) ? arena.allocate(category, dtype(part), {layout_.counts[unit]})
                                              : Tensor());
        }
    }
}

void OptimizerState::lay_out_chunks(tensor::Arena& arena) {
    std::size_t record = 0;
    std::int64_t largest = 0;
    for (std::size_t unit = 0; unit < layout_.counts.size(); ++unit) {
        first_chunks_.push_back(chunks_.size());
        const std::int64_t elements = part_count(unit) == 0 ? 0 : layout_.counts[unit];
        for (std::int64_t begin = 0; begin < elements; begin += kChunkElements) {
            chunks_.push_back({unit, begin, std::min(kChunkElements, elements - begin), record});
            record += part_count(unit);
            largest = std::max(largest, bytes_in_file(chunks_.back()));
        }
    }
    first_chunks_.push_back(chunks_.size());
    if (largest == 0) return;
    const auto all = static_cast<std::int64_t>(buffers_.size()) * largest;
    std::byte* begin = arena.allocate_bytes(Category::kMoments, all + StateFile::kPageBytes);
    if (arena.is_measuring()) return;
    begin += StateFile::padded(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(begin))) -
             static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(begin));
    for (std::byte*& buffer : buffers_) buffer = std::exchange(begin, begin + largest);
}

Status OptimizerState::open(const std::filesystem::path& directory, int rank) {
    if (chunks_.empty()) return {};
    std::vector<std::int64_t> record_bytes;
    std::vector<offload::ChunkStream::Chunk> chunks;
    for (const Chunk& chunk : chunks_) {
        chunks.push_back({chunk.first_record, part_count(chunk.unit)});
        for (const Part part : kParts) {
            if (has(part, chunk.unit)) record_bytes.push_back(part_bytes(part, chunk.count));
        }
    }
    ATOLL_TRY(StateFile file,
              StateFile::create(directory, "atoll-optimizer.rank" + std::to_string(rank), record_bytes));
    file_ = std::make_unique<StateFile>(std::move(file));
    stream_ = std::make_unique<offload::ChunkStream>(*file_, std::move(chunks), buffers_);
    return {};
}

std::int64_t OptimizerState::bytes_in_file(const Chunk& chunk) const {
    std::int64_t bytes = 0;
    for (const Part part : kParts) {
        if (has(part, chunk.unit)) bytes += StateFile::padded(part_bytes(part, chunk.count));
    }
    return bytes;
}

std::int64_t OptimizerState::file_bytes() const {
    std::int64_t bytes = 0;
    for (const Chunk& chunk : chunks_) bytes += bytes_in_file(chunk);
    return bytes;
}

void OptimizerState::clear(kernels::Backend& backend, Part part) const {
    for (const Tensor& tensor : parts_[static_cast<std::size_t>(part)]) {
        if (!tensor.empty()) backend.zero(tensor);
    }
}

Status OptimizerState::read(kernels::Backend& backend, Part part, std::size_t unit, std::int64_t at,
                            std::span<std::byte> to) {
    const auto count = static_cast<std::int64_t>(to.size()) / tensor::size_bytes(dtype(part));
    if (!layout_.in_file) {
        backend.copy_to_host(flat_range(parts_[static_cast<std::size_t>(part)][unit], at, count), to.data());
        return {};
    }
    return visit(part, unit, at, count, [&](const std::byte* from, std::int64_t run) {
        std::memcpy(to.data(), from, static_cast<std::size_t>(part_bytes(part, run)));
        to = to.subspan(static_cast<std::size_t>(part_bytes(part, run)));
    });
}

Status OptimizerState::write(kernels::Backend& backend, Part part, std::size_t unit, std::int64_t at,
                             std::span<const std::byte> from) {
    const auto count = static_cast<std::int64_t>(from.size()) / tensor::size_bytes(dtype(part));
    if (!layout_.in_file) {
        backend.copy_from_host(from.data(), flat_range(parts_[static_cast<std::size_t>(part)][unit], at, count));
        return {};
    }
    return visit(part, unit, at, count, [&](std::byte* to, std::int64_t run) {
        std::memcpy(to, from.data(), static_cast<std::size_t>(part_bytes(part, run)));
        from = from.subspan(static_cast<std::size_t>(part_bytes(part, run)));
        changed_ = true;
    });
}

Status OptimizerState::visit(Part part, std::size_t unit, std::int64_t at, std::int64_t count,
                             const std::function<void(std::byte*, std::int64_t)>& visit_run) {
    for (const std::int64_t end = at + count; at < end;) {
        const Chunk& chunk = chunks_[first_chunks_[unit] + static_cast<std::size_t>(at / kChunkElements)];
        ATOLL_RETURN_IF_ERROR(load_record(chunk.first_record + part_index(part, unit)));
        const std::int64_t run = std::min(end, chunk.begin + chunk.count) - at;
        visit_run(buffers_[0] + part_bytes(part, at - chunk.begin), run);
        at += run;
    }
    return {};
}

Status OptimizerState::load_record(std::size_t record) {
    if (record == loaded_) return {};
    ATOLL_RETURN_IF_ERROR(flush());
    ATOLL_RETURN_IF_ERROR(file_->read(record, 1, buffers_[0]));
    loaded_ = record;
    return {};
}

Status OptimizerState::flush() {
    const std::size_t record = std::exchange(loaded_, kNoRecord);
    if (!std::exchange(changed_, false)) return {};
    return file_->write(record, 1, buffers_[0]);
}

OptimizerState::Piece OptimizerState::piece_in(const Chunk& chunk, std::byte* buffer) const {
    Piece piece{chunk.begin, chunk.count, {}};
    for (const Part part : kParts) {
        if (!has(part, chunk.unit)) continue;
        piece.parts[static_cast<std::size_t>(part)] = Tensor(buffer, dtype(part), {chunk.count});
        buffer += StateFile::padded(part_bytes(part, chunk.count));
    }
    return piece;
}

void OptimizerState::update(kernels::Backend& backend, std::size_t unit,
                            const std::function<void(const Piece&)>& change) {
    if (!layout_.in_file || part_count(unit) == 0) {
        Piece piece{0, layout_.counts[unit], {}};
        for (std::size_t part = 0; part < kPartCount && !layout_.in_file; ++part) {
            piece.parts[part] = parts_[part][unit];
        }
        change(piece);
        return;
    }
    if (status_.ok()) status_ = flush();
    for (std::size_t chunk = first_chunks_[unit]; chunk < first_chunks_[unit + 1]; ++chunk) {
        backend.synchronize();  // the chunk before is complete and may be written
        std::byte* const buffer = stream_->next();
        if (buffer != nullptr && status_.ok()) change(piece_in(chunks_[chunk], buffer));
    }
}

Status OptimizerState::end_update(kernels::Backend& backend) {
    if (stream_ == nullptr) return {};
    backend.synchronize();
    const Status streamed = stream_->finish();
    return status_.ok() ? streamed : status_;
}

}  // namespace atl::parallel
