#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "shared/base/result.h"

// Where a stack on one machine keeps things: everything under one state directory.
namespace atl::stack {

// ATOLL_STATE; else /var/lib/atoll for root (whose stack another user runs), else $XDG_STATE_HOME/atoll.
std::filesystem::path default_state_directory();

// A path as a shell takes it: in quotes where it needs them.
std::string quoted(const std::filesystem::path& path);

// The command line that starts the stack of a state directory, with what it remembers.
std::string start_command(const std::filesystem::path& state);

struct Layout {
    std::filesystem::path state;

    std::filesystem::path file() const { return state / "stack.json"; }
    std::filesystem::path pid_file(const std::string& component) const { return state / "run" / (component + ".pid"); }
    std::filesystem::path log(const std::string& component) const { return state / "logs" / (component + ".log"); }
    std::filesystem::path token(const std::string& name) const { return state / "tokens" / (name + ".token"); }
    // What people set themselves, by service. The files of config/ are made anew at each start.
    std::filesystem::path settings() const { return state / "settings.yaml"; }
    std::filesystem::path config(const std::string& service) const { return state / "config" / (service + ".yaml"); }
    std::filesystem::path postgres() const { return state / "pg"; }
    std::filesystem::path kafka() const { return state / "kafka"; }
    std::filesystem::path kafka_credentials() const { return state / "keys/kafka.pem"; }
    // Where a service listens.
    std::filesystem::path socket(const std::string& service) const;
    std::filesystem::path nginx() const { return state / "nginx"; }
    std::filesystem::path store() const { return state / "store"; }
    // Of what the user as whom root runs the stack cannot reach elsewhere; laid out as an image installs them.
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

// How facilities elsewhere reach the gateway. Empty: they cannot, only loopback can.
struct PublicAddress {
    std::string url;  // "https://coordinator.example.org:7443", without a path
    std::string
        listen;  // "0.0.0.0:7443", where nginx listens with TLS; empty: something in front of it forwards to loopback
    std::filesystem::path certificate;  // PEM files, with `listen`
    std::filesystem::path certificate_key;
};
// kInvalidArgument naming the flag of `atoll up`: an address that is none, files that are no certificate and its key.
Status check_address(const PublicAddress& address);

nlohmann::json to_json(const PublicAddress& address);
PublicAddress address_from_json(const nlohmann::json& json);

// True when nothing listens on it.
bool port_is_free(std::uint16_t port);
// base, base + 1, …; a taken one is an error that names it. Base 0: any free ones.
Result<Ports> choose_ports(std::uint16_t base);

nlohmann::json to_json(const Ports& ports);
Ports ports_from_json(const nlohmann::json& json);

// stack.json as `up` wrote it. kNotFound: no stack was started there.
Result<nlohmann::json> read_stack_file(const std::filesystem::path& state);

// kInvalidArgument: the stack of that directory is another user's, whose processes and files we may not touch.
Status check_owner(const std::filesystem::path& state);

// Where whoever has the state directory reaches the stack's gateway, to be followed by a path: "unix:…/gateway.sock:".
// Another user can listen on its port while it is dead, but not there. kUnavailable: nobody listens; kConflict: the
// socket's directory is open to others.
Result<std::string> local_gateway(const std::filesystem::path& state);

// A unix socket's path is limited to 107 bytes, and an address of one ends at ":/": `inside` the state directory, else
// a directory under /tmp of that state's own, for which `purpose` stands.
std::filesystem::path socket_directory(const Layout& layout, const std::filesystem::path& inside,
                                       const std::string& socket_name, const std::string& purpose);

// The directories that every component shares, private to us; pid files and logs survive.
Status make_directories(const Layout& layout);

}  // namespace atl::stack
