#include "services/dispatch/sites/transport/transport.h"

#include <utility>

#include "services/dispatch/sites/transport/frame.h"

namespace atl::dispatch {
namespace {

// The field of an error says which it is.
constexpr std::pair<Trouble, const char*> kTroubles[] = {{Trouble::kNoConnection, "transport"},
                                                         {Trouble::kAuthentication, "transport.authentication"},
                                                         {Trouble::kHostKey, "transport.host_key"},
                                                         {Trouble::kBusy, "transport.busy"},
                                                         {Trouble::kLoginsSpent, "transport.logins"}};

class LocalTransport : public Transport {
  public:
    explicit LocalTransport(std::stop_token stop) : stop_(std::move(stop)) {}
    Result<CommandResult> run(const RemoteScript& script) override { return run_framed(script, {}, stop_); }

  private:
    std::stop_token stop_;
};

}  // namespace

Error no_answer(std::string why, Trouble trouble) {
    for (const auto& [one, field] : kTroubles)
        if (one == trouble) return {ErrorCode::kUnavailable, std::move(why), field};
    check(false, "a trouble without a name");
    return {};
}

std::optional<Trouble> trouble_of(const Error& error) {
    if (error.code != ErrorCode::kUnavailable) return {};
    for (const auto& [trouble, field] : kTroubles)
        if (error.field == field) return trouble;
    return {};
}

bool is_silence(const Error& error) {
    const auto trouble = trouble_of(error);
    return trouble && *trouble != Trouble::kBusy;
}

std::unique_ptr<Transport> make_local_transport(std::stop_token stop) {
    return std::make_unique<LocalTransport>(std::move(stop));
}

std::unique_ptr<Transport> make_transport(const Facility& facility, const SshSettings& settings, std::stop_token stop) {
    if (facility.transport.kind == "ssh")
        return make_ssh_transport(facility.name, facility.transport, settings, std::move(stop));
    return make_local_transport(std::move(stop));
}

}  // namespace atl::dispatch
