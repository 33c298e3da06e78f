#include <charconv>
#include <nlohmann/json.hpp>

#include "services/stack/component.h"
#include "shared/base/file.h"
#include "shared/base/subprocess.h"
#include "shared/config/config.h"
#include "shared/http/client/client.h"

// The four services and their configuration files.
namespace atl::stack {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::int64_t kKibibyte = 1 << 10, kMebibyte = 1 << 20;

// Of dispatch's connections to facilities. What ssh makes a socket of, and binds first, is longer than the name itself.
fs::path ssh_directory(const Layout& layout) {
    return socket_directory(layout, layout.state / "run" / "ssh", std::string(40, 'x'), "-ssh");
}

// Those that a dispatch left behind which was killed.
void end_connections(const fs::path& directory) {
    std::error_code ignored;
    CommandOptions options;
    options.timeout = std::chrono::seconds(5);
    for (const auto& entry : fs::directory_iterator(directory, ignored))
        if (entry.is_socket(ignored))
            (void)run_command({"ssh", "-F", "none", "-o", "ControlPath=" + entry.path().string(), "-O", "exit", "any"},
                              options);
    fs::remove(directory, ignored);  // not if it says when we logged in
}

json own_settings(const Stack& stack, const std::string& service) {
    // The port is for others: who takes it while nginx is dead would get our tokens.
    const std::string gateway = socket_address(stack.layout, "gateway") + ":";
    const std::string port = "http://" + loopback(stack.ports.gateway);
    if (service == "store")
        return {{"root", (stack.layout.store() / "blobs").string()}, {"accel_prefix", "/internal/blobs/"}};
    if (service == "dispatch")
        return {{"private_key_file", stack.layout.private_key().string()},
                {"registry_url", gateway + "/registry"},
                {"store_url", gateway + "/store"},
                {"aggregation_url", gateway + "/aggregation"},
                {"store_url_for_sites", (stack.address.url.empty() ? port : stack.address.url) + "/store"},
                {"control_directory", ssh_directory(stack.layout).string()}};
    if (service == "aggregation")
        return {{"store_url", gateway + "/store"},
                {"dispatch_url", gateway + "/dispatch"},
                {"token_file", stack.layout.token("aggregation").string()}};
    return nullptr;
}

// What settings.yaml in the state directory says for a service, beside what only this program can know.
Result<json> chosen_settings(const Stack& stack, const std::string& service) {
    const fs::path file = stack.layout.settings();
    if (!fs::exists(file)) return json::object();
    ATOLL_TRY(const json all, config::load(file));
    if (!all.is_object()) return invalid_argument(file.string(), "must name services, each with its settings");
    for (const auto& [name, chosen] : all.items()) {
        if (own_settings(stack, name).is_null())
            return invalid_argument(file.string() + ": " + name, "no such service has settings");
        if (!chosen.is_object())
            return invalid_argument(file.string() + ": " + name, "must be settings of the service");
    }
    json chosen = all.value(service, json::object());
    const json own = own_settings(stack, service);
    for (const auto& [key, value] : own.items())
        if (chosen.contains(key))
            return invalid_argument(file.string() + ": " + service + "." + key, "atoll up sets it itself");
    return chosen;
}

Result<json> settings(const Stack& stack, const std::string& service) {
    json all = {
        {"listen_address", socket_address(stack.layout, service)},
        {"postgres", postgres_conninfo(stack.layout)},
        {"kafka_brokers", loopback(stack.ports.kafka)},
        {"kafka_credentials_file", stack.layout.kafka_credentials().string()},
        {"public_key_file", stack.layout.public_key().string()},
        {"log_file", stack.layout.log(service).string()},
        // Above the gateway's limit for a body, which lets nothing larger through, with room for headers.
        {"request_bytes_max", (service == "store" || service == "dispatch" ? 16 : 1) * kMebibyte + 256 * kKibibyte}};
    ATOLL_TRY(const json chosen, chosen_settings(stack, service));
    if (json own = own_settings(stack, service); !own.is_null()) {
        all[service] = std::move(own);
        all[service].update(chosen);
    }
    return all;
}

fs::path service_program(const Stack& stack, const std::string& service) {
    return stack.programs / ("atoll-" + service);
}

Result<std::vector<std::string>> start_service(const Stack& stack, const std::string& service) {
    const fs::path program = service_program(stack, service);
    const fs::path file = stack.layout.config(service);
    ATOLL_TRY(const json written, settings(stack, service));
    ATOLL_RETURN_IF_ERROR(write_file_atomic(file, config::to_yaml(written), 0600));
    return std::vector<std::string>{program.string(), "--config", file.string()};
}

auto get_once(const std::string& url, const std::string& path) {
    http::ClientOptions options;
    options.base_url = url;
    options.timeout = std::chrono::seconds(2);
    options.attempts_max = 1;
    return http::Client(std::move(options)).call(http::Method::kGet, path);
}

// Of Prometheus' text format: "NAME VALUE" on a line of its own. The value may be written as 1.2e+10.
std::optional<std::uint64_t> gauge_in(const std::string& metrics, const std::string& name) {
    const std::string before = "\n" + name + " ";
    const auto at = metrics.find(before);
    if (at == std::string::npos) return {};
    double value = 0;
    const char* begin = metrics.data() + at + before.size();
    if (std::from_chars(begin, metrics.data() + metrics.size(), value).ec != std::errc() || value < 0) return {};
    return static_cast<std::uint64_t>(value);
}

}  // namespace

bool answers(const std::string& url, const std::string& path) {
    const auto answer = get_once(url, path);
    return answer.ok() && answer->ok();
}

std::optional<DiskSpace> store_disk(const std::string& url) {
    const auto answer = get_once(url, "/metrics");
    if (!answer.ok() || !answer->ok()) return {};
    const auto free = gauge_in(answer->body, "atoll_store_disk_free_bytes");
    const auto free_min = gauge_in(answer->body, "atoll_store_disk_reserve_bytes");
    if (!free || !free_min) return {};
    return DiskSpace{*free, *free_min};
}

std::string socket_address(const Layout& layout, const std::string& service) {
    return "unix:" + layout.socket(service).string();
}

Component service_component(const Stack& stack, const std::string& service) {
    Component component;
    component.name = service;
    component.address = socket_address(stack.layout, service);
    component.find = [stack, service]() -> Status {
        const fs::path program = service_program(stack, service);
        if (!fs::exists(program))
            return invalid_argument("--programs", "no program " + program.string() +
                                                      ": build it, or give --programs DIR. Nothing was started");
        const auto chosen = chosen_settings(stack, service);
        return chosen.ok() ? Status() : chosen.error();
    };
    component.start = [stack, service] { return start_service(stack, service); };
    component.ready = [url = component.address] { return answers(url, "/readyz"); };
    component.after_stop = [socket = stack.layout.socket(service)] {
        std::error_code ignored;
        std::filesystem::remove(socket, ignored);
        std::filesystem::remove(socket.parent_path(), ignored);  // when it lies under /tmp; not if anything is left
    };
    if (service == "dispatch")
        component.after_stop = [connections = ssh_directory(stack.layout), others = component.after_stop] {
            end_connections(connections);
            others();
        };
    return component;
}

}  // namespace atl::stack
