#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "shared/base/result.h"

namespace atl::stack {

// What differs between gateways; the rest is services/gateway/nginx.conf.
struct GatewayOptions {
    std::string listen = "127.0.0.1:7400";
    std::string registry, store, dispatch, aggregation;  // host:port or unix:/path
    std::filesystem::path blobs;                         // the store's blob directory, as nginx sees it
    std::filesystem::path directory;                     // private: configuration, console, pid, temporary files
    std::string access_log = "off";                      // a file, or /dev/stdout
    std::filesystem::path socket;                        // where clients on this machine reach it; empty: nowhere
    std::string public_listen;                           // address:port with TLS beside a plain `listen`; empty: none
    std::filesystem::path certificate;                   // TLS when both are given
    std::filesystem::path certificate_key;
    std::string trusted_proxies;      // addresses and networks whose X-Forwarded-For is believed, comma-separated
    std::filesystem::path client_ca;  // facilities and people must show a certificate of this CA (mTLS)
    // How long a request waits for a service that cannot be reached; for more than 0 GatewayWatch must run.
    int wait_s = 0;
};

// The four services' names and addresses.
std::vector<std::pair<std::string, std::string>> services_of(const GatewayOptions& options);
// Where nginx sends requests for a service that it cannot reach.
std::filesystem::path waiting_socket(const GatewayOptions& options, const std::string& service);

// What each service's address stands for, by the service's name: several machines or none.
using ServiceAddresses = std::map<std::string, std::vector<std::string>>;
// A name that is not known now has what it had `before`.
ServiceAddresses look_up_services(const GatewayOptions& options, const ServiceAddresses& before = {});

// kInvalidArgument: a value that nginx' configuration cannot hold (quotes, newlines, ';').
Result<std::string> gateway_configuration(const GatewayOptions& options, const ServiceAddresses& addresses);

// Writes the configuration as nginx reads it when it starts and by SIGHUP.
Status write_gateway_configuration(const GatewayOptions& options, const ServiceAddresses& addresses);

// Writes the configuration and the console's files, has nginx check it, and returns the command line that runs it in
// the foreground.
Result<std::vector<std::string>> prepare_gateway(const GatewayOptions& options);

}  // namespace atl::stack
