#include "services/dispatch/sites/batch/batch_system.h"

#include <charconv>

#include "shared/base/check.h"

namespace atl::dispatch {

std::unique_ptr<BatchSystem> make_batch_system(const Facility& facility) {
    if (facility.batch.kind == BatchKind::kSlurm) return make_slurm_batch(facility.batch);
    check(facility.batch.kind == BatchKind::kLocal, "a facility's batch system was not checked");
    return make_local_batch(facility.batch.slots, facility.work_dir);
}

std::int64_t read_count(std::string_view text) {
    std::int64_t count = 0;
    std::from_chars(text.data(), text.data() + text.size(), count);
    return count;
}

}  // namespace atl::dispatch
