#include "services/store/work/disk_watch.h"

#include <spdlog/spdlog.h>

#include "services/store/metrics.h"
#include "shared/base/text.h"

namespace atl::store {
namespace {

DiskWatch::Room room_in(const BlobStore::Space& space) {
    if (space.free < space.free_min) return DiskWatch::Room::kNone;
    return space.free < 2 * space.free_min ? DiskWatch::Room::kLittle : DiskWatch::Room::kEnough;
}

void say(DiskWatch::Room room, const BlobStore::Space& space) {
    const std::string free = human_bytes(space.free), reserve = human_bytes(space.free_min);
    if (room == DiskWatch::Room::kEnough)
        spdlog::info("the store's disk has {} free again", free);
    else if (room == DiskWatch::Room::kLittle)
        spdlog::warn("the store's disk has {} free; below {} uploads are refused: atoll model prune", free, reserve);
    else
        spdlog::error(
            "the store's disk has {} free, less than the {} that uploads leave: they are refused. Remove what "
            "nobody needs (atoll model prune)",
            free, reserve);
}

}  // namespace

DiskWatch::DiskWatch(const BlobStore& blobs, metrics::Registry& metrics)
    : blobs_(blobs),
      size_(metrics.gauge(kMetrics["atoll_store_disk_size_bytes"])),
      free_(metrics.gauge(kMetrics["atoll_store_disk_free_bytes"])),
      free_min_(metrics.gauge(kMetrics["atoll_store_disk_reserve_bytes"])) {}

DiskWatch::Room DiskWatch::look() {
    const auto space = blobs_.space();
    if (!space.ok()) return last_;
    size_.Set(static_cast<double>(space->total));
    free_.Set(static_cast<double>(space->free));
    free_min_.Set(static_cast<double>(space->free_min));
    const Room room = room_in(*space);
    if (room != last_) say(room, *space);
    return last_ = room;
}

}  // namespace atl::store
