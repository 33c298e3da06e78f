#include "services/cli/context.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "services/stack/layout.h"
#include "services/stack/stack_user.h"
#include "services/stack/supervisor.h"
#include "shared/base/environment.h"
#include "shared/base/file.h"
#include "shared/base/text.h"
#include "shared/config/config.h"
#include "shared/json/json.h"

namespace atl::cli {
namespace {

constexpr const char* kStandardInput = "standard input";

std::string without_last_slashes(std::string url) {
    while (url.ends_with('/')) url.pop_back();
    return url;
}

// As far as it can be read.
std::string decode_base64url(std::string_view text) {
    constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    std::string bytes;
    std::uint32_t bits = 0;
    int count = 0;
    for (const char digit : text) {
        const auto value = kDigits.find(digit);
        if (value == std::string_view::npos) break;
        bits = (bits << 6) | static_cast<std::uint32_t>(value);
        if ((count += 6) >= 8) bytes.push_back(static_cast<char>(bits >> (count -= 8)));
    }
    return bytes;
}

// The address at which others reach the gateway of the stack in `state`; empty: there is none.
std::string port_of_own_gateway(const std::filesystem::path& state) {
    const auto stack = stack::read_stack_file(state);
    const std::string url = stack.ok() ? without_last_slashes(stack->value("gateway", "")) : "";
    // Nowhere else does `atoll up` have it listen. Root reads another user's file: who named another coordinator there
    // would get what root sends to that.
    return url.starts_with("http://127.0.0.1:") ? url : "";
}

// A mistyped address must not get a coordinator's token.
Status check_own_gateway(const std::string& url, const std::filesystem::path& state) {
    if (const auto socket = stack::local_gateway(state); socket.ok() && url == *socket) return {};
    const std::string own = port_of_own_gateway(state);
    return Error{ErrorCode::kUnauthenticated,
                 "no token for " + url +
                     (own.empty() ? "" : ": that of the stack in " + state.string() + " goes to " + own + " alone"),
                 {}};
}

}  // namespace

Result<std::string> Context::gateway_url() const {
    const std::string url = without_last_slashes(!gateway.empty() ? gateway : environment("ATOLL_GATEWAY"));
    const std::string own = port_of_own_gateway(state_directory);
    if (url.empty() && own.empty())
        return invalid_argument("--gateway",
                                "no coordinator is known: there is no stack in " + state_directory.string() +
                                    "; give --gateway URL (or ATOLL_GATEWAY), the --state directory of a stack "
                                    "that runs, or start one with `atoll up`");
    const bool is_own = url.empty() || (url == own && stack::check_owner(state_directory).ok());
    return is_own ? stack::supervised_gateway(state_directory) : url;
}

Result<std::string> Context::token() const {
    if (!piped_token.empty()) return piped_token;
    std::filesystem::path file = token_file;
    if (file.empty()) {
        if (const std::string given = environment("ATOLL_TOKEN"); !given.empty()) return given;
        ATOLL_TRY(const std::string url, gateway_url());
        ATOLL_RETURN_IF_ERROR(check_own_gateway(url, state_directory));
        file = stack::Layout{state_directory}.token("admin");
    }
    auto text = token_file.empty() ? stack::read_token(stack::Layout{state_directory}, "admin") : read_file(file);
    if (!text.ok() && !token_file.empty()) return invalid_argument("--token-file", "no token: " + text.error().message);
    if (!text.ok()) return Error{ErrorCode::kUnauthenticated, "no token: " + text.error().message, "--token-file"};
    std::string token(trim(*text));
    if (token.empty()) return invalid_argument("--token-file", file.string() + " is empty");
    const auto is_of_tokens = [](unsigned char c) { return c > ' ' && c < 0x7f; };
    if (!std::all_of(token.begin(), token.end(), is_of_tokens))
        return invalid_argument("--token-file", file.string() + " holds no token");
    std::error_code unknown;
    if (std::filesystem::is_fifo(file, unknown)) piped_token = token;
    return token;
}

std::string Context::subject() const {
    const auto own = token();
    if (!own.ok()) return {};
    const auto begin = own->find('.');
    const auto end = own->find('.', begin + 1);
    if (begin == std::string::npos || end == std::string::npos) return {};
    const auto claims = json::parse(decode_base64url(std::string_view(*own).substr(begin + 1, end - begin - 1)));
    if (!claims.ok() || !claims->is_object()) return {};
    const auto subject = claims->find("sub");
    return subject != claims->end() && subject->is_string() ? subject->get<std::string>() : std::string();
}

Result<http::ClientOptions> Context::client_options(const std::string& service) const {
    http::ClientOptions options;
    ATOLL_TRY(options.base_url, gateway_url());
    options.base_url += "/" + service;
    ATOLL_TRY(options.token, token());
    return options;
}

Result<http::Client> Context::client(const std::string& service) const {
    ATOLL_TRY(auto options, client_options(service));
    return http::Client(std::move(options));
}

Result<http::Client> Context::impatient_client(const std::string& service) const {
    ATOLL_TRY(auto options, client_options(service));
    options.timeout = std::chrono::seconds(10);
    options.attempts_max = 1;
    return http::Client(std::move(options));
}

void on_run(CLI::App& command, Context& context, std::function<Status()> body) {
    command.callback([&context, body = std::move(body)] { context.run = body; });
}

Result<nlohmann::json> read_document(const std::filesystem::path& file) {
    const std::string name = file == "-" ? kStandardInput : file.string();
    std::string text;
    if (file == "-") {
        text.assign(std::istreambuf_iterator<char>(std::cin), {});
    } else {
        auto read = read_file(file);
        if (!read.ok()) return invalid_argument(name, read.error().message);
        text = std::move(read).value();
    }
    if (trim(text).empty()) return invalid_argument(name, "is empty");
    const auto extension = file.extension();
    if (extension == ".yaml" || extension == ".yml") return config::load(file);
    if (extension != ".json" && trim(text).front() != '{') return config::parse(text, name);
    auto document = json::parse(text);
    if (!document.ok()) return invalid_argument(name, document.error().message);
    return document;
}

std::string segment(const std::string& name) {
    return http::percent_encode(name);
}

}  // namespace atl::cli
