#include "services/stack/layout.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>
#include <vector>

#include "shared/auth/certificate.h"
#include "shared/base/environment.h"
#include "shared/base/file.h"
#include "shared/base/text.h"
#include "shared/digest/digest.h"
#include "shared/http/message.h"
#include "shared/json/json.h"

namespace atl::stack {
namespace {

using nlohmann::json;
using Member = std::pair<const char*, std::uint16_t Ports::*>;
constexpr Member kMembers[] = {
    {"gateway", &Ports::gateway}, {"kafka", &Ports::kafka}, {"kafka_controller", &Ports::kafka_controller}};

// A socket bound to the port on loopback; invalid when it is taken. SO_REUSEADDR as servers use it: a port whose last
// connections are only winding down (TIME_WAIT) is free.
UniqueFd bind_loopback(std::uint16_t port) {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd.valid()) return fd;
    const int on = 1;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(fd.get(), 1) != 0)
        fd.reset();
    return fd;
}

std::uint16_t bound_port(const UniqueFd& fd) {
    sockaddr_in address{};
    socklen_t size = sizeof address;
    if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
    return ntohs(address.sin_port);
}

// Below the range from which the kernel takes the ports of outgoing connections: one of those could take the port
// between our choice and the program's start.
UniqueFd bind_any() {
    std::random_device random;
    std::uniform_int_distribution<int> below_ephemeral(10000, 32000);
    for (int attempt = 0; attempt < 100; ++attempt) {
        UniqueFd fd = bind_loopback(static_cast<std::uint16_t>(below_ephemeral(random)));
        if (fd.valid()) return fd;
    }
    return bind_loopback(0);
}

// All are held open until the last is chosen, so that no two are the same.
Result<Ports> any_free_ports() {
    Ports ports;
    std::vector<UniqueFd> held;
    for (const auto& [name, member] : kMembers) {
        held.push_back(bind_any());
        ports.*member = bound_port(held.back());
        if (ports.*member == 0) return unavailable("no free TCP port on 127.0.0.1");
    }
    return ports;
}

// As "0.0.0.0:7443", "[::]:7443" or "*:7443".
bool is_listen_address(const std::string& text) {
    const auto colon = text.rfind(':');
    if (colon == std::string::npos || colon == 0) return false;
    int port = 0;
    const auto [end, error] = std::from_chars(text.data() + colon + 1, text.data() + text.size(), port);
    return error == std::errc() && end == text.data() + text.size() && port >= 1 && port <= 65535 &&
           std::all_of(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(colon), [](unsigned char c) {
               return std::isalnum(c) != 0 ||
                      std::string_view(".-:[]*").find(static_cast<char>(c)) != std::string_view::npos;
           });
}

// An address of IPv4 or IPv6, or a network of such addresses.
bool is_network(const std::string& text) {
    const auto slash = text.find('/');
    const std::string address = text.substr(0, slash);
    in6_addr parsed{};
    const bool is_v4 = ::inet_pton(AF_INET, address.c_str(), &parsed) == 1;
    if (!is_v4 && ::inet_pton(AF_INET6, address.c_str(), &parsed) != 1) return false;
    if (slash == std::string::npos) return true;
    unsigned bits = 0;
    const char* end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data() + slash + 1, end, bits);
    return error == std::errc() && stopped == end && bits >= 1 && bits <= (is_v4 ? 32 : 128);  // 0: everybody's
}

