#include "services/dispatch/sites/transport/ssh_master.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "services/dispatch/sites/transport/frame.h"
#include "services/dispatch/sites/transport/ssh_trouble.h"
#include "shared/base/file.h"
#include "shared/base/text.h"
#include "shared/digest/digest.h"

namespace atl::dispatch {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kLoginTimeMax{60};
constexpr std::chrono::seconds kControlTimeMax{5};
constexpr int kSshError = 255;  // the status that ssh ends with by itself where it does not come through
constexpr std::chrono::hours kRefusalTimeMax{1};
constexpr std::int64_t kHostFactor = 4;  // so many times ssh_logins_max at one machine, whoever's logins they are

Result<CommandResult> run_for(milliseconds time_max, const std::vector<std::string>& argv,
                              const std::stop_token& stop = {}) {
    CommandOptions options;
    options.timeout = time_max;
    options.stop = stop;
    return run_command(argv, options);
}

// Of the connection: another way to the facility is another one.
std::string socket_name(const std::string& facility, const TransportSpec& spec) {
    const std::string way = facility + '\0' + spec.host + '\0' + spec.config_file + '\0' + spec.host_key;
    return digest::sha256(way).substr(0, 16);
}

std::filesystem::path log_file(const SshSettings& settings, const std::string& whose) {
    return settings.control_directory / (digest::sha256(whose).substr(0, 16) + ".logins");
}

// As the value of an option that takes several words and replaces %.
std::string option_path(const std::filesystem::path& path) {
    std::string text = "\"";
    for (const char c : path.string()) text += c == '%' ? "%%" : std::string(1, c);
    return text + "\"";
}

std::vector<std::string> begin_command(const TransportSpec& spec, const std::vector<std::string>& options) {
    std::vector<std::string> argv = {"ssh", "-T"};
    if (!spec.config_file.empty()) argv.insert(argv.end(), {"-F", spec.config_file});
    for (const auto& option : options) argv.insert(argv.end(), {"-o", option});
    return argv;
}

// Strict whatever the user's configuration says. Without a pinned key what the user's own files say holds.
const std::vector<std::string> kStrict = {"StrictHostKeyChecking=yes", "VerifyHostKeyDNS=no", "UpdateHostKeys=no",
                                          "NoHostAuthenticationForLocalhost=no"};

std::vector<std::string> only_known_hosts(const std::filesystem::path& file) {
    return {"UserKnownHostsFile=" + option_path(file), "GlobalKnownHostsFile=/dev/null", "KnownHostsCommand=none",
            "CheckHostIP=no"};
}

// One file for all names that the host may have: "* ssh-ed25519 AAAA…".
std::string known_hosts(const std::string& host_key) {
    std::string text;
    for (const auto line : split(host_key, '\n')) {
        const std::string_view authority = "@cert-authority ";
        const bool is_authority = line.starts_with(authority);
        text += (is_authority ? std::string(authority) : "") + "* " +
                std::string(is_authority ? line.substr(authority.size()) : line) + "\n";
    }
    return text;
}

std::filesystem::path known_hosts_file(const std::filesystem::path& socket) {
    return socket.string() + ".known_hosts";
}

// What ssh itself says of a login, apart from the banner that the site has it print on standard error.
std::filesystem::path login_messages_file(const std::filesystem::path& socket) {
    return socket.string() + ".messages";
}

// Is there while a person's login was the last to make the connection.
std::filesystem::path persons_mark(const std::filesystem::path& socket) {
    return socket.string() + ".person";
}

std::vector<std::string> command(const TransportSpec& spec, const std::filesystem::path& socket,
                                 const std::vector<std::string>& options) {
    std::vector<std::string> argv = begin_command(spec, options);
    argv.insert(argv.end(), {"-o", "ControlPath=" + option_path(socket)});
    return argv;
}

Result<CommandResult> control(const TransportSpec& spec, const std::filesystem::path& socket, const char* verb) {
    std::vector<std::string> argv = command(spec, socket, {});
    argv.insert(argv.end(), {"-O", verb, "--", spec.host});
    return run_for(kControlTimeMax, argv);
}

bool stands(const TransportSpec& spec, const std::filesystem::path& socket) {
    std::error_code ignored;
    if (!std::filesystem::exists(socket, ignored)) return false;
    const auto answer = control(spec, socket, "check");
    return answer.ok() && answer->exit_code == 0;
}

// The command that makes the connection, with all that it needs.
Result<std::vector<std::string>> begin_connection(const TransportSpec& spec, const std::filesystem::path& socket,
                                                  bool is_interactive) {
    std::error_code ignored;
    std::filesystem::remove(socket, ignored);  // of a master that is dead or does not answer: ssh would do without one
    if (is_interactive)
        ATOLL_RETURN_IF_ERROR(write_file_atomic(persons_mark(socket), "", 0600));
    else
        std::filesystem::remove(persons_mark(socket), ignored);
    std::vector<std::string> options = {"LogLevel=INFO",         "ConnectTimeout=15",       "ServerAliveInterval=5",
                                        "ServerAliveCountMax=3", "ControlMaster=yes",       "ForwardAgent=no",
                                        "ForwardX11=no",         "ClearAllForwardings=yes", "PermitLocalCommand=no",
                                        "RemoteCommand=none"};
    // Ours lasts as long as logins are counted by default: a pause costs no more of them than work does. A person's
    // lasts: nobody else can make it again.
    options.insert(options.end(), {is_interactive ? "BatchMode=no" : "BatchMode=yes",
                                   is_interactive ? "ControlPersist=yes" : "ControlPersist=600"});
    options.insert(options.end(), kStrict.begin(), kStrict.end());
    if (!spec.host_key.empty()) {
        const auto file = known_hosts_file(socket);
        ATOLL_RETURN_IF_ERROR(write_file_atomic(file, known_hosts(spec.host_key), 0600));
        const auto pinned = only_known_hosts(file);
        options.insert(options.end(), pinned.begin(), pinned.end());
    }
    std::vector<std::string> argv = command(spec, socket, options);
    if (!is_interactive) argv.insert(argv.end(), {"-E", login_messages_file(socket).string()});
    argv.insert(argv.end(), {"-N", "-f", "--", spec.host});
    return argv;
}

// The messages of a login that has ended, which go with it: a connection that stands would write on.
std::string take_login_messages(const std::filesystem::path& socket) {
    const auto messages = read_file(login_messages_file(socket));
    std::error_code ignored;
    std::filesystem::remove(login_messages_file(socket), ignored);
    return messages.ok() ? *messages : "";
}

// A login that is counted as sites count them: by user, host and port, and of all users at a machine together.
class CountedLogin {
  public:
    // Counts it. kLoginsSpent: it is not allowed now. One that a person asks for may go one beyond the user's limit:
    // who has mended something need not wait to see whether that was it. `name`: of the facility, for the message.
    static Result<CountedLogin> begin(const TransportSpec& spec, const SshSettings& settings, const std::string& name,
                                      bool is_asked_for, const std::stop_token& stop, Clock::time_point until) {
        const LoginTarget target = resolve_target(spec);
        auto own = LoginLog::open(log_file(settings, to_text(target)), stop, until);
        if (!own.ok()) return no_answer(describe(own.error()));
        CountedLogin login(std::move(own).value(), log_file(settings, "host " + target.host), stop);
        const std::int64_t own_max = settings.logins_max + (is_asked_for ? 1 : 0);
        const std::string hint =
            is_asked_for ? "" : "; after a mend `atoll facility check " + name + "` tries once at once";
        ATOLL_RETURN_IF_ERROR(allow(login.own_, own_max, settings, to_text(target), hint));
        auto host = login.open_host_log();
        if (!host.ok()) return no_answer(describe(host.error()));
        ATOLL_RETURN_IF_ERROR(allow(*host, kHostFactor * settings.logins_max, settings,
                                    target.host + ", of all its users together,", ""));
        ATOLL_TRY(login.counted_, login.own_.add());
        ATOLL_TRY(login.counted_at_host_, host->add());
        return login;
    }
    // It has not come as far as the site.
    Status take_back() {
        ATOLL_RETURN_IF_ERROR(own_.take_back(counted_));
        ATOLL_TRY(LoginLog host, open_host_log());
        return host.take_back(counted_at_host_);
    }

