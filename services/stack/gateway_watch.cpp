#include "services/stack/gateway_watch.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <list>
#include <thread>
#include <vector>

#include "services/stack/name_lookup.h"
#include "services/stack/renewal.h"
#include "shared/base/backoff.h"
#include "shared/base/file.h"

namespace atl::stack {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kLookInterval{2000};
constexpr milliseconds kTryInterval{100};
constexpr int kKeptMax = 256;  // requests at once that wait, or are answered after they have waited

bool is_socket_path(const std::string& address) {
    return address.starts_with("unix:");
}

UniqueFd connect_now(const std::string& address) {
    const Addresses found = look_up(address);
    for (const addrinfo* one = found.get(); one != nullptr; one = one->ai_next) {
        UniqueFd connection(::socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, one->ai_protocol));
        const timeval patience{2, 0};  // an address without a machine keeps silent
        ::setsockopt(connection.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        if (::connect(connection.get(), one->ai_addr, one->ai_addrlen) != 0) continue;
        const timeval none{0, 0};
        ::setsockopt(connection.get(), SOL_SOCKET, SO_SNDTIMEO, &none, sizeof none);
        return connection;
    }
    return {};
}

bool send_all(int to, const char* bytes, std::size_t count) {
    while (count > 0) {
        const ssize_t sent = ::send(to, bytes, count, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return false;
        bytes += sent;
        count -= static_cast<std::size_t>(sent);
    }
    return true;
}

// Until either side ends, which then is the end of both.
void pass_on(int from, int to) {
    std::array<char, 16384> bytes{};
    for (;;) {
        const ssize_t count = ::recv(from, bytes.data(), bytes.size(), 0);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0 || !send_all(to, bytes.data(), static_cast<std::size_t>(count))) break;
    }
    ::shutdown(from, SHUT_RDWR);
    ::shutdown(to, SHUT_RDWR);
}

bool has_hung_up(int connection) {
    pollfd one{connection, POLLRDHUP, 0};
    return ::poll(&one, 1, 0) > 0;
}

// Takes connections at a socket and passes them on to the service once it can be reached.
class WaitingRoom {
  public:
    WaitingRoom(UniqueFd listening, std::string service, seconds patience)
        : listening_(std::move(listening)), service_(std::move(service)), patience_(patience) {}
    ~WaitingRoom() {
        if (!acceptor_.joinable()) return;  // another process may be at the socket
        acceptor_.request_stop();
        ::shutdown(listening_.get(), SHUT_RDWR);
        acceptor_.join();
        for (Kept& one : kept_) ::shutdown(one.client.get(), SHUT_RDWR);
    }
    WaitingRoom(const WaitingRoom&) = delete;
    WaitingRoom& operator=(const WaitingRoom&) = delete;

    static Result<UniqueFd> listen_at(const fs::path& path) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        if (path.string().size() >= sizeof address.sun_path)
            return invalid_argument("--directory", "its path is too long for a socket: " + path.string());
        path.string().copy(address.sun_path, sizeof address.sun_path - 1);
        std::error_code ignored;
        fs::remove(path, ignored);
        UniqueFd listening(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (::bind(listening.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
            ::listen(listening.get(), kKeptMax) != 0)
            return internal_error("cannot listen at " + path.string());
        return listening;
    }

    void open() {
        acceptor_ = std::jthread([this](const std::stop_token& stop) { take(stop); });
    }

  private:
    struct Kept {
        UniqueFd client;
        std::atomic<bool> is_done = false;
        std::jthread thread = {};
    };

    void take(const std::stop_token& stop) {
        while (!stop.stop_requested()) {
            UniqueFd client(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
            if (!client.valid() && errno == EINVAL) return;  // it was shut down
            if (!client.valid()) {
                wait_unless_stopped(stop, kTryInterval);
                continue;
            }
            kept_.remove_if([](const Kept& one) { return one.is_done.load(); });
            if (kept_.size() >= kKeptMax) continue;  // nginx answers 503
            Kept& one = kept_.emplace_back(std::move(client));
            one.thread = std::jthread([this, &one, stop] {
                keep(one.client.get(), stop);
                one.is_done = true;
            });
        }
    }

    void keep(int client, const std::stop_token& stop) const {
        const auto deadline = Clock::now() + patience_;
        for (;;) {
            const UniqueFd service = connect_now(service_);
            if (service.valid()) {
                const std::jthread back([&] { pass_on(service.get(), client); });
                pass_on(client, service.get());
                return;
            }
            if (Clock::now() > deadline || has_hung_up(client) || !wait_unless_stopped(stop, kTryInterval)) break;
        }
        ::shutdown(client, SHUT_RDWR);
    }

    const UniqueFd listening_;
    const std::string service_;
    const seconds patience_;
    std::list<Kept> kept_;  // the acceptor's, until that has ended
    std::jthread acceptor_;
};

}  // namespace

class GatewayWatch::Impl {
  public:
    explicit Impl(const GatewayOptions& options)
        : options_(options), files_({options.certificate, options.certificate_key, options.client_ca}) {
        look();
    }

    Status listen() {
        if (options_.wait_s == 0) return {};
        for (const auto& [name, address] : services_of(options_)) {
            if (is_socket_path(address)) continue;
            ATOLL_TRY(UniqueFd listening, WaitingRoom::listen_at(waiting_socket(options_, name)));
            rooms_.emplace_back(std::move(listening), address, seconds(options_.wait_s));
        }
        return {};
    }

    void run(pid_t nginx, const std::stop_token& stop) {
        for (WaitingRoom& room : rooms_) room.open();
        while (wait_unless_stopped(stop, kLookInterval)) {
            if (::kill(nginx, 0) != 0) return;
            // Without its file nginx may not know yet what the signal means.
            if (fs::exists(options_.directory / "nginx.pid") && look()) ::kill(nginx, SIGHUP);
        }
    }

  private:
    // Whether anything is not as it was; nginx is to read its configuration anew then.
    bool look() {
        bool has_changed = files_.has_changed();
        ServiceAddresses now = look_up_services(options_, addresses_);
        // What could not be written is tried again.
        if (now != addresses_ && write_gateway_configuration(options_, now).ok()) {
            addresses_ = std::move(now);
            has_changed = true;
        }
        return has_changed;
    }

    const GatewayOptions options_;
    FileWatch files_;
    ServiceAddresses addresses_;
    std::list<WaitingRoom> rooms_;
};

GatewayWatch::GatewayWatch(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GatewayWatch::~GatewayWatch() = default;

Result<std::unique_ptr<GatewayWatch>> GatewayWatch::make(const GatewayOptions& options) {
    auto impl = std::make_unique<Impl>(options);
    ATOLL_RETURN_IF_ERROR(impl->listen());
    return std::unique_ptr<GatewayWatch>(new GatewayWatch(std::move(impl)));
}

void GatewayWatch::run(pid_t nginx, const std::stop_token& stop) {
    impl_->run(nginx, stop);
}

Status start_gateway_watch(const GatewayOptions& options) {
    ATOLL_TRY(const auto watch, GatewayWatch::make(options));
    const pid_t nginx = ::getpid();
    const pid_t child = ::fork();
    if (child < 0) return internal_error("cannot start the watch beside nginx");
    if (child > 0) return {};
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() == nginx) watch->run(nginx);
    ::_exit(0);
}

}  // namespace atl::stack
