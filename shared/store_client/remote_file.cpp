#include "shared/store_client/remote_file.h"

#include <algorithm>
#include <cstring>

#include "shared/digest/digest.h"

namespace atl::store_client {
namespace {

constexpr std::uint64_t kPieceBytes = 2U << 20;  // read at a time of what is wanted for its digest alone

std::string_view text_of(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Error beyond_end(const ManifestFile& file) {
    return invalid_argument(file.path, file.path + " ends before the bytes that were asked for");
}

std::string wrong_bytes(const ManifestFile& file, const Chunk& chunk) {
    return "the store's bytes of " + file.path + " do not match " + chunk.sha256;
}

}  // namespace

ClientPool::Lease ClientPool::take() {
    {
        const std::lock_guard lock(mutex_);
        if (!idle_.empty()) {
            auto client = std::move(idle_.back());
            idle_.pop_back();
            return {*this, std::move(client)};
        }
    }
    return {*this, std::make_unique<http::Client>(options_)};
}

void ClientPool::give_back(std::unique_ptr<http::Client> client) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(client));
}

RemoteFile::RemoteFile(std::shared_ptr<ClientPool> store, ManifestFile file)
    : store_(std::move(store)), file_(std::move(file)) {
    std::uint64_t begin = 0;
    for (const Chunk& chunk : file_.chunks) {
        begins_.push_back(begin);
        begin += chunk.size;
    }
}

std::size_t RemoteFile::chunk_at(std::uint64_t offset) const {
    return static_cast<std::size_t>(std::upper_bound(begins_.begin(), begins_.end(), offset) - begins_.begin()) - 1;
}

Status RemoteFile::read(std::uint64_t offset, std::span<std::byte> into) const {
    if (offset > file_.size || into.size() > file_.size - offset) return beyond_end(file_);
    while (!into.empty()) {
        const std::size_t index = chunk_at(offset);
        const Chunk& chunk = file_.chunks[index];
        const std::uint64_t within = offset - begins_[index];
        const auto size = std::min<std::uint64_t>(into.size(), chunk.size - within);
        const auto piece = into.first(size);
        ATOLL_RETURN_IF_ERROR(fetch(index, within, piece));
        if (size == chunk.size && digest::sha256(text_of(piece)) != chunk.sha256)
            return Error{ErrorCode::kInternal, wrong_bytes(file_, chunk), file_.path};
        offset += size;
        into = into.subspan(size);
    }
    return {};
}

Status RemoteFile::fetch(std::size_t index, std::uint64_t offset, std::span<std::byte> into) const {
    const Chunk& chunk = file_.chunks[index];
    http::CallOptions call;
    if (into.size() < chunk.size)
        call.headers.emplace_back("Range",
                                  "bytes=" + std::to_string(offset) + "-" + std::to_string(offset + into.size() - 1));
    auto client = store_->take();
    ATOLL_TRY(const auto response, client->call(http::Method::kGet, "/v1/blobs/" + chunk.sha256, {}, call));
    ATOLL_RETURN_IF_ERROR(response.check());
    if (response.body.size() != into.size()) return Error{ErrorCode::kInternal, wrong_bytes(file_, chunk), file_.path};
    std::memcpy(into.data(), response.body.data(), into.size());
    return {};
}

Status CheckedFile::read(std::uint64_t offset, std::span<std::byte> into) {
    if (offset > size() || into.size() > size() - offset) return beyond_end(file_.file());
    while (!into.empty()) {
        const std::size_t chunk = file_.chunk_at(offset);
        const std::uint64_t within = offset - file_.begin_of(chunk);
        const auto count = std::min<std::uint64_t>(into.size(), file_.file().chunks[chunk].size - within);
        ATOLL_RETURN_IF_ERROR(read_within(chunk, within, into.first(count)));
        offset += count;
        into = into.subspan(count);
    }
    return {};
}

Status CheckedFile::read_within(std::size_t chunk, std::uint64_t offset, std::span<std::byte> into) {
    if (checked_[chunk]) return file_.fetch(chunk, offset, into);
    if (chunk_ != chunk) {
        ATOLL_RETURN_IF_ERROR(finish());
        chunk_ = chunk;
        hashed_ = 0;
        hash_.emplace();
    }
    ATOLL_RETURN_IF_ERROR(hash_up_to(offset));
    ATOLL_RETURN_IF_ERROR(file_.fetch(chunk, offset, into));
    const std::uint64_t end = offset + into.size();
    if (end <= hashed_) return {};
    hash_->update(text_of(into.subspan(hashed_ - offset)));
    hashed_ = end;
    return conclude();
}

Status CheckedFile::finish() {
    return chunk_ ? hash_up_to(file_.file().chunks[*chunk_].size) : Status();
}

Status CheckedFile::hash_bytes(std::size_t chunk, std::uint64_t& at, std::uint64_t end, digest::Sha256& hash) const {
    std::vector<std::byte> piece(std::min(kPieceBytes, end - std::min(end, at)));
    while (at < end) {
        const auto part = std::span(piece).first(std::min<std::uint64_t>(piece.size(), end - at));
        ATOLL_RETURN_IF_ERROR(file_.fetch(chunk, at, part));
        hash.update(text_of(part));
        at += part.size();
    }
    return {};
}

Status CheckedFile::hash_up_to(std::uint64_t offset) {
    if (hashed_ >= offset) return {};
    ATOLL_RETURN_IF_ERROR(hash_bytes(*chunk_, hashed_, offset, *hash_));
    return conclude();
}

// Checks the chunk in hand once all of it has been hashed.
Status CheckedFile::conclude() {
    const std::size_t index = *chunk_;
    const Chunk& chunk = file_.file().chunks[index];
    if (hashed_ < chunk.size) return {};
    chunk_.reset();
    if (hash_->finish() == chunk.sha256) {
        checked_[index] = true;
        return {};
    }
    // What came may have been spoilt on its way: the store is at fault only if it is so twice.
    digest::Sha256 again;
    std::uint64_t at = 0;
    ATOLL_RETURN_IF_ERROR(hash_bytes(index, at, chunk.size, again));
    if (again.finish() == chunk.sha256) return unavailable("bytes of " + file_.file().path + " came damaged");
    damaged_chunk_ = chunk.sha256;
    return invalid_argument(file_.file().path, wrong_bytes(file_.file(), chunk));
}

}  // namespace atl::store_client