  private:
    CountedLogin(LoginLog own, std::filesystem::path host_file, std::stop_token stop)
        : own_(std::move(own)), host_file_(std::move(host_file)), stop_(std::move(stop)) {}

    // Held for a moment: others log in to the machine meanwhile.
    Result<LoginLog> open_host_log() const { return LoginLog::open(host_file_, stop_, Clock::time_point::max()); }

    static Status allow(const LoginLog& log, std::int64_t logins_max, const SshSettings& settings,
                        const std::string& where, const std::string& hint) {
        const std::chrono::seconds window(settings.logins_window_s);
        const auto wait = log.wait(logins_max, window);
        if (wait.count() == 0) return {};
        // In whole minutes: who asks again hears the same for a while.
        const auto minutes = std::chrono::ceil<std::chrono::minutes>(wait).count();
        return no_answer(std::to_string(logins_max) + " logins at " + where + " within " +
                             human_seconds(static_cast<double>(window.count())) +
                             " are enough; the next one comes within " + std::to_string(minutes) + " m" + hint +
                             " (ssh_logins_max in dispatch's settings says how many a site bears)",
                         Cause::kLoginsSpent);
    }

    LoginLog own_;
    std::filesystem::path host_file_;
    std::stop_token stop_;
    std::int64_t counted_ = 0;
    std::int64_t counted_at_host_ = 0;
};

}  // namespace

