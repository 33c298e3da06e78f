#pragma once

#include "services/dispatch/domain/task.h"
#include "services/dispatch/sites/site.h"

namespace atl::dispatch {

// Whether the data that a task is to read are those of its dataset's version: each split's data.json says so, as its
// path may have been set by hand. kInvalidArgument says what differs, or that there is no such directory. Data without
// a data.json pass: the trainer refuses them. A site may lie about its own data; an operator may not lie about a
// site's.
Status check_copy(const Task& task, Site& site);

}  // namespace atl::dispatch
