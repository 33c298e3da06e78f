// The only file that knows Pistache (0.0.5 of Debian 12 and 13, and 0.4).
//
// Pistache reads sockets and parses requests; the bytes of an answer are ours and go through Tcp::Peer::send. We
// replace Http::Handler's onConnection and onInput, because those of Pistache answer errors with exception texts, leave
// a connection open after a 413 (the rest of the body would be read as new requests), cannot send arbitrary headers or
// the Content-Length of a HEAD, and change a peer's state from foreign threads.
#include <pistache/endpoint.h>
#include <pistache/http.h>
#include <pistache/peer.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <csignal>
#include <mutex>
#include <utility>
#include <vector>

#include "shared/http/listener.h"

namespace atl::http {
namespace {

namespace ps = Pistache;

constexpr const char* kConnectionData = "atoll.connection";
// Counted from the previous request: an idle or stuck connection ends after it. Longer than any bounded wait.
constexpr std::chrono::seconds kConnectionIdleMax{300};
constexpr int kBacklog = 1024;

int socket_of(const ps::Tcp::Peer& peer) {
#if __has_include(<pistache/em_socket_t.h>)  // 0.4: Fd may be a libevent handle
    return peer.actualFd();
#else
    return peer.fd();
#endif
}

class PeerConnection final : public Connection {
  public:
    explicit PeerConnection(const std::shared_ptr<ps::Tcp::Peer>& peer) : peer_(peer) {}

    // The lock and `gone_` keep an answer from reaching a later client that got the same descriptor: while we queue
    // the bytes the peer cannot leave, and Pistache handles its write queue before it takes a new peer.
    void send(std::string message, std::shared_ptr<void> until_written, bool close) override {
        const std::lock_guard lock(mutex_);
        const auto peer = peer_.lock();
        if (!busy_ || gone_ || !peer) return;
        busy_ = false;
        refusing_ = refusing_ || close;
        try {
            const std::size_t size = message.size();
            const ps::RawBuffer buffer(std::move(message), size);
            peer->send(buffer).then(
                [until_written, weak = peer_, close](ssize_t) {
                    if (const auto alive = weak.lock(); alive && close) ::shutdown(socket_of(*alive), SHUT_WR);
                },
                [until_written](std::exception_ptr) {});
        } catch (const std::exception&) {
            refusing_ = true;  // the client has gone, or memory has: nobody to tell
        }
    }

    // A request has arrived whole. False: nothing more is accepted here. A second request before the answer to the
    // first (pipelining, which Pistache cannot do) makes it so.
    bool begin() {
        const std::lock_guard lock(mutex_);
        if (busy_) refusing_ = true;
        if (refusing_) return false;
        busy_ = true;
        return true;
    }

    bool refusing() {
        const std::lock_guard lock(mutex_);
        if (busy_) refusing_ = true;
        return refusing_;
    }

    void leave() {
        const std::lock_guard lock(mutex_);
        gone_ = true;
    }

    void hang_up() {
        const std::lock_guard lock(mutex_);
        refusing_ = true;
        if (const auto peer = peer_.lock(); peer && !gone_) ::shutdown(socket_of(*peer), SHUT_RDWR);
    }

  private:
    std::mutex mutex_;
    std::weak_ptr<ps::Tcp::Peer> peer_;
    bool busy_ = false;      // a request waits for its answer
    bool refusing_ = false;  // whatever still comes is thrown away
    bool gone_ = false;      // the client has left
};

// What the copies of the handler (one a thread) share.
struct Shared {
    explicit Shared(ListenerCallbacks functions) : callbacks(std::move(functions)) {}

    void add(const std::shared_ptr<PeerConnection>& connection) {
        const std::lock_guard lock(mutex);
        std::erase_if(connections, [](const auto& weak) { return weak.expired(); });
        connections.push_back(connection);
    }
    void hang_up_all() {
        const std::lock_guard lock(mutex);
        for (const auto& weak : connections)
            if (const auto connection = weak.lock()) connection->hang_up();
    }

    ListenerCallbacks callbacks;
    std::mutex mutex;
    std::vector<std::weak_ptr<PeerConnection>> connections;
};

std::string lower_case(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
    return text;
}

const char* name_of(ps::Http::Method method) {
    switch (method) {
        case ps::Http::Method::Get:
            return "GET";
        case ps::Http::Method::Head:
            return "HEAD";
        case ps::Http::Method::Post:
            return "POST";
        case ps::Http::Method::Put:
            return "PUT";
        case ps::Http::Method::Patch:
            return "PATCH";
        case ps::Http::Method::Delete:
            return "DELETE";
        default:
            return "";
    }
}

// `request` belongs to the parser, which is reset next: the body is moved out of it rather than copied.
RawRequest take(ps::Http::Request& request) {
    RawRequest raw;
    raw.method = name_of(request.method());
    raw.path = request.resource();
    const auto& query = std::as_const(request).query();
    for (auto it = query.parameters_begin(); it != query.parameters_end(); ++it) raw.query.insert(*it);
    for (const auto& [name, header] : std::as_const(request).headers().rawList())
        raw.headers.emplace(lower_case(name), header.value());
    raw.body = std::move(const_cast<std::string&>(std::as_const(request).body()));
    const auto connection = raw.headers.find("connection");
    const std::string wish = connection == raw.headers.end() ? "" : lower_case(connection->second);
    raw.keep_alive = request.version() == ps::Http::Version::Http11 ? wish != "close" : wish == "keep-alive";
    return raw;
}

class RequestHandler : public ps::Http::Handler {
  public:
    HTTP_PROTOTYPE(RequestHandler)

