#pragma once

#include "shared/service/service.h"

namespace atl::aggregation {

service::Definition definition();

}  // namespace atl::aggregation