// None where only root may listen there.
Status check_port_of(const std::string& listen) {
    std::ifstream file("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    int first = 1024;
    file >> first;
    const int port = std::stoi(listen.substr(listen.rfind(':') + 1));
    if (port >= first) return {};
    return invalid_argument("--public-listen",
                            "ports below " + std::to_string(first) +
                                " need root, and nginx runs as another user: use a higher one, such as "
                                "7443; or let a proxy of your own listen on port " +
                                std::to_string(port) +
                                "; or `sysctl net.ipv4.ip_unprivileged_port_start=" + std::to_string(port) + "`");
}

// Under /tmp somebody else may have made it.
Status make_socket_directory(const std::filesystem::path& directory) {
    struct stat info{};
    ::mkdir(directory.c_str(), 0700);
    if (::lstat(directory.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != ::geteuid())
        return conflict(directory.string() + " is no directory of ours", "--state");
    ::chmod(directory.c_str(), 0700);
    return {};
}

bool somebody_listens(const std::string& socket) {
    sockaddr_un where{};
    where.sun_family = AF_UNIX;
    if (socket.empty() || socket.size() >= sizeof where.sun_path) return false;
    socket.copy(where.sun_path, socket.size());
    const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const auto* address = reinterpret_cast<const sockaddr*>(&where);
    return ::connect(probe.get(), address, sizeof where) == 0 || errno == EAGAIN;  // it has no time at the moment
}

}  // namespace

std::filesystem::path socket_directory(const Layout& layout, const std::filesystem::path& inside,
                                       const std::string& socket_name, const std::string& purpose) {
    constexpr std::size_t kSocketPathMax = 107;  // of sockaddr_un, without the final zero
    const std::string path = (inside / socket_name).string();
    if (path.size() <= kSocketPathMax && path.find(":/") == std::string::npos) return inside;
    return "/tmp/atoll-" + std::to_string(::geteuid()) + "-" + digest::sha256(layout.state.string()).substr(0, 12) +
           purpose;
}

std::filesystem::path Layout::socket(const std::string& service) const {
    // All lie in one directory, whose length the longest name decides.
    return socket_directory(*this, state / "run", "aggregation.sock", "-run") / (service + ".sock");
}

std::string quoted(const std::filesystem::path& path) {
    const std::string text = path.string();
    const bool is_plain = !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
        return std::isalnum(c) != 0 || c >= 0x80 ||
               std::string_view("/._-+,:@%=").find(static_cast<char>(c)) != std::string_view::npos;
    });
    if (is_plain) return text;
    std::string in_quotes = "'";
    for (const char c : text) in_quotes += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return in_quotes + "'";
}

std::string start_command(const std::filesystem::path& state) {
    return "atoll up --state " + quoted(std::filesystem::absolute(state).lexically_normal());
}

std::filesystem::path default_state_directory() {
    if (const std::string given = environment("ATOLL_STATE"); !given.empty()) return given;
    if (::geteuid() == 0) return "/var/lib/atoll";
    if (const std::string home = environment("XDG_STATE_HOME"); !home.empty())
        return std::filesystem::path(home) / "atoll";
    return std::filesystem::path(environment("HOME")) / ".local/state/atoll";
}

std::uint16_t Ports::of(const std::string& component) const {
    for (const auto& [name, member] : kMembers)
        if (component == name) return this->*member;
    return 0;
}

bool port_is_free(std::uint16_t port) {
    return bind_loopback(port).valid();
}

Result<Ports> choose_ports(std::uint16_t base) {
    if (base == 0) return any_free_ports();
    Ports ports;
    std::uint16_t next = base;
    for (const auto& [name, member] : kMembers) {
        if (!port_is_free(next))
            return conflict("port " + std::to_string(next) + " (" + name +
                                ") is taken by another program; choose other " +
                                "ports with --port-base N, or --port-base 0 for any free ones",
                            "--port-base");
        ports.*member = next++;
    }
    return ports;
}

nlohmann::json to_json(const Ports& ports) {
    nlohmann::json json;
    for (const auto& [name, member] : kMembers) json[name] = ports.*member;
    return json;
}

Status check_proxies(const std::string& trusted_proxies) {
    if (trusted_proxies.empty()) return {};
    for (const std::string& one : split_list(trusted_proxies))
        if (!is_network(one))
            return invalid_argument("--trusted-proxies",
                                    "must be addresses or networks, as 192.0.2.10,10.0.0.0/8; got '" + one + "'");
    return {};
}

Status check_address(const PublicAddress& address) {
    const bool web = address.url.starts_with("https://") || address.url.starts_with("http://");
    if (!address.url.empty() && (!web || address.url.ends_with('/')))
        return invalid_argument("--public-url", "must be as https://host:7443, without a path");
    ATOLL_RETURN_IF_ERROR(check_proxies(address.trusted_proxies));
    if (address.listen.empty() && address.certificate.empty() && address.certificate_key.empty()) return {};
    if (address.listen.empty() || address.certificate.empty() || address.certificate_key.empty())
        return invalid_argument("--public-listen",
                                "--public-listen, --tls-certificate and --tls-key go together: tokens travel there");
    if (!is_listen_address(address.listen))
        return invalid_argument("--public-listen", "must be address:port, as 0.0.0.0:7443; got " + address.listen);
    ATOLL_RETURN_IF_ERROR(check_port_of(address.listen));
    const auto certificate = read_file(address.certificate);
    if (!certificate.ok()) return invalid_argument("--tls-certificate", certificate.error().message);
    const auto key = read_file(address.certificate_key);
    if (!key.ok()) return invalid_argument("--tls-key", key.error().message);
    if (address.url.empty())
        return invalid_argument("--public-url", "--public-listen needs --public-url, the address that sites are told");
    const Status fit = auth::check_certificate(*certificate, *key);
    return fit.ok() ? fit : invalid_argument("--tls-" + fit.error().field, fit.error().message);
}