    explicit RequestHandler(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

    void onRequest(const ps::Http::Request&, ps::Http::ResponseWriter) override {}  // onInput never calls it

    void onDisconnection(const std::shared_ptr<ps::Tcp::Peer>& peer) override {
        if (const auto connection = connection_of(peer)) connection->leave();
    }

  private:
    void onConnection(const std::shared_ptr<ps::Tcp::Peer>& peer) override {
        peer->putData(ParserData, std::make_shared<ps::Http::RequestParser>(getMaxRequestSize()));
        const auto connection = std::make_shared<PeerConnection>(peer);
        peer->putData(kConnectionData, connection);
        peer->setIdle(true);  // for good: otherwise Pistache sends a 408 of its own to connections that merely rest
        shared_->add(connection);
    }

    void onInput(const char* bytes, std::size_t size, const std::shared_ptr<ps::Tcp::Peer>& peer) override {
        const auto connection = connection_of(peer);
        if (!connection || connection->refusing()) return;
        const auto parser = getParser(peer);
        try {
            if (!parser->feed(bytes, size)) return refuse(connection, *parser, 413, "the request is too large");
            if (parser->parse() != ps::Http::Private::State::Done) return;
            RawRequest request = take(parser->request);
            parser->reset();
            if (connection->begin()) shared_->callbacks.on_request(std::move(request), connection);
        } catch (const ps::Http::HttpError& error) {
            refuse(connection, *parser, error.code(), error.reason());
        } catch (const std::exception&) {
            refuse(connection, *parser, 400, "the request cannot be read");
        }
        // From this thread nothing else wakes the writer while a client keeps sending.
        transport()->flush();
    }

    void refuse(const std::shared_ptr<PeerConnection>& connection, ps::Http::RequestParser& parser, int status,
                const std::string& why) {
        parser.reset();
        if (connection->begin()) connection->send(shared_->callbacks.refuse(status, why), nullptr, true);
        transport()->flush();
    }

    static std::shared_ptr<PeerConnection> connection_of(const std::shared_ptr<ps::Tcp::Peer>& peer) {
        return std::static_pointer_cast<PeerConnection>(peer->tryGetData(kConnectionData));
    }

    std::shared_ptr<Shared> shared_;
};

}  // namespace

class Listener::Impl {
  public:
    Impl(ListenerOptions options, ListenerCallbacks callbacks)
        : options_(std::move(options)), shared_(std::make_shared<Shared>(std::move(callbacks))) {}

    Status start() {
        std::signal(SIGPIPE, SIG_IGN);
        try {
            const ps::Address address(options_.address, ps::Port(options_.port));
            auto endpoint = std::make_unique<ps::Http::Endpoint>(address);
            using Flag = ps::Tcp::Options;
            endpoint->init(ps::Http::Endpoint::options()
                               .threads(options_.threads)
                               .flags(ps::Flags<Flag>(Flag::ReuseAddr) | Flag::NoDelay | Flag::CloseOnExec)
                               .backlog(kBacklog)  // 0.0.5 stays at its own 128
                               .maxRequestSize(options_.request_bytes_max)
                               .maxResponseSize(options_.response_bytes_max)
                               .headerTimeout(kConnectionIdleMax)
                               .bodyTimeout(kConnectionIdleMax)
                               .keepaliveTimeout(kConnectionIdleMax));
            endpoint->setHandler(std::make_shared<RequestHandler>(shared_));
            endpoint->serveThreaded();
            endpoint_ = std::move(endpoint);
            return {};
        } catch (const std::exception& error) {
            return unavailable("cannot listen on " + options_.address + ":" + std::to_string(options_.port) + ": " +
                               error.what());
        }
    }

    std::uint16_t port() const { return endpoint_ ? static_cast<std::uint16_t>(endpoint_->getPort()) : 0; }

    void stop() {
        if (!endpoint_) return;
        shared_->hang_up_all();
        endpoint_->shutdown();
        endpoint_.reset();
    }

  private:
    ListenerOptions options_;
    std::shared_ptr<Shared> shared_;
    std::unique_ptr<ps::Http::Endpoint> endpoint_;
};

Listener::Listener(ListenerOptions options, ListenerCallbacks callbacks)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(callbacks))) {}

Listener::~Listener() {
    impl_->stop();
}

Status Listener::start() {
    return impl_->start();
}

std::uint16_t Listener::port() const {
    return impl_->port();
}

void Listener::stop() {
    impl_->stop();
}

}  // namespace atl::http
