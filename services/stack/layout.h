#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "shared/base/result.h"

// The files of a stack on one machine. They all lie under one state directory.
namespace atl::stack {

// Returns ATOLL_STATE if it is set, else /var/lib/atoll for root and $XDG_STATE_HOME/atoll for everyone else.
std::filesystem::path default_state_directory();

// Quotes a path for the shell if it needs quotes.
std::string quoted(const std::filesystem::path& path);

// Returns the command line that starts the stack of a state directory with the options it was started with.
std::string start_command(const std::filesystem::path& state);

struct Layout {
    std::filesystem::path state;

    std::filesystem::path file() const { return state / "stack.json"; }
    std::filesystem::path pid_file(const std::string& component) const { return state / "run" / (component + ".pid"); }
    std::filesystem::path log(const std::string& component) const { return state / "logs" / (component + ".log"); }
    std::filesystem::path token(const std::string& name) const { return state / "tokens" / (name + ".token"); }
    // Settings that people write themselves, by service. `atoll up` overwrites the files of config/.
    std::filesystem::path settings() const { return state / "settings.yaml"; }
    std::filesystem::path config(const std::string& service) const { return state / "config" / (service + ".yaml"); }
    std::filesystem::path postgres() const { return state / "pg"; }
    std::filesystem::path kafka() const { return state / "kafka"; }
    std::filesystem::path kafka_credentials() const { return state / "keys/kafka.pem"; }
    // Of the broker and each service, where they share no files; the authority signs them.
    std::filesystem::path kafka_certificate(const std::string& name) const {
        return state / "keys" / ("kafka-" + name + ".pem");
    }
    std::filesystem::path kafka_authority() const { return state / "keys/kafka-authority.pem"; }
    // The unix socket on which a service listens.
    std::filesystem::path socket(const std::string& service) const;
    std::filesystem::path nginx() const { return state / "nginx"; }
    std::filesystem::path store() const { return state / "store"; }
    // Copies of files that the stack's user cannot read in their place, laid out as an installation is.
    std::filesystem::path program_copies() const { return state / "bin"; }
    std::filesystem::path jar_copies() const { return state / "lib/atoll/kafka"; }
    std::filesystem::path private_key() const { return state / "keys/private.pem"; }
    std::filesystem::path next_private_key() const { return state / "keys/next.pem"; }
    std::filesystem::path public_key() const { return state / "keys/public.pem"; }
};

// TCP ports on 127.0.0.1. Postgres and the services have none: they listen on unix sockets in private directories.
struct Ports {
    std::uint16_t gateway = 0;
    std::uint16_t kafka = 0;
    std::uint16_t kafka_controller = 0;

    std::uint16_t of(const std::string& component) const;
};

// The address at which remote facilities reach the gateway. If it is empty, only this machine reaches it.
struct PublicAddress {
    std::string url;     // "https://coordinator.example.org:7443", without a path
    std::string listen;  // "0.0.0.0:7443", where nginx listens with TLS; empty: a proxy in front forwards to loopback
    std::filesystem::path certificate;  // PEM files, with `listen`
    std::filesystem::path certificate_key;
    std::string trusted_proxies = {};  // addresses and networks of proxies in front, comma-separated
};
// kInvalidArgument, naming --trusted-proxies: not each is an address or a network, as "10.0.0.0/8" or "2001:db8::1".
Status check_proxies(const std::string& trusted_proxies);
// kInvalidArgument, naming the flag of `atoll up`: the address is malformed, or the files are not a certificate and its
// key.
Status check_address(const PublicAddress& address);

nlohmann::json to_json(const PublicAddress& address);
PublicAddress address_from_json(const nlohmann::json& json);

// True when nothing listens on it.
bool port_is_free(std::uint16_t port);
// Returns base, base + 1 and base + 2, or three free ports if base is 0. The error names a port that is taken.
Result<Ports> choose_ports(std::uint16_t base);

nlohmann::json to_json(const Ports& ports);
Ports ports_from_json(const nlohmann::json& json);

// Reads stack.json, which `atoll up` writes. kNotFound: no stack was started in this directory.
Result<nlohmann::json> read_stack_file(const std::filesystem::path& state);

// kInvalidArgument: another user runs the stack of this directory, and we may not touch their processes and files.
Status check_owner(const std::filesystem::path& state);

// Returns the URL prefix of the gateway's unix socket, "unix:…/gateway.sock:". Unlike the port, another user cannot
// take it over while the gateway is down. kUnavailable: nothing listens on it. kConflict: other users may write to its
// directory.
Result<std::string> local_gateway(const std::filesystem::path& state);

// Returns a directory for a unix socket, whose path may have at most 107 bytes and no ":/" in it: `inside` (part of the
// state directory) if it fits, else a private directory under /tmp named after the state directory and `purpose`.
std::filesystem::path socket_directory(const Layout& layout, const std::filesystem::path& inside,
                                       const std::string& socket_name, const std::string& purpose);

// Makes the directories that the components share, accessible to this user only. Pid files and logs are kept.
Status make_directories(const Layout& layout);

}  // namespace atl::stack
