#include "services/gateway/nginx_conf.h"

#include "services/gateway/embedded.h"

namespace atl::gateway {

std::string_view nginx_conf() {
    return kNginxConf;
}

}  // namespace atl::gateway
