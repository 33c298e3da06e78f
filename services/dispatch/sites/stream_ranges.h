#pragma once

#include <chrono>
#include <cstdint>
#include <future>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "services/dispatch/domain/site_output.h"
#include "services/dispatch/sites/stream_turns.h"
#include "shared/store_client/local_file.h"
#include "shared/store_client/remote_file.h"

// Parts of versions on their way between the store and a site, through this process: what is missing, how much of it
// travels in one session, and the chunks that are compared with their digests.
namespace atl::dispatch {

// The time of one step, and how much may move in what is left of it, at the pace of what went before.
class Slice {
  public:
    bool is_over() const;
    std::chrono::milliseconds session_time() const;  // of one more session, so that it ends with the step
    std::uint64_t bytes() const;
    void note(std::uint64_t bytes, std::chrono::steady_clock::duration time);

  private:
    const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
    double bytes_per_s_ = 0;
};

// A chunk, or the rest of it, that travels. One of no bytes stands for an empty file.
struct Range {
    store_client::ChunkPlace place;
    std::string path;
    std::uint64_t skipped = 0;  // of the chunk's bytes: they are there
    std::uint64_t size() const { return place.chunk.size - skipped; }
    std::uint64_t begin() const { return place.offset + skipped; }
};

// What a version lacks where these bytes of its files, by name, are there; what a site says to have counts no more than
// it may be. kConflict: a file is longer than the version's. `spoilt`: the file whose chunk in hand is sent once more.
Result<std::vector<Range>> missing_ranges(const store_client::Manifest& manifest,
                                          const std::map<std::string, std::uint64_t>& sizes, const std::string& spoilt);
// The chunks of these digests, each once.
std::vector<Range> ranges_of(const store_client::Manifest& manifest, std::set<std::string> digests);
std::uint64_t total_size(const std::vector<Range>& ranges);
// The first of them, for one session. Of chunks of which something is there the first alone can be compared.
std::vector<Range> take_ranges(const std::vector<Range>& ranges, std::uint64_t bytes_max);

// The bytes of ranges out of the store, piece by piece; a chunk is fetched while the one before it travels. Memory is
// two chunks.
class RangeSource {
  public:
    RangeSource(store_client::ClientPool& store, std::vector<Range> ranges, const Slice& slice);

    Result<std::string> skipped();  // bytes of the first range's chunk, first of all
    std::string take();             // empty: at the end, when the time is over, or at a fault
    const Status& fault() const { return fault_; }
    std::uint64_t taken() const { return taken_; }

  private:
    Status next_chunk();
    Result<std::string> fetch(std::size_t i) const;

    store_client::ClientPool& store_;
    const std::vector<Range> ranges_;
    const Slice& slice_;
    std::size_t next_ = 0;
    std::string chunk_;
    std::size_t at_ = 0;
    std::uint64_t taken_ = 0;
    Status fault_;
    std::future<Result<std::string>> ahead_;  // last: it works with the others
};

// Takes the bytes of ranges of an update, and puts each chunk that is whole and what its digest says into the store
// while the next one comes. Memory is two chunks.
class RangeSink {
  public:
    // In hand is what has come of the first chunk before; what comes of the last stays there.
    RangeSink(store_client::ClientPool& store, const std::vector<Range>& ranges, const Slice& slice,
              ChunkInHand& in_hand);

    bool take(std::string_view bytes);  // false: no more
    void finish();                      // once nothing more comes: waits for the store
    bool is_whole() const { return next_ == ranges_.size(); }
    // Why the update is not handed in, if it is not: what came is not what was asked for, or the store's word.
    const std::optional<PushAnswer>& refusal() const { return refusal_; }
    std::uint64_t taken() const { return taken_; }
    const std::set<std::string>& handed_in() const { return handed_in_; }

  private:
    void end_chunk();

    store_client::ClientPool& store_;
    const std::vector<Range>& ranges_;
    const Slice& slice_;
    ChunkInHand& in_hand_;
    std::size_t next_ = 0;
    std::uint64_t taken_ = 0;
    std::optional<PushAnswer> refusal_;
    std::set<std::string> handed_in_;
    std::string in_flight_;
    std::future<Status> sent_;  // last: it works with the others
};

PushAnswer refuse_hand_in(std::string why);
PushAnswer to_push_answer(const Error& error);

}  // namespace atl::dispatch
