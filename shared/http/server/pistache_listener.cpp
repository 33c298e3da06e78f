// The only file that knows Pistache (0.0.5 of Debian 12 and 13, and 0.4).
//
// Pistache's reactor and Tcp::Transport read and write the sockets, its parser reads the requests but for long bodies,
// of which it would copy each byte several times, one by one; connections are taken and answers handed over here, and
// the bytes of an answer are ours. Http::Endpoint is not used, because
//  - it hands new connections and answers from thread to thread through a queue that loses wake-ups: pop() of mailbox.h
//    empties the eventfd after it has looked for work (0.4 still does), so what is pushed in between stays until the
//    next push. An answer, or a connection, then hangs.
//  - its handler answers errors with exception texts, leaves a connection open after a 413 (the rest of the body would
//    be read as new requests), cannot send arbitrary headers or the Content-Length of a HEAD, and changes a peer's
//    state from foreign threads.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pistache/http.h>
#include <pistache/peer.h>
#include <pistache/reactor.h>
#include <pistache/transport.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <csignal>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "shared/base/file.h"
#include "shared/http/server/listener.h"
#include "shared/http/server/listening_socket.h"
#include "shared/http/server/mailbox.h"

namespace atl::http {
namespace {

namespace ps = Pistache;

constexpr const char* kConnectionData = "atoll.connection";
// Counted from the previous request: an idle or stuck connection ends after it, once another client comes. Longer than
// any bounded wait.
constexpr std::chrono::seconds kConnectionIdleMax{300};
constexpr std::size_t kReadBytes = 128 << 10;   // of a body, at once
constexpr std::size_t kWriteBytes = 256 << 10;  // of an answer, in one of Pistache's buffers

int peer_socket(const ps::Tcp::Peer& peer) {
#if __has_include(<pistache/em_socket_t.h>)  // 0.4: Fd may be a libevent handle
    return peer.actualFd();
#else
    return peer.fd();
#endif
}

std::string lower_case(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
    return text;
}

const char* method_name(ps::Http::Method method) {
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

// `request` belongs to the parser, which needs it no more: the body is moved out of it rather than copied.
std::string take_body(ps::Http::Request& request) {
    return std::move(const_cast<std::string&>(std::as_const(request).body()));
}

RawRequest take(ps::Http::Request& request) {
    RawRequest raw;
    raw.method = method_name(request.method());
    raw.path = request.resource();
    const auto& query = std::as_const(request).query();
    for (auto it = query.parameters_begin(); it != query.parameters_end(); ++it) raw.query.insert(*it);
    for (const auto& [name, header] : std::as_const(request).headers().rawList())
        raw.headers.emplace(lower_case(name), header.value());
    raw.body = take_body(request);
    const auto connection = raw.headers.find("connection");
    const std::string wish = connection == raw.headers.end() ? "" : lower_case(connection->second);
    raw.keep_alive = request.version() == ps::Http::Version::Http11 ? wish != "close" : wish == "keep-alive";
    return raw;
}

// Lives on its reactor's thread, but for send() and hang_up().
class PeerConnection final : public Connection, public std::enable_shared_from_this<PeerConnection> {
  public:
    PeerConnection(const std::shared_ptr<ps::Tcp::Peer>& peer, std::shared_ptr<Mailbox> mailbox,
                   const ServerOptions& options, std::shared_ptr<std::atomic<std::size_t>> unread_bytes)
        : options_(options),
          parser_(options.request_bytes_max),
          peer_(peer),
          mailbox_(std::move(mailbox)),
          unread_bytes_(std::move(unread_bytes)),
          socket_(peer_socket(*peer)) {}
    ~PeerConnection() override { unread_bytes_->fetch_sub(held_bytes_); }

    // Takes bytes of a request, and what else of its body the socket holds. True once it is whole.
    bool take_in(const char* bytes, std::size_t size) {
        hold(size);
        if (body_) {
            body_->append(bytes, std::min(size, body_size_ - body_->size()));
        } else {
            if (!parser_->feed(bytes, size)) throw too_large();
            if (parser_->parse() == ps::Http::Private::State::Done) return true;
            begin_body();
        }
        while (body_ && body_->size() < body_size_)
            if (!read_body()) return false;
        return body_.has_value();
    }

    // The request that came whole.
    RawRequest take_out() {
        RawRequest request = take(parser_->request);
        if (body_) request.body = std::move(*body_);
        forget();
        return request;
    }

    // Makes ready for another request. The parser's own reset() forgets nothing of a body that it has begun.
    void forget() {
        parser_.emplace(options_.request_bytes_max);
        body_.reset();
        unread_bytes_->fetch_sub(held_bytes_);
        held_bytes_ = 0;
    }

    void send(std::string message, std::shared_ptr<void> until_written, bool close) override {
        mailbox_->post([self = shared_from_this(), message = std::move(message),
                        until_written = std::move(until_written),
                        close] { self->write(message, until_written, close); });
    }

    // Queues the message; Transport::flush() sends it. In blocks: whenever the socket is full, Pistache copies what is
    // left of a buffer.
    void write(const std::string& message, const std::shared_ptr<void>& until_written, bool close) {
        const auto peer = peer_.lock();
        if (!busy_ || !peer) return;
        busy_ = false;
        refusing_ = refusing_ || close;
        try {
            for (std::size_t begin = 0; begin < message.size(); begin += kWriteBytes) {
                std::string block = message.substr(begin, kWriteBytes);
                const std::size_t size = block.size();
                const bool is_last = begin + size == message.size();
                peer->send(ps::RawBuffer(std::move(block), size))
                    .then(
                        [until_written, weak = peer_, ends = close && is_last](ssize_t) {
                            if (const auto alive = weak.lock(); alive && ends) ::shutdown(peer_socket(*alive), SHUT_WR);
                        },
                        [until_written](const std::exception_ptr&) {});
            }
        } catch (const std::exception&) {
            refusing_ = true;  // memory has gone: nobody to tell
        }
    }

    // A request has arrived whole. False: nothing more is accepted here. A second request before the answer to the
    // first (pipelining, which Pistache cannot do) makes it so.
    bool begin() {
        if (refusing()) return false;
        busy_ = true;
        last_request_ = std::chrono::steady_clock::now();
        return true;
    }

    bool refusing() {
        refusing_ = refusing_ || busy_;
        return refusing_;
    }

    bool idle_too_long() const { return std::chrono::steady_clock::now() - last_request_ > kConnectionIdleMax; }

    // The socket is about to be closed, after which its number may be another client's.
    void leave() {
        const std::lock_guard lock(socket_mutex_);
        socket_ = -1;
    }

    void hang_up() {
        const std::lock_guard lock(socket_mutex_);
        if (socket_ >= 0) ::shutdown(socket_, SHUT_RDWR);
    }

  private:
    static ps::Http::HttpError too_large() {
        return {ps::Http::Code::Request_Entity_Too_Large, "the request is too large"};
    }

    // Counts bytes of a request that has not come whole.
    void hold(std::size_t bytes) {
        held_bytes_ += bytes;
        if (unread_bytes_->fetch_add(bytes) + bytes > options_.body_bytes_max)
            throw ps::Http::HttpError(ps::Http::Code::Service_Unavailable, "too many bytes of requests are being read");
    }

    // From here on a body whose length is known goes past the parser, once that has read the headers.
    void begin_body() {
        const auto length = std::as_const(parser_->request).headers().tryGet<ps::Http::Header::ContentLength>();
        if (!length || parser_->step()->id() != ps::Http::Private::BodyStep::Id) return;
        body_size_ = length->value();
        if (body_size_ > options_.request_bytes_max) throw too_large();
        body_ = take_body(parser_->request);
        body_->reserve(body_size_);
    }

    // False: the socket holds no more just now.
    bool read_body() {
        const std::size_t begin = body_->size();
        body_->resize(begin + std::min(kReadBytes, body_size_ - begin));
        const ssize_t got = ::recv(socket_, body_->data() + begin, body_->size() - begin, 0);
        const auto size = static_cast<std::size_t>(std::max<ssize_t>(got, 0));
        body_->resize(begin + size);
        hold(size);
        return size > 0;
    }

    const ServerOptions& options_;  // gone once the listener has stopped, when no input comes any more
    std::optional<ps::Http::RequestParser> parser_;
    std::optional<std::string> body_;
    std::size_t body_size_ = 0;
    std::weak_ptr<ps::Tcp::Peer> peer_;
    std::shared_ptr<Mailbox> mailbox_;
    std::shared_ptr<std::atomic<std::size_t>> unread_bytes_;  // of all connections
    std::size_t held_bytes_ = 0;                              // this one's part of them
    std::chrono::steady_clock::time_point last_request_ = std::chrono::steady_clock::now();
    bool busy_ = false;      // a request waits for its answer
    bool refusing_ = false;  // whatever still comes is thrown away
    std::mutex socket_mutex_;
    int socket_;
};

// What the threads share.
struct Shared {
    Shared(ServerOptions all_options, ListenerCallbacks functions)
        : options(std::move(all_options)), callbacks(std::move(functions)) {}

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

    const ServerOptions options;
    const ListenerCallbacks callbacks;
    UniqueFd listening;
    const std::shared_ptr<std::atomic<std::size_t>> unread_bytes = std::make_shared<std::atomic<std::size_t>>(0);
    std::mutex mutex;
    std::vector<std::weak_ptr<PeerConnection>> connections;
};

// What Pistache calls on one of the reactor's threads.
class RequestHandler final : public ps::Tcp::Handler {
  public:
    explicit RequestHandler(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
    ~RequestHandler() override { mailbox_->close(); }

    std::shared_ptr<ps::Tcp::Handler> clone() const override { return std::make_shared<RequestHandler>(shared_); }

    void onConnection(const std::shared_ptr<ps::Tcp::Peer>& peer) override {
        const auto connection =
            std::make_shared<PeerConnection>(peer, mailbox_, shared_->options, shared_->unread_bytes);
        peer->putData(kConnectionData, connection);
        shared_->add(connection);
    }

    void onDisconnection(const std::shared_ptr<ps::Tcp::Peer>& peer) override {
        if (const auto connection = find_connection(peer)) connection->leave();
    }

    void onInput(const char* bytes, std::size_t size, const std::shared_ptr<ps::Tcp::Peer>& peer) override {
        const auto connection = find_connection(peer);
        if (!connection || connection->refusing()) return;
        try {
            if (!connection->take_in(bytes, size)) return;
            RawRequest request = connection->take_out();
            if (connection->begin()) shared_->callbacks.on_request(std::move(request), connection);
        } catch (const ps::Http::HttpError& error) {
            return refuse(*connection, error.code(), error.reason());
        } catch (const std::exception&) {
            return refuse(*connection, 400, "the request cannot be read");
        }
        deliver();  // what was answered at once: a client that keeps sending keeps us from the mailbox
    }

    int mailbox_fd() const { return mailbox_->fd(); }

    void deliver() {
        mailbox_->run();
        transport()->flush();
    }

    static std::shared_ptr<PeerConnection> find_connection(const std::shared_ptr<ps::Tcp::Peer>& peer) {
        return std::static_pointer_cast<PeerConnection>(peer->tryGetData(kConnectionData));
    }

  private:
    void refuse(PeerConnection& connection, int status, const std::string& why) {
        connection.forget();
        if (connection.begin()) connection.write(shared_->callbacks.refuse(status, why), nullptr, true);
        deliver();
    }

    std::shared_ptr<Shared> shared_;
    std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
};

// One of the reactor's threads: takes connections for itself, and the answers that lie in its mailbox.
class ConnectionTransport final : public ps::Tcp::Transport {
  public:
    explicit ConnectionTransport(const std::shared_ptr<Shared>& shared)
        : ConnectionTransport(shared, std::make_shared<RequestHandler>(shared)) {}

    std::shared_ptr<ps::Aio::Handler> clone() const override { return std::make_shared<ConnectionTransport>(shared_); }

    void registerPoller(ps::Polling::Epoll& poller) override {
        Transport::registerPoller(poller);
        for (const int fd : {shared_->listening.get(), handler_->mailbox_fd()})
            poller.addFd(fd, ps::Flags(ps::Polling::NotifyOn::Read), make_tag(fd));
    }

    void onReady(const ps::Aio::FdSet& ready) override {
        Transport::onReady(ready);  // passes over what it does not know
        for (const auto& entry : ready) {
            if (entry.getTag() == make_tag(handler_->mailbox_fd())) handler_->deliver();
            if (entry.getTag() == make_tag(shared_->listening.get())) take_connections();
        }
    }

  private:
    ConnectionTransport(std::shared_ptr<Shared> shared, const std::shared_ptr<RequestHandler>& handler)
        : Transport(handler), shared_(std::move(shared)), handler_(handler) {}

    static ps::Polling::Tag make_tag(int fd) { return ps::Polling::Tag(static_cast<std::uint64_t>(fd)); }

    void take_connections() {
        close_idle();
        for (;;) {
            const int fd = ::accept4(shared_->listening.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
            if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
            // It listens no more (EINVAL), or there are no descriptors or memory and the client stays in the backlog:
            // this would be called at once again.
            if (fd < 0 && errno != EAGAIN)
                std::this_thread::sleep_for(std::chrono::milliseconds(errno == EINVAL ? 1 : 20));
            if (fd < 0) return;
            const int on = 1;
            ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // no matter for a unix socket
            // Nobody asks for a peer's address, and Pistache knows none of unix sockets.
            handleNewPeer(ps::Tcp::Peer::Create(fd, ps::Address()));
        }
    }

    void close_idle() {
        for (const auto& peer : getAllPeer()) {
            const auto connection = RequestHandler::find_connection(peer);
            if (!connection->idle_too_long()) continue;
            connection->leave();
            removePeer(peer);
        }
    }

    std::shared_ptr<Shared> shared_;
    std::shared_ptr<RequestHandler> handler_;
};

}  // namespace

class Listener::Impl {
  public:
    Impl(ServerOptions options, ListenerCallbacks callbacks)
        : shared_(std::make_shared<Shared>(std::move(options), std::move(callbacks))) {}

    Status start() {
        std::signal(SIGPIPE, SIG_IGN);
        ATOLL_TRY(shared_->listening, listen_on(shared_->options.address, shared_->options.port));
        reactor_ = ps::Aio::Reactor::create();
        reactor_->init(ps::Aio::AsyncContext(static_cast<std::size_t>(shared_->options.io_threads), "http"));
        reactor_->addHandler(std::make_shared<ConnectionTransport>(shared_));
        reactor_->run();
        return {};
    }

    std::uint16_t port() const { return bound_port(shared_->listening); }

    // The descriptor stays, as the threads wait at it.
    void stop_listening() {
        if (shared_->listening.get() >= 0) ::shutdown(shared_->listening.get(), SHUT_RDWR);
    }

    void stop() {
        if (!reactor_) return;
        shared_->hang_up_all();
        reactor_->shutdown();
        reactor_.reset();  // joins its threads
        shared_->listening.reset();
    }

  private:
    std::shared_ptr<Shared> shared_;
    std::shared_ptr<ps::Aio::Reactor> reactor_;
};

Listener::Listener(ServerOptions options, ListenerCallbacks callbacks)
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

void Listener::stop_listening() {
    impl_->stop_listening();
}

void Listener::stop() {
    impl_->stop();
}

}  // namespace atl::http
