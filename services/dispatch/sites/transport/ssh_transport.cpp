#include <algorithm>
#include <condition_variable>
#include <utility>

#include "services/dispatch/sites/transport/frame.h"
#include "services/dispatch/sites/transport/ssh_master.h"

namespace atl::dispatch {
namespace {

constexpr std::chrono::milliseconds kSessionWaitMax = std::chrono::seconds(30);

// A session that the site's sshd did not open on the connection that stands.
Error explain_session(const CommandResult& raw, Error no_answer) {
    if (raw.err.find("Session open refused by peer") == std::string::npos) return no_answer;
    return dispatch::no_answer("the site opens no further session on our connection just now", Cause::kBusy);
}

class SshTransport : public Transport {
  public:
    SshTransport(const std::string& facility, const TransportSpec& spec, const SshSettings& settings,
                 const std::stop_token& stop)
        : stop_(stop), sessions_max_(settings.sessions_max), master_(facility, spec, settings, stop) {}

    Result<CommandResult> run(const RemoteScript& script) override {
        ATOLL_RETURN_IF_ERROR(master_.open(script.is_asked_for, script.until));
        const Turn turn(*this, script.is_for_people, std::min({script.timeout, kSessionWaitMax, left(script)}));
        if (!turn.has_come())
            return no_answer("all " + std::to_string(script.is_for_people ? peoples_max() : sessions_max_) +
                                 " sessions with the site" + (script.is_for_people ? " for people's questions" : "") +
                                 " are in use",
                             Cause::kBusy);
        RemoteScript limited = script;
        limited.timeout = std::min(script.timeout, left(script));
        return run_framed(limited, master_.session_command(), stop_, explain_session);
    }

  private:
    static std::chrono::milliseconds left(const RemoteScript& script) {
        using SteadyClock = std::chrono::steady_clock;
        if (script.until == SteadyClock::time_point::max()) return std::chrono::milliseconds::max();
        return std::max(std::chrono::milliseconds(1),
                        std::chrono::duration_cast<std::chrono::milliseconds>(script.until - SteadyClock::now()));
    }

    // People's questions leave one session to the site's work, if there are two.
    std::int64_t peoples_max() const { return std::max<std::int64_t>(sessions_max_ - 1, 1); }
    bool has_room(bool for_people) const {
        return sessions_ < sessions_max_ && (!for_people || peoples_sessions_ < peoples_max());
    }

    // One of the sessions that may be open at once, waited for.
    class Turn {
      public:
        Turn(SshTransport& transport, bool for_people, std::chrono::milliseconds time_max)
            : transport_(transport), for_people_(for_people) {
            std::unique_lock lock(transport.mutex_);
            has_come_ = transport.one_ended_.wait_for(lock, transport.stop_, time_max,
                                                      [&] { return transport.has_room(for_people); });
            if (!has_come_) return;
            ++transport.sessions_;
            if (for_people) ++transport.peoples_sessions_;
        }
        ~Turn() {
            if (!has_come_) return;
            {
                const std::lock_guard lock(transport_.mutex_);
                --transport_.sessions_;
                if (for_people_) --transport_.peoples_sessions_;
            }
            transport_.one_ended_.notify_all();  // not each of those that wait may take it
        }
        Turn(const Turn&) = delete;
        Turn& operator=(const Turn&) = delete;
        bool has_come() const { return has_come_; }

      private:
        SshTransport& transport_;
        const bool for_people_;
        bool has_come_ = false;
    };

    const std::stop_token stop_;
    const std::int64_t sessions_max_;
    std::mutex mutex_;
    std::condition_variable_any one_ended_;
    std::int64_t sessions_ = 0;
    std::int64_t peoples_sessions_ = 0;  // of these
    SshMaster master_;
};

}  // namespace

std::unique_ptr<Transport> make_ssh_transport(const std::string& facility, const TransportSpec& spec,
                                              const SshSettings& settings, std::stop_token stop) {
    return std::make_unique<SshTransport>(facility, spec, settings, stop);
}

}  // namespace atl::dispatch