std::int64_t logins_left(const TransportSpec& spec, const SshSettings& settings) {
    const LoginTarget target = resolve_target(spec);
    const std::chrono::seconds window(settings.logins_window_s);
    const auto own = LoginLog::count(log_file(settings, to_text(target)), window);
    const auto at_host = LoginLog::count(log_file(settings, "host " + target.host), window);
    return std::max<std::int64_t>(std::min(settings.logins_max - own, kHostFactor * settings.logins_max - at_host), 0);
}

SshMaster::SshMaster(const std::string& facility, const TransportSpec& spec, const SshSettings& settings,
                     std::stop_token stop)
    : facility_(facility),
      spec_(spec),
      settings_(settings),
      socket_(settings.control_directory / socket_name(facility, spec)),
      stop_(std::move(stop)) {}

SshMaster::~SshMaster() {
    std::error_code ignored;
    if (stop_.stop_requested() && std::filesystem::exists(persons_mark(socket_), ignored)) return;
    if (std::filesystem::exists(socket_, ignored)) (void)control(spec_, socket_, "exit");
    std::filesystem::remove(known_hosts_file(socket_), ignored);
    std::filesystem::remove(persons_mark(socket_), ignored);
}

bool SshMaster::is_open() const {
    return stands(spec_, socket_);
}

