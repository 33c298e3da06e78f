#include "services/dispatch/sites/batch/batch_system.h"

#include "shared/base/check.h"

namespace atl::dispatch {

std::unique_ptr<BatchSystem> make_batch_system(const Facility& facility) {
    if (facility.batch.kind == BatchKind::kSlurm) return make_slurm_batch(facility.batch);
    check(facility.batch.kind == BatchKind::kLocal, "a facility's batch system was not checked");
    return make_local_batch(facility.batch.slots, facility.work_dir);
}

}  // namespace atl::dispatch
