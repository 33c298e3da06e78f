#include "services/dispatch/sites/transport/transport.h"

#include <utility>

#include "services/dispatch/sites/transport/frame.h"

namespace atl::dispatch {
namespace {

class LocalTransport : public Transport {
  public:
    explicit LocalTransport(std::stop_token stop) : stop_(std::move(stop)) {}
    Result<CommandResult> run(const RemoteScript& script) override { return run_framed(script, {}, stop_); }

  private:
    std::stop_token stop_;
};

}  // namespace

Error no_answer(std::string why, Cause cause) {
    return {ErrorCode::kUnavailable, std::move(why), {}, cause};
}

bool is_silence(const Error& error) {
    return error.cause == Cause::kNoConnection || error.cause == Cause::kAuthentication ||
           error.cause == Cause::kHostKey || error.cause == Cause::kLoginsSpent;
}

std::unique_ptr<Transport> make_local_transport(std::stop_token stop) {
    return std::make_unique<LocalTransport>(std::move(stop));
}

std::unique_ptr<Transport> make_transport(const Facility& facility, const SshSettings& settings, std::stop_token stop) {
    if (facility.transport.kind == TransportKind::kSsh)
        return make_ssh_transport(facility.name, facility.transport, settings, std::move(stop));
    return make_local_transport(std::move(stop));
}

}  // namespace atl::dispatch
