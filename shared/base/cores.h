#pragma once

namespace atl {

// Cores that this process may run on, at least 1.
int usable_cores();

}  // namespace atl
