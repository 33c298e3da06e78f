#include "services/stack/gateway.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>
#include <vector>

#include "services/console/console.h"
#include "services/gateway/nginx_conf.h"
#include "services/stack/component.h"
#include "services/stack/name_lookup.h"
#include "services/stack/process.h"
#include "shared/base/file.h"
#include "shared/base/subprocess.h"
#include "shared/base/text.h"
#include "shared/http/client/client.h"

namespace atl::stack {
namespace {

namespace fs = std::filesystem;

struct Setting {
    const char* name;  // "@NAME@" in the configuration
    const char* flag;  // for messages
    std::string value;
};

// The configuration holds each value between double quotes or bare; nginx has no escape for '$'.
Status check_plain(const Setting& setting) {
    if (setting.value.find_first_of("\"'\\$\r\n;{}") == std::string::npos) return {};
    return invalid_argument(setting.flag, "nginx' configuration cannot hold this value: " + setting.value);
}

std::string tls_lines(const GatewayOptions& options) {
    if (options.certificate.empty()) return {};
    std::string lines = "ssl_certificate \"" + options.certificate.string() + "\"; ssl_certificate_key \"" +
                        options.certificate_key.string() + "\"; ssl_protocols TLSv1.2 TLSv1.3;";
    if (options.client_ca.empty()) return lines;
    return lines + " ssl_client_certificate \"" + options.client_ca.string() + "\"; ssl_verify_client on;";
}

// What a worker may open: as many as the configuration speaks of, where we may.
rlim_t open_files_max() {
    constexpr rlim_t kWanted = 4 * 8192;
    rlimit limit{};
    return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? std::min(limit.rlim_max, kWanted) : kWanted;
}

// The servers of an upstream. A request that could not be sent to one goes on to the last two, which are one: it keeps
// the request until the service is back, and once more where that broke off, as one that is about to end may take a
// connection yet. A request that the service may have seen goes on only if it can be repeated.
std::string servers(const GatewayOptions& options, const std::string& service,
                    const std::vector<std::string>& addresses) {
    std::string lines;
    for (const std::string& address : addresses)
        lines += "server \"" + address + "\"" + (options.wait_s > 0 ? " max_fails=0" : "") + "; ";
    if (options.wait_s == 0) return lines;
    const std::string waiting = "server \"unix:" + waiting_socket(options, service).string() + "\" max_fails=0" +
                                (lines.empty() ? ";" : " backup;");
    return lines + waiting + " " + waiting;
}

std::string proxy_lines(const GatewayOptions& options) {
    if (options.trusted_proxies.empty()) return {};
    std::string lines;
    for (const std::string& one : split_list(options.trusted_proxies)) lines += "set_real_ip_from " + one + "; ";
    return lines + "real_ip_header X-Forwarded-For; real_ip_recursive on;";
}

fs::path console_directory(const GatewayOptions& options) {
    return options.directory / "console";
}

Status check_all_plain(const GatewayOptions& options, const std::vector<Setting>& settings) {
    for (const Setting& setting : settings) ATOLL_RETURN_IF_ERROR(check_plain(setting));
    for (const auto& [name, address] : services_of(options))
        ATOLL_RETURN_IF_ERROR(check_plain({"", ("--" + name).c_str(), address}));
    for (const Setting& file : {Setting{"", "--tls-certificate", options.certificate.string()},
                                {"", "--tls-key", options.certificate_key.string()},
                                {"", "--tls-client-ca", options.client_ca.string()}})
        ATOLL_RETURN_IF_ERROR(check_plain(file));
    if (options.certificate.empty() != options.certificate_key.empty())
        return invalid_argument("--tls-key", "--tls-certificate and --tls-key go together");
    return {};
}

}  // namespace

std::vector<std::pair<std::string, std::string>> services_of(const GatewayOptions& options) {
    return {{"registry", options.registry},
            {"store", options.store},
            {"dispatch", options.dispatch},
            {"aggregation", options.aggregation}};
}

fs::path waiting_socket(const GatewayOptions& options, const std::string& service) {
    return options.directory / ("waiting-" + service);
}

ServiceAddresses look_up_services(const GatewayOptions& options, const ServiceAddresses& before) {
    ServiceAddresses addresses = before;
    for (const auto& [name, address] : services_of(options)) {
        std::vector<std::string> numbers =
            address.starts_with("unix:") ? std::vector{address} : look_up_numbers(address);
        // nginx says what is wrong with a name that it is to look up itself.
        if (numbers.empty() && options.wait_s == 0 && !before.contains(name)) numbers = {address};
        if (!numbers.empty()) addresses[name] = std::move(numbers);
    }
    return addresses;
}

Result<std::string> gateway_configuration(const GatewayOptions& options, const ServiceAddresses& addresses) {
    const std::string tls = tls_lines(options);
    ATOLL_RETURN_IF_ERROR(check_plain({"", "--access-log", options.access_log}));
    const std::string access_log =
        options.access_log == "off" ? "off" : "\"" + options.access_log + "\" short if=$atoll_is_logged";
    const bool plain = tls.empty() || !options.public_listen.empty();
    std::string also = options.public_listen.empty() ? "" : "; listen " + options.public_listen + " ssl";
    ATOLL_RETURN_IF_ERROR(check_plain({"", "--public-listen", options.public_listen}));
    ATOLL_RETURN_IF_ERROR(check_proxies(options.trusted_proxies));
    ATOLL_RETURN_IF_ERROR(check_plain({"", "--state", options.socket.string()}));
    // A full backlog of a unix socket refuses at once, where TCP has the client try again.
    if (!options.socket.empty()) also += "; listen \"unix:" + options.socket.string() + "\" backlog=4096";
    const std::vector<Setting> settings = {{"@LISTEN@", "--listen", options.listen + (plain ? "" : " ssl")},
                                           {"@DIRECTORY@", "--directory", options.directory.string()},
                                           {"@CONSOLE@", "--directory", console_directory(options).string()},
                                           {"@BLOBS@", "--blobs", options.blobs.string()}};
    ATOLL_RETURN_IF_ERROR(check_all_plain(options, settings));
    std::string text(gateway::nginx_conf());
    for (const Setting& setting : settings) text = replace_all(std::move(text), setting.name, setting.value);
    for (const auto& [name, address] : services_of(options)) {
        std::string placeholder = "@" + name + "@";
        for (char& c : placeholder) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
        const auto known = addresses.find(name);
        text =
            replace_all(std::move(text), placeholder,
                        servers(options, name, known == addresses.end() ? std::vector<std::string>() : known->second));
    }
    text = replace_all(std::move(text), "@PUBLIC@", also);
    text = replace_all(std::move(text), "@PROXIES@", proxy_lines(options));
    text = replace_all(std::move(text), "@TLS@", tls);
    // nginx as root would give its workers to another user, who cannot read the store's blobs.
    text = replace_all(std::move(text), "@ACCESS_LOG@", access_log);
    text = replace_all(std::move(text), "@OPEN_FILES@", std::to_string(open_files_max()));
    return replace_all(std::move(text), "@USER@", ::geteuid() == 0 ? "user root;" : "");
}

Status write_gateway_configuration(const GatewayOptions& options, const ServiceAddresses& addresses) {
    ATOLL_TRY(const std::string text, gateway_configuration(options, addresses));
    return write_file_atomic(options.directory / "nginx.conf", text);
}

Result<std::vector<std::string>> prepare_gateway(const GatewayOptions& options) {
    std::error_code error;
    fs::create_directories(options.directory, error);
    ATOLL_RETURN_IF_ERROR(console::write_console(console_directory(options)));
    const fs::path file = options.directory / "nginx.conf";
    // Bodies that a killed nginx has left there.
    if (fs::exists(file))
        for (const char* left : {"body", "proxy"}) fs::remove_all(options.directory / left, error);
    ATOLL_RETURN_IF_ERROR(write_gateway_configuration(options, look_up_services(options)));
    const fs::path nginx = fs::exists("/usr/sbin/nginx") ? "/usr/sbin/nginx" : "nginx";
    const std::vector<std::string> argv = {nginx, "-e", "stderr", "-p", options.directory, "-c", file};
    std::vector<std::string> check_only = argv;
    check_only.insert(check_only.end(), {"-t", "-q"});
    const CommandOptions as_usual{};
    ATOLL_TRY(const CommandResult result, run_command(check_only, as_usual));
    if (result.exit_code != 0)
        return invalid_argument(file, "nginx refuses its configuration: " + failure_text(result, as_usual.timeout));
    fs::remove(options.directory / "nginx.pid", error);
    fs::remove(options.socket, error);  // that of a killed one, which nginx would take for another's
    return argv;
}

Component gateway_component(const Stack& stack) {
    Component component;
    const std::string address = loopback(stack.ports.gateway);
    component.name = "gateway";
    component.address = "http://" + address;
    component.start = [stack, address]() {
        GatewayOptions options;
        options.listen = address;
        options.registry = socket_address(stack.layout, "registry");
        options.store = socket_address(stack.layout, "store");
        options.dispatch = socket_address(stack.layout, "dispatch");
        options.aggregation = socket_address(stack.layout, "aggregation");
        options.blobs = stack.layout.store() / "blobs";
        options.directory = stack.layout.nginx();
        options.access_log = stack.layout.log("access");
        options.socket = stack.layout.socket("gateway");
        options.public_listen = stack.address.listen;
        options.trusted_proxies = stack.address.trusted_proxies;
        options.certificate = stack.address.certificate;
        options.certificate_key = stack.address.certificate_key;
        return prepare_gateway(options);
    };
    // At its TCP port another user's program may answer while nginx cannot bind it.
    component.ready = [url = socket_address(stack.layout, "gateway")] {
        return answers(url, "/healthz") && answers(url, "/registry/readyz") && answers(url, "/store/readyz") &&
               answers(url, "/dispatch/readyz") && answers(url, "/aggregation/readyz");
    };
    component.stop_signal = SIGQUIT;  // finishes the requests in flight
    component.stop_time_max = std::chrono::seconds(5);
    component.after_stop = [socket = stack.layout.socket("gateway")] {
        std::error_code ignored;
        fs::remove(socket, ignored);
    };
    return component;
}

}  // namespace atl::stack
