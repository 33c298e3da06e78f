#include "services/dispatch/sites/transport/transport.h"

#include "services/dispatch/sites/transport/frame.h"
#include "shared/base/id.h"

namespace atl::dispatch {
namespace {

constexpr std::size_t kOutputBytesMax = 4U << 20;
constexpr const char* kSilence = "transport";

Result<CommandResult> run_framed(const RemoteScript& script, const std::vector<std::string>& prefix,
                                 bool quote_bootstrap, const std::stop_token& stop) {
    const std::string nonce = random_hex(8);
    const FramedScript framed = frame(script, nonce);
    std::vector<std::string> argv = prefix;
    if (quote_bootstrap)
        argv.push_back("sh -c " + shell_quote(framed.bootstrap));
    else
        argv.insert(argv.end(), {"sh", "-c", framed.bootstrap});
    CommandOptions options;
    options.input = framed.stream;
    options.timeout = script.timeout;
    options.stop = stop;
    options.output_bytes_max = kOutputBytesMax;
    auto raw = run_command(argv, options);
    if (!raw.ok()) return no_answer("cannot start " + argv.front() + ": " + raw.error().message);
    const bool is_too_long = raw->timed_out && script.is_transfer && !stop.stop_requested();
    auto answer = unframe(std::move(raw).value(), nonce);
    if (!answer.ok() && is_too_long) return unavailable(answer.error().message);  // the site was there all the time
    return answer;
}

class LocalTransport : public Transport {
  public:
    explicit LocalTransport(std::stop_token stop) : stop_(std::move(stop)) {}
    Result<CommandResult> run(const RemoteScript& script) override { return run_framed(script, {}, false, stop_); }

  private:
    std::stop_token stop_;
};

// The OpenSSH client, so that a user's configuration, ProxyJump, certificates and agents work as they do by hand.
class SshTransport : public Transport {
  public:
    SshTransport(const TransportSpec& spec, const std::filesystem::path& control_directory, std::stop_token stop)
        : stop_(std::move(stop)) {
        argv_ = {"ssh", "-T", "-o", "BatchMode=yes"};
        if (!spec.config_file.empty()) argv_.insert(argv_.end(), {"-F", spec.config_file});
        for (const char* option :
             {"ConnectTimeout=15", "ServerAliveInterval=5", "ServerAliveCountMax=3", "ControlMaster=auto",
              "ControlPersist=120", "ForwardAgent=no", "ForwardX11=no", "ClearAllForwardings=yes"})
            argv_.insert(argv_.end(), {"-o", option});
        argv_.insert(argv_.end(), {"-o", "ControlPath=" + (control_directory / "%C").string()});
        argv_.insert(argv_.end(), {"--", spec.host});
    }
    Result<CommandResult> run(const RemoteScript& script) override { return run_framed(script, argv_, true, stop_); }

  private:
    std::stop_token stop_;
    std::vector<std::string> argv_;
};

}  // namespace

Error no_answer(std::string why) {
    return {ErrorCode::kUnavailable, std::move(why), kSilence};
}

bool is_silence(const Error& error) {
    return error.code == ErrorCode::kUnavailable && error.field == kSilence;
}

std::unique_ptr<Transport> make_local_transport(std::stop_token stop) {
    return std::make_unique<LocalTransport>(std::move(stop));
}

std::unique_ptr<Transport> make_ssh_transport(const TransportSpec& spec, const std::filesystem::path& control_directory,
                                              std::stop_token stop) {
    return std::make_unique<SshTransport>(spec, control_directory, std::move(stop));
}

std::unique_ptr<Transport> make_transport(const TransportSpec& spec, const std::filesystem::path& control_directory,
                                          std::stop_token stop) {
    if (spec.kind == "ssh") return make_ssh_transport(spec, control_directory, std::move(stop));
    return make_local_transport(std::move(stop));
}

}  // namespace atl::dispatch
