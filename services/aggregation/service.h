#pragma once

#include "shared/service/service.h"

namespace atl::aggregation {

const service::Definition& definition();

}  // namespace atl::aggregation
