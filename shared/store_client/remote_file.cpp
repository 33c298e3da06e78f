#include "shared/store_client/remote_file.h"

#include <algorithm>
#include <cstring>

#include "shared/digest/digest.h"

namespace atl::store_client {

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

Status RemoteFile::read(std::uint64_t offset, std::span<std::byte> into) const {
    if (offset > file_.size || into.size() > file_.size - offset)
        return invalid_argument(file_.path, file_.path + " ends before the bytes that were asked for");
    while (!into.empty()) {
        const auto index =
            static_cast<std::size_t>(std::upper_bound(begins_.begin(), begins_.end(), offset) - begins_.begin()) - 1;
        const Chunk& chunk = file_.chunks[index];
        const std::uint64_t within = offset - begins_[index];
        const auto size = std::min<std::uint64_t>(into.size(), chunk.size - within);
        ATOLL_RETURN_IF_ERROR(read_chunk(chunk, within, into.first(size)));
        offset += size;
        into = into.subspan(size);
    }
    return {};
}

Status RemoteFile::read_chunk(const Chunk& chunk, std::uint64_t offset, std::span<std::byte> into) const {
    http::CallOptions call;
    if (into.size() < chunk.size)
        call.headers.emplace_back("Range",
                                  "bytes=" + std::to_string(offset) + "-" + std::to_string(offset + into.size() - 1));
    auto client = store_->take();
    ATOLL_TRY(const auto response, client->call(http::Method::kGet, "/v1/blobs/" + chunk.sha256, {}, call));
    ATOLL_RETURN_IF_ERROR(response.check());
    const bool intact = response.body.size() == into.size() &&
                        (into.size() < chunk.size || digest::sha256(response.body) == chunk.sha256);
    if (!intact)
        return Error{ErrorCode::kInternal, "the store's bytes of " + file_.path + " do not match " + chunk.sha256,
                     file_.path};
    std::memcpy(into.data(), response.body.data(), into.size());
    return {};
}

}  // namespace atl::store_client
