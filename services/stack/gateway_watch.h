#pragma once

#include <sys/types.h>

#include <memory>
#include <stop_token>

#include "services/stack/gateway.h"

// What runs beside a gateway's nginx: it has nginx take renewed certificates and changed addresses of the services, and
// keeps requests for a service that is being started again.
namespace atl::stack {

class GatewayWatch {
  public:
    // Notes the certificates and addresses as they are before nginx reads its configuration, and listens where nginx
    // sends what it cannot pass on.
    static Result<std::unique_ptr<GatewayWatch>> make(const GatewayOptions& options);
    ~GatewayWatch();

    // Looks every two seconds, until the process `nginx` has gone or `stop` is requested. A file or a name that is
    // missing for a moment counts as unchanged.
    void run(pid_t nginx, const std::stop_token& stop = {});

  private:
    class Impl;
    explicit GatewayWatch(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

// Starts a process that watches; it ends with the calling one, which then becomes nginx. Call it while the process has
// one thread.
Status start_gateway_watch(const GatewayOptions& options);

}  // namespace atl::stack
