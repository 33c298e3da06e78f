#pragma once

#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "services/stack/layout.h"
#include "shared/base/file.h"
#include "shared/base/result.h"

namespace atl::stack {

// One program of the stack.
struct Component {
    std::string name;                                         // "postgres", "kafka", "registry", …, "gateway"
    std::string address;                                      // for people
    std::function<Status()> find = [] { return Status(); };   // its files are there; changes nothing
    std::function<Result<std::vector<std::string>>()> start;  // makes what it needs; returns its command line
    std::function<bool()> ready;                              // one probe, at most a second or two
    std::chrono::seconds start_time_max{60};
    int stop_signal = SIGTERM;
    std::chrono::seconds stop_time_max{15};
    std::function<void()> after_stop = [] {};
};

struct Stack {
    Layout layout;
    Ports ports;
    PublicAddress address;
    std::filesystem::path programs;  // directory of atoll-registry and the others
    std::filesystem::path kafka_jars;
};

// Of the file system of the store's blobs; below the minimum uploads are refused.
struct DiskSpace {
    std::uint64_t free_bytes = 0;
    std::uint64_t free_bytes_min = 0;
};

Component postgres_component(const Stack& stack);
Component kafka_component(const Stack& stack);
Component service_component(const Stack& stack, const std::string& service);
Component gateway_component(const Stack& stack);

// libpq's connection string of the stack's database.
std::string postgres_conninfo(const Layout& layout);
// True when GET url + path answers 2xx within two seconds.
bool answers(const std::string& url, const std::string& path);
// What the store that listens there says of its disk, in its metrics.
std::optional<DiskSpace> store_disk(const std::string& url);
// "127.0.0.1:PORT"
std::string loopback(std::uint16_t port);
// "unix:/path", where a service listens.
std::string socket_address(const Layout& layout, const std::string& service);

// Held by whoever changes what is there. kConflict: another is at it, for some seconds in the case of lock_state().
Result<UniqueFd> lock_state(const Layout& layout);
Result<UniqueFd> try_lock_state(const Layout& layout);

// Keys and tokens, made once; a token that has lived half its life is renewed.
Status make_credentials(const Layout& layout);
// For a broker and services in containers: an authority of their own, and a key and certificate of the broker
// ("broker") and of each service. Those that have lived half their life, or are of another authority, are made anew.
Status make_kafka_certificates(const Layout& layout);

}  // namespace atl::stack