json to_json(const PublicAddress& address) {
    return {{"url", address.url},
            {"listen", address.listen},
            {"certificate", address.certificate.string()},
            {"certificate_key", address.certificate_key.string()},
            {"trusted_proxies", address.trusted_proxies}};
}

PublicAddress address_from_json(const json& json) {
    return {json.at("url"), json.at("listen"), json.at("certificate").get<std::string>(),
            json.at("certificate_key").get<std::string>(), json.value("trusted_proxies", "")};
}

Ports ports_from_json(const nlohmann::json& json) {
    Ports ports;
    for (const auto& [name, member] : kMembers) ports.*member = json.value(name, std::uint16_t{0});
    return ports;
}

Result<nlohmann::json> read_stack_file(const std::filesystem::path& state) {
    const Layout layout{state};
    auto text = read_file(layout.file());
    if (!text.ok())
        return not_found("no stack was started in " + state.string() + "; `" + start_command(state) + "` starts one",
                         "--state");
    auto description = atl::json::parse(*text);
    if (!description.ok() || !description->is_object())
        return internal_error(layout.file().string() + " is damaged; `" + start_command(state) +
                              "` with the options of its first start writes it again");
    return description;
}

Status check_owner(const std::filesystem::path& state) {
    struct stat info{};
    const bool is_seen =
        ::stat(Layout{state}.file().c_str(), &info) == 0 || (errno == EACCES && ::stat(state.c_str(), &info) == 0);
    if (!is_seen || ::geteuid() == 0 || info.st_uid == ::geteuid()) return {};
    const passwd* owner = ::getpwuid(info.st_uid);
    const std::string name = owner != nullptr ? owner->pw_name : "user " + std::to_string(info.st_uid);
    return invalid_argument("--state", "the stack in " + state.string() + " belongs to " + name +
                                           ": run atoll as that user, or choose another directory");
}

Result<std::string> local_gateway(const std::filesystem::path& state) {
    ATOLL_RETURN_IF_ERROR(check_owner(state));
    ATOLL_TRY(const json stack, read_stack_file(state));
    const std::string address = stack.value("gateway_socket", "");
    const std::string socket = address.starts_with(http::kUnixPrefix) ? address.substr(http::kUnixPrefix.size()) : "";
    // Under /tmp somebody else may have made it since the stack ended.
    const std::string directory = std::filesystem::path(socket).parent_path();
    struct stat info{}, of_state{};
    const bool is_there = ::lstat(directory.c_str(), &info) == 0 && ::stat(state.c_str(), &of_state) == 0;
    const bool is_of_stack = info.st_uid == of_state.st_uid;  // also where root asks: no socket of root's own
    if (is_there && (!S_ISDIR(info.st_mode) || !is_of_stack || (info.st_mode & 077) != 0))
        return conflict(directory + " must be a directory of the stack's user alone, mode 0700", "--state");
    if (is_there && somebody_listens(socket)) return address + ":";
    return unavailable("Atoll does not run in " + state.string() + "; start it with: " + start_command(state));
}

Status make_directories(const Layout& layout) {
    std::error_code error;
    std::filesystem::create_directories(layout.state, error);
    if (error)
        return invalid_argument("--state", "cannot make " + layout.state.string() + ": " + error.message() +
                                               "; choose another directory with --state");
    ::chmod(layout.state.c_str(), 0700);
    for (const char* name : {"run", "logs", "keys", "tokens", "config", "store", "kafka", "nginx"}) {
        std::filesystem::create_directories(layout.state / name, error);
        if (error) return internal_error("cannot make " + (layout.state / name).string() + ": " + error.message());
        ::chmod((layout.state / name).c_str(), 0700);
    }
    return make_socket_directory(layout.socket("any").parent_path());
}

}  // namespace atl::stack
