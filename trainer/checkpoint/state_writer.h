#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shared/digest/digest.h"
#include "shared/safetensors/file.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/state_format.h"

namespace atl::checkpoint {

// Writes one rank's file of a state. One thread at a time; it needs neither the store nor the other ranks.
//
//   ATOLL_TRY(auto writer, agreed(comm, open_writer(…)));         // every rank takes part
//   const Status written = writer.write(next_piece);              // on any thread
//   ATOLL_RETURN_IF_ERROR(commit(writer, written, store, comm));  // every rank takes part
class StateWriter {
  public:
    // Elements [at, at + count) of a section, as bytes; they last until the next call.
    using Source =
        std::function<Result<std::span<const std::byte>>(const Section& section, std::int64_t at, std::int64_t count)>;

    struct Place {
        std::filesystem::path file;  // of the state: its file 0
        std::string id;
        int part = 0;  // which file of how many
        int parts = 1;
    };
    // `of_the_run` is in file 0 alone; `steps` is for messages.
    static Result<StateWriter> create(const Place& place, std::vector<Section> sections, const Metadata& of_the_run,
                                      std::int64_t steps);

    // All sections, as far as they go to the disk: file 0 then lacks only what commit() writes, another one is whole.
    // kInvalidArgument: a value is not finite (a weight also in the format that the model computes with).
    Status write(const Source& source);

    // Of the file's digests, once it is written; file 0 has those of the others.
    const std::string& seal() const { return seal_; }
    // Of file 0: makes the state. `seals` are those of file 1, 2, ….
    Status finish(std::span<const std::string> seals);
    // Takes back a file that is whole, where the state is not to be.
    void discard() const;
    const Place& place() const { return place_; }

  private:
    StateWriter(Place place, std::vector<Section> sections, safetensors::Writer writer, std::string metadata_digest,
                std::int64_t steps);
    Status write_section(const Section& section, const Source& source);
    Error not_finite(const Section& section) const;

    Place place_;
    std::vector<Section> sections_;
    safetensors::Writer writer_;
    std::string digests_;  // of the sections so far
    std::string metadata_digest_;
    std::string seal_;
    std::int64_t steps_;
};

// This rank's writer of a state, or of the optimizer's part, with a new id. `of_the_run`: its fingerprint, and its name
// if it has one. Every rank takes part; the outcome is this rank's alone.
Result<StateWriter> open_writer(const std::filesystem::path& file, const parallel::ParameterStore& store,
                                const kernels::Backend& backend, comm::Comm& comm, Content content,
                                const TrainerState& state, Metadata of_the_run);

// Makes the state of what every rank has written, or leaves the one before; what else is there of other states goes.
// Every rank takes part and gets the same outcome.
Status commit(StateWriter& writer, const Status& written, const parallel::ParameterStore& store, comm::Comm& comm);

}  // namespace atl::checkpoint
