#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "services/aggregation/db/repository.h"
#include "services/aggregation/settings.h"
#include "services/aggregation/work/read_ahead.h"
#include "shared/round/closed_round.h"
#include "shared/store_client/manifest.h"
#include "shared/store_client/remote_file.h"

// The updates of one round where they are, in the store.
namespace atl::aggregation {

class RemoteModels {
  public:
    // Told by its index of an update because of which open(), measure_part() or make_part() is about to fail, for what
    // it holds (`is_stores` false) or because the store has lost or damaged it; without one where no update is at fault
    // but the store alone. The last word counts.
    using OnFault = std::function<void(std::optional<std::size_t> update, bool is_stores)>;

    // Fetches the manifests and reads the tensors' headers. kInvalidArgument naming the tensor, with a message that
    // names the update, when the updates do not fit their base.
    static Result<RemoteModels> open(const Settings& settings, const round::ClosedRound& round,
                                     const OnFault& on_fault);

    const aggregate::Aggregator& aggregator() const { return aggregator_; }

    bool is_measured() const { return aggregator_.statistics_count() > 0; }
    // What the updates' statistics are in a part. One thread at a time, as all below.
    Result<std::vector<aggregate::ExactSum>> measure_part(const round::Part& part);
    // How much each update counts, which make_part() follows from now on.
    Result<aggregate::Prepared> prepare(const round::ClosedRound& round);

    // Makes a part and puts it into the store.
    Result<MadePart> make_part(const round::Part& part);
    // The digests of those parts that the store no longer has; the others stay for as long as new blobs do.
    Result<std::set<std::string>> missing(const std::vector<round::Part>& parts);
    // Posts the version that the parts make, and before it the optimizer's state. The same parts give the same
    // versions, however often.
    // `metrics`: what the version says of itself.
    Result<Published> publish(const round::ClosedRound& round, const std::vector<round::Part>& made,
                              const nlohmann::json& contributions, const nlohmann::json& metrics);

  private:
    // A file that is read, and which update it is of.
    struct Source {
        std::optional<std::size_t> update;
        std::shared_ptr<const ReadAhead> file;
    };

    RemoteModels(std::shared_ptr<store_client::ClientPool> store, store_client::Manifest base,
                 std::vector<Source> sources, OnFault on_fault, aggregate::Aggregator aggregator);
    Result<std::size_t> find_file(const std::string& path) const;
    std::vector<round::Part> without_left_out(std::vector<round::Part> parts) const;
    // Nothing that was read so far is rotten. Before what was made of it leaves.
    static Status check_chunks(store_client::ClientPool& store, const std::vector<Source>& sources,
                               const OnFault& on_fault);
    // The same before what was read is found wrong: bytes that rotted in the store say nothing of who sent them.
    static Error blame_store_first(store_client::ClientPool& store, const std::vector<Source>& sources,
                                   const OnFault& on_fault, const Error& error);
    // Both of these, of what was done with the models.
    Status believe(const Status& work) const;

    std::shared_ptr<store_client::ClientPool> store_;
    store_client::Manifest base_manifest_;  // the result has its layout
    std::vector<Source> sources_;
    OnFault on_fault_;
    aggregate::Aggregator aggregator_;
    aggregate::Aggregator::Workspace workspace_;
};

}  // namespace atl::aggregation
