#pragma once

#include <memory>

#include "services/store/settings.h"
#include "shared/service/service.h"

namespace atl::store {

Result<std::unique_ptr<service::Running>> start(service::Context& context, const Settings& settings);
service::Definition definition();

}  // namespace atl::store
