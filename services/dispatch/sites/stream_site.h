#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "services/dispatch/sites/script_site.h"
#include "services/dispatch/sites/stream_ranges.h"

namespace atl::dispatch {

// A site whose login node does not reach the store (transport.data "ssh"): the bytes of models and updates go through
// the sessions' own streams, and this process asks the store for them, with the attempt's token, which no site sees.
// Nothing goes on at the site by itself: stage() and push() move a slice of some seconds and say how far it is. What
// has arrived is seen in the files there, so whoever comes next, after any kill, goes on at the byte where it was.
// Each chunk's digest is compared here, on its way; memory is some chunks.
class StreamSite : public ScriptSite {
  public:
    // `turns` must outlive it.
    StreamSite(Facility facility, std::shared_ptr<Transport> transport, std::string programs, StreamTurns& turns);

    // The orders' store_url is the store as this process reaches it.
    Result<StageAnswer> stage(const StageOrder& order) override;
    Result<PushAnswer> push(const PushOrder& order) override;

  private:
    struct Arrived;
    Result<Arrived> find_arrived(const StageOrder& order);
    // One session's worth of what a version lacks; the name of a file of which the chunk in hand is not what was sent,
    // or nothing.
    Result<std::string> send(store_client::ClientPool& store, const std::string& digest,
                             const std::vector<Range>& missing, Slice& slice);
    // One session's worth of what the store lacks of an update; what it has by then is taken out of `missing`. Why the
    // update is not handed in, if it is not.
    Result<std::optional<PushAnswer>> receive(store_client::ClientPool& store, const PushOrder& order,
                                              const std::vector<Range>& unsent, Slice& slice, ChunkInHand& in_hand,
                                              std::set<std::string>& missing);

    StreamTurns& turns_;
};

}  // namespace atl::dispatch
