#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace atl::dispatch {

// What has come of a chunk whose way was cut: it goes on from there.
struct ChunkInHand {
    std::string sha256;
    std::string bytes;
};

// Whose turn it is to move data through the session of a facility: one task of a facility at a time, so that looks have
// the other session and the other step, and of all facilities so many that workers are left. Thread-safe.
class StreamTurns {
  public:
    explicit StreamTurns(std::int64_t streams_max) : streams_max_(streams_max) {}

    class Turn {
      public:
        Turn(StreamTurns& turns, std::string facility);
        ~Turn();
        Turn(const Turn&) = delete;
        Turn& operator=(const Turn&) = delete;
        ChunkInHand& in_hand() { return in_hand_; }
        bool is_wanted() const;  // by somebody who came since it began

      private:
        StreamTurns& turns_;
        const std::string facility_;
        const std::int64_t refused_before_;
        ChunkInHand& in_hand_;
    };
    std::unique_ptr<Turn> take(const std::string& facility);  // nullptr: others have theirs

  private:
    struct Lane {
        bool is_taken = false;
        ChunkInHand in_hand;
    };

    const std::int64_t streams_max_;
    mutable std::mutex mutex_;
    std::int64_t streams_ = 0;
    std::int64_t refused_ = 0;           // turns, since the process began
    std::map<std::string, Lane> lanes_;  // by facility
};

}  // namespace atl::dispatch
