#include "services/dispatch/sites/stream_ranges.h"

#include <algorithm>
#include <utility>

#include "shared/digest/digest.h"
#include "shared/http/client/client.h"

namespace atl::dispatch {
namespace {

using std::chrono::milliseconds;
using store_client::Chunk;

constexpr std::chrono::seconds kSliceTime{20};      // then others have their turn
constexpr std::chrono::seconds kStreamTimeMax{50};  // of a step with all its sessions
constexpr milliseconds kSessionTimeMin{10000};
constexpr std::uint64_t kFirstBytes = 256U << 10;  // of a slice: they tell the pace of the rest
constexpr std::uint64_t kPieceBytes = 256U << 10;  // between two looks at the clock
constexpr std::size_t kRangesMax = 1000;           // of one session

}  // namespace

bool Slice::is_over() const {
    return std::chrono::steady_clock::now() - begin_ >= kSliceTime;
}

milliseconds Slice::session_time() const {
    const auto left = kStreamTimeMax - (std::chrono::steady_clock::now() - begin_);
    return std::max(std::chrono::duration_cast<milliseconds>(left), kSessionTimeMin);
}

std::uint64_t Slice::bytes() const {
    const std::chrono::duration<double> left = kSliceTime - (std::chrono::steady_clock::now() - begin_);
    return std::max(kFirstBytes, static_cast<std::uint64_t>(std::max(0.0, bytes_per_s_ * left.count())));
}

void Slice::note(std::uint64_t bytes, std::chrono::steady_clock::duration time) {
    bytes_per_s_ = static_cast<double>(bytes) / std::max(0.001, std::chrono::duration<double>(time).count());
}

Result<std::vector<Range>> missing_ranges(const store_client::Manifest& manifest,
                                          const std::map<std::string, std::uint64_t>& sizes,
                                          const std::string& spoilt) {
    std::vector<Range> ranges;
    for (std::size_t i = 0; i < manifest.files.size(); ++i) {
        const auto& file = manifest.files[i];
        const auto found = sizes.find(file.path);
        const std::uint64_t there = found == sizes.end() ? 0 : found->second;
        if (there > file.size) return conflict(file.path + " is longer than it should be", file.path);
        if (file.size == 0 && found == sizes.end()) ranges.push_back({{i, 0, {}}, file.path});
        std::uint64_t begin = 0;
        for (const Chunk& chunk : file.chunks) {
            const std::uint64_t skipped = there > begin && file.path != spoilt ? there - begin : 0;
            if (there < begin + chunk.size) ranges.push_back({{i, begin, chunk}, file.path, skipped});
            begin += chunk.size;
        }
    }
    return ranges;
}

std::vector<Range> ranges_of(const store_client::Manifest& manifest, std::set<std::string> digests) {
    std::vector<Range> ranges;
    for (store_client::ChunkPlace& place : store_client::chunk_places(manifest))
        if (digests.erase(place.chunk.sha256) > 0) ranges.push_back({place, manifest.files[place.file].path});
    return ranges;
}

std::uint64_t total_size(const std::vector<Range>& ranges) {
    std::uint64_t bytes = 0;
    for (const Range& range : ranges) bytes += range.size();
    return bytes;
}

std::vector<Range> take_ranges(const std::vector<Range>& ranges, std::uint64_t bytes_max) {
    std::vector<Range> taken;
    std::uint64_t bytes = 0;
    for (const Range& range : ranges) {
        if (!taken.empty() && (bytes >= bytes_max || taken.size() == kRangesMax || range.skipped > 0)) break;
        taken.push_back(range);
        bytes += range.size();
    }
    return taken;
}

RangeSource::RangeSource(store_client::ClientPool& store, std::vector<Range> ranges, const Slice& slice)
    : store_(store), ranges_(std::move(ranges)), slice_(slice) {}

Result<std::string> RangeSource::skipped() {
    ATOLL_RETURN_IF_ERROR(next_chunk());
    return chunk_.substr(0, at_);
}

std::string RangeSource::take() {
    while (at_ == chunk_.size() && next_ < ranges_.size() && fault_.ok()) fault_ = next_chunk();
    if (!fault_.ok() || slice_.is_over()) return {};
    std::string piece = chunk_.substr(at_, kPieceBytes);
    at_ += piece.size();
    taken_ += piece.size();
    return piece;
}

Status RangeSource::next_chunk() {
    auto fetched = ahead_.valid() ? ahead_.get() : fetch(next_);
    ATOLL_RETURN_IF_ERROR(fetched);
    chunk_ = std::move(fetched).value();
    at_ = ranges_[next_].skipped;
    if (++next_ < ranges_.size()) ahead_ = std::async(std::launch::async, [this, i = next_] { return fetch(i); });
    return {};
}

Result<std::string> RangeSource::fetch(std::size_t i) const {
    const Chunk& chunk = ranges_[i].place.chunk;
    if (chunk.size == 0) return std::string();
    ATOLL_TRY(auto response, store_.take()->call(http::Method::kGet, "/v1/blobs/" + chunk.sha256));
    ATOLL_RETURN_IF_ERROR(response.check());
    if (response.body.size() != chunk.size || digest::sha256(response.body) != chunk.sha256)
        return conflict("the store's bytes of " + ranges_[i].path + " do not match " + chunk.sha256, ranges_[i].path);
    return std::move(response.body);
}

RangeSink::RangeSink(store_client::ClientPool& store, const std::vector<Range>& ranges, const Slice& slice,
                     ChunkInHand& in_hand)
    : store_(store), ranges_(ranges), slice_(slice), in_hand_(in_hand) {}

bool RangeSink::take(std::string_view bytes) {
    taken_ += bytes.size();
    while (!bytes.empty() && !refusal_) {
        if (is_whole()) {
            refusal_ = refuse_hand_in("the site sends more of the update than it was asked for");
            break;
        }
        const Chunk& chunk = ranges_[next_].place.chunk;
        if (in_hand_.sha256 != chunk.sha256) in_hand_ = {chunk.sha256, {}};
        const auto count = std::min<std::size_t>(bytes.size(), chunk.size - in_hand_.bytes.size());
        in_hand_.bytes.append(bytes.substr(0, count));
        bytes.remove_prefix(count);
        if (in_hand_.bytes.size() == chunk.size) end_chunk();
    }
    return !refusal_ && !slice_.is_over();
}

void RangeSink::end_chunk() {
    const Range& range = ranges_[next_++];
    ChunkInHand whole = std::exchange(in_hand_, {});
    if (digest::sha256(whole.bytes) != whole.sha256) {
        refusal_ = refuse_hand_in(range.path + " of the update is not what was sealed: it differs at byte " +
                                  std::to_string(range.place.offset));
        return;
    }
    finish();  // the one before
    if (refusal_) return;
    in_flight_ = whole.sha256;
    sent_ = std::async(std::launch::async, [this, whole = std::move(whole)]() -> Status {
        http::CallOptions call;
        call.headers.emplace_back("Content-Type", "application/octet-stream");
        ATOLL_TRY(const auto response,
                  store_.take()->call(http::Method::kPut, "/v1/blobs/" + whole.sha256, whole.bytes, call));
        return response.check();
    });
}

void RangeSink::finish() {
    if (!sent_.valid()) return;
    const Status sent = sent_.get();
    if (sent.ok()) handed_in_.insert(in_flight_);
    if (!sent.ok() && !refusal_) refusal_ = to_push_answer(sent.error());
}

PushAnswer refuse_hand_in(std::string why) {
    return {{}, conflict(std::move(why)), true};
}

PushAnswer to_push_answer(const Error& error) {
    return {{}, error, is_refusal(error)};
}

}  // namespace atl::dispatch