class SshMaster::Turn {
  public:
    Turn(SshMaster& master, Clock::time_point until) : master_(master) {
        std::unique_lock lock(master.mutex_);
        is_own_ = master.turn_ends_.wait_until(lock, until, [&] { return !master.is_turn_taken_; });
        if (is_own_) master.is_turn_taken_ = true;
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() {
        if (!is_own_) return;
        const std::scoped_lock lock(master_.mutex_);
        master_.is_turn_taken_ = false;
        master_.turn_ends_.notify_one();
    }
    bool is_own() const { return is_own_; }

  private:
    SshMaster& master_;
    bool is_own_ = false;
};

Status SshMaster::open(bool is_asked_for, Clock::time_point until) {
    const int seen = logins_;
    const Turn turn(*this, std::min(until, Clock::now() + 2 * kLoginTimeMax));
    if (!turn.is_own()) return no_answer("the login at " + spec_.host + " is still under way", Cause::kBusy);
    return open_in_turn(is_asked_for, until, seen);
}

Status SshMaster::open_in_turn(bool is_asked_for, Clock::time_point until, int logins_seen) {
    if (is_open()) return {};
    if (logins_ != logins_seen && !last_login_.ok()) return last_login_;
    Credentials now = read_credentials(spec_);
    if (!is_asked_for && is_still_refused(now)) return last_login_;
    Status login = log_in(is_asked_for, until);
    ++logins_;
    if (!login.ok() && login.error().cause == Cause::kLoginsSpent) return with_last_failure(login.error());
    last_login_ = std::move(login);
    credentials_ = std::move(now);
    tried_ = Clock::now();
    return last_login_;
}

// Why logins were spent is what a person can mend, so it comes first.
Error SshMaster::with_last_failure(Error spent) const {
    if (last_login_.ok()) return spent;
    const auto [seen, mend] = split_mend(last_login_.error().message);
    spent.message = seen + "; no further try for now: " + spent.message;
    return spent;
}

bool SshMaster::is_still_refused(const Credentials& now) const {
    if (last_login_.ok()) return false;
    const Cause cause = last_login_.error().cause;
    if (cause != Cause::kAuthentication && cause != Cause::kHostKey) return false;
    return now == credentials_ && Clock::now() - tried_ < kRefusalTimeMax;
}

// As one of the logins that are allowed.
Status SshMaster::log_in(bool is_asked_for, Clock::time_point until) const {
    auto login = CountedLogin::begin(spec_, settings_, facility_, is_asked_for, stop_, until);
    if (is_open()) {  // by another process, which held the log
        if (login.ok()) ATOLL_RETURN_IF_ERROR(login->take_back());
        return {};
    }
    if (!login.ok()) return login.error();
    bool has_reached_site = true;
    Status status = log_in_once(until, has_reached_site);
    if (settings_.on_login) settings_.on_login(facility_, status.ok());
    if (!has_reached_site) ATOLL_RETURN_IF_ERROR(login->take_back());
    return status;
}

Status SshMaster::log_in_once(Clock::time_point until, bool& has_reached_site) const {
    ATOLL_TRY(const auto argv, begin_connection(spec_, socket_, /*is_interactive=*/false));
    const auto left = until == Clock::time_point::max()
                          ? milliseconds(kLoginTimeMax)
                          : std::chrono::duration_cast<milliseconds>(until - Clock::now());
    (void)take_login_messages(socket_);  // of a process that was killed
    const auto raw = run_for(std::clamp(left, milliseconds(1), milliseconds(kLoginTimeMax)), argv, stop_);
    const std::string messages = take_login_messages(socket_);
    if (!raw.ok()) return no_answer("cannot start ssh: " + raw.error().message);
    if (raw->exit_code == 0 && !raw->timed_out) return {};
    const bool has_given_up = !raw->timed_out && raw->exit_code == kSshError;
    LoginFailure failure = read_login_failure(ssh_messages(messages, raw->err, has_given_up));
    if (raw->timed_out) failure.words = "the login takes too long";
    if (failure.words.empty()) failure.words = "ssh ended with status " + std::to_string(raw->exit_code);
    has_reached_site = failure.has_reached_site;
    std::string certificates;
    if (failure.cause == Cause::kAuthentication) {
        const Credentials credentials = read_credentials(spec_);
        certificates = describe_certificates(credentials);
        forget_foreign_key(failure, credentials.keys);
    }
    return no_answer(describe_login_failure(failure, facility_, spec_, certificates), failure.cause);
}

std::vector<std::string> SshMaster::session_command() const {
    std::vector<std::string> argv =
        command(spec_, socket_,
                {"BatchMode=yes", "LogLevel=ERROR", "ControlMaster=no", "RemoteCommand=none", "PermitLocalCommand=no",
                 // What ssh would connect by if there were no master.
                 "ProxyCommand=echo the connection has gone >&2; exit 1"});
    argv.insert(argv.end(), {"--", spec_.host});
    return argv;
}

Result<std::vector<std::string>> login_command(const std::string& facility, const TransportSpec& spec,
                                               const SshSettings& settings) {
    const auto socket = settings.control_directory / socket_name(facility, spec);
    if (stands(spec, socket)) return conflict("the connection to " + spec.host + " stands already");
    return begin_connection(spec, socket, /*is_interactive=*/true);
}

Result<std::string> read_host_key(const TransportSpec& spec, const SshSettings& settings, const std::stop_token& stop) {
    ATOLL_TRY(CountedLogin login,
              CountedLogin::begin(spec, settings, "NAME", /*is_asked_for=*/false, stop, Clock::time_point::max()));
    const TemporaryDirectory directory;
    const std::filesystem::path file = directory.path() / "known_hosts";
    std::vector<std::string> options = {"BatchMode=yes",
                                        "LogLevel=INFO",
                                        "ConnectTimeout=15",
                                        "ControlMaster=no",
                                        "ControlPath=none",
                                        "StrictHostKeyChecking=accept-new",
                                        "HashKnownHosts=no",
                                        "VerifyHostKeyDNS=no",
                                        "UpdateHostKeys=no",
                                        "NoHostAuthenticationForLocalhost=no",
                                        "PreferredAuthentications=none",
                                        "ClearAllForwardings=yes",
                                        "PermitLocalCommand=no",
                                        "RemoteCommand=none"};
    const auto own = only_known_hosts(file);
    options.insert(options.end(), own.begin(), own.end());
    std::vector<std::string> argv = begin_command(spec, options);
    argv.insert(argv.end(), {"--", spec.host, "true"});
    const auto raw = run_for(std::chrono::seconds(30), argv, stop);
    if (!raw.ok()) return no_answer("cannot start ssh: " + raw.error().message);
    const auto shown = read_file(file);
    if (!shown.ok()) {
        ATOLL_RETURN_IF_ERROR(login.take_back());
        return no_answer("no connection to " + spec.host + ": " + last_line(raw->err));
    }
    std::istringstream words(*shown);
    std::string host, type, key;
    words >> host >> type >> key;
    return type + " " + key;
}

}  // namespace atl::dispatch
