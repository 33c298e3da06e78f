#include "shared/http/client/client.h"

#include <curl/curl.h>

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <string_view>
#include <thread>

#include "shared/base/backoff.h"
#include "shared/base/text.h"
#include "shared/json/bounded.h"

namespace atl::http {
namespace {

constexpr std::chrono::milliseconds kBackoffMax{5000};
constexpr std::chrono::seconds kRetryAfterMax{30};

struct CurlDeleter {
    void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
    void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using Handle = std::unique_ptr<CURL, CurlDeleter>;
using HeaderList = std::unique_ptr<curl_slist, CurlDeleter>;

void set_up_curl() {
    static std::once_flag once;
    std::call_once(once, [] {
        check(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK, "libcurl cannot start");
        std::signal(SIGPIPE, SIG_IGN);
    });
}

// What the callbacks of one transfer need. They are called from C: nothing may be thrown through it.
struct Transfer {
    CURL* handle = nullptr;
    ClientResponse response;
    const std::function<bool(std::string_view)>* sink = nullptr;
    std::size_t response_bytes_max = 0;
    bool sink_used = false;
    bool sink_ended = false;
    bool too_large = false;
};

std::size_t on_body(const char* data, std::size_t, std::size_t size, void* user) noexcept try {
    auto& transfer = *static_cast<Transfer*>(user);
    long status = 0;
    curl_easy_getinfo(transfer.handle, CURLINFO_RESPONSE_CODE, &status);
    const std::string_view bytes(data, size);
    if (transfer.sink != nullptr && status >= 200 && status < 300) {
        transfer.sink_used = true;
        transfer.sink_ended = !(*transfer.sink)(bytes);
        return transfer.sink_ended ? 0 : size;
    }
    transfer.too_large = transfer.response.body.size() + size > transfer.response_bytes_max;
    if (transfer.too_large) return 0;
    transfer.response.body += bytes;
    return size;
} catch (...) {
    return 0;
}

// A manifest of a model of a terabyte has half a million values.
constexpr std::size_t kAnswerValuesMax = 2'000'000;
constexpr std::size_t kProblemValuesMax = 1000;

// Names from outside are encoded into paths, and a server decodes them again before it looks for ".." and "/": with
// such a name the path would be that of something else. kInvalidArgument: a segment is none.
Status check_segments(std::string_view path) {
    path = path.substr(0, path.find('?'));
    while (!path.empty()) {
        const std::size_t end = std::min(path.find('/'), path.size());
        const auto segment = percent_decode(path.substr(0, end));  // a wrong escape is the server's to refuse
        if (segment.ok() && (*segment == "." || *segment == ".." || segment->find_first_of("/\\") != std::string::npos))
            return invalid_argument(
                "", "\"" + *segment + "\" names nothing: a name has no \"/\", and is not \".\" or \"..\"");
        path.remove_prefix(std::min(end + 1, path.size()));
    }
    return {};
}

std::size_t on_header(const char* data, std::size_t, std::size_t size, void* user) noexcept try {
    auto& transfer = *static_cast<Transfer*>(user);
    const std::string_view line(data, size);
    if (line.substr(0, 5) == "HTTP/") transfer.response.headers.clear();  // an interim answer's headers don't count
    const auto colon = line.find(':');
    if (colon == std::string_view::npos) return size;
    std::string name(line.substr(0, colon));
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    transfer.response.headers[name] = trim(line.substr(colon + 1));
    return size;
} catch (...) {
    return 0;
}

Error make_error(const ClientResponse& response) {
    const auto parsed = json::parse_bounded(response.body, kProblemValuesMax);
    const json::Json body = parsed.ok() ? *parsed : json::Json();
    const auto text = [&](const char* key) {
        const auto found = body.is_object() ? body.find(key) : body.end();
        return found != body.end() && found->is_string() ? found->get<std::string>() : std::string();
    };
    const Cause cause = parse_cause(text("cause")).value_or(Cause::kElsewhere);
    Error error{error_code(response.status, text("type")), text("detail"), text("field"), cause};
    if (error.message.empty()) error.message = "the service answered " + std::to_string(response.status);
    return error;
}

bool worth_repeating(int status) {
    return status == 429 || status == 502 || status == 503 || status == 504;
}

bool is_idempotent(Method method, const CallOptions& options) {
    if (method == Method::kGet || method == Method::kHead || method == Method::kPut || method == Method::kDelete)
        return true;
    return std::any_of(options.headers.begin(), options.headers.end(), [](const auto& header) {
        return header.first == "Idempotency-Key" || header.first == "idempotency-key";
    });
}

// Half of the doubled back-off is fixed, half random, so that clients which failed together do not return together.
std::chrono::milliseconds pause_before(int repeat, std::chrono::milliseconds backoff, const ClientResponse* response) {
    if (response != nullptr) {
        const auto header = response->headers.find("retry-after");
        if (header != response->headers.end() && !header->second.empty() && header->second.size() <= 4 &&
            std::all_of(header->second.begin(), header->second.end(),
                        [](unsigned char c) { return std::isdigit(c) != 0; }))
            return std::min<std::chrono::milliseconds>(std::chrono::seconds(std::stoi(header->second)), kRetryAfterMax);
    }
    thread_local std::minstd_rand random{std::random_device{}()};
    const auto full = backoff_delay(repeat + 1, backoff, kBackoffMax).count();
    return std::chrono::milliseconds(full / 2 + std::uniform_int_distribution<long>(0, full / 2)(random));
}

struct SocketAddress {
    std::string socket;
    std::string prefix;  // of each call's path
};

// Of "unix:/run/gateway.sock:/store", as nginx writes it; ":/store" may be missing, or "/store" alone.
SocketAddress split_socket_address(std::string_view address) {
    address.remove_prefix(kUnixPrefix.size());
    const auto colon = address.rfind(':');
    const bool has_prefix =
        colon != std::string_view::npos && (colon + 1 == address.size() || address[colon + 1] == '/');
    if (!has_prefix) return {std::string(address), {}};
    return {std::string(address.substr(0, colon)), std::string(address.substr(colon + 1))};
}

}  // namespace

Result<json::Json> ClientResponse::json() const {
    ATOLL_RETURN_IF_ERROR(check());
    return json::parse_bounded(body, kAnswerValuesMax);
}

Status ClientResponse::check() const {
    if (ok()) return {};
    return make_error(*this);
}

// What helps where the server's certificate is right but its authority is not known here.
std::string certificate_advice(CURL* handle, CURLcode code) {
    constexpr long kUnknownAuthority[] = {2, 18, 19, 20, 21};  // X509_V_ERR_… of <openssl/x509_vfy.h>
    if (code == CURLE_SSL_CACERT_BADFILE) return "; ATOLL_CA_FILE must name a PEM file of certificates";
    long verified = 0;
    curl_easy_getinfo(handle, CURLINFO_SSL_VERIFYRESULT, &verified);
    const bool is_unknown =
        std::find(std::begin(kUnknownAuthority), std::end(kUnknownAuthority), verified) != std::end(kUnknownAuthority);
    if (code != CURLE_PEER_FAILED_VERIFICATION || !is_unknown) return {};
    return "; if the certificate is of an authority of your own, set ATOLL_CA_FILE to a PEM file with the authority's "
           "certificate";
}

class Client::Impl {
  public:
    explicit Impl(ClientOptions options) : options_(std::move(options)) {
        set_up_curl();
        handle_.reset(curl_easy_init());
        atl::check(handle_ != nullptr, "curl_easy_init failed");
        while (!options_.base_url.empty() && options_.base_url.back() == '/') options_.base_url.pop_back();
    }

    Result<ClientResponse> call(Method method, const std::string& path, std::string_view body,
                                const CallOptions& options) {
        ATOLL_RETURN_IF_ERROR(check_segments(path));
        const int attempts = is_idempotent(method, options) ? std::max(1, options_.attempts_max) : 1;
        for (int repeat = 0;; ++repeat) {
            Transfer transfer;
            auto result = attempt(transfer, method, path, body, options);
            const bool again = result.ok() ? worth_repeating(result->status)
                                           : result.error().code == ErrorCode::kUnavailable && !transfer.sink_used;
            if (!again || repeat + 1 >= attempts) return result;
            std::this_thread::sleep_for(
                pause_before(repeat, options_.backoff, result.ok() ? &result.value() : nullptr));
        }
    }

  private:
    Result<ClientResponse> attempt(Transfer& transfer, Method method, const std::string& path, std::string_view body,
                                   const CallOptions& options) {
        CURL* handle = handle_.get();
        curl_easy_reset(handle);  // keeps the connections
        transfer.handle = handle;
        transfer.sink = options.sink ? &options.sink : nullptr;
        transfer.response_bytes_max = options_.response_bytes_max;
        char reason[CURL_ERROR_SIZE] = {};
        curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, reason);
        set_connection(handle, path);
        set_method(handle, method, body);
        const HeaderList headers = headers_for(options);
        curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers.get());
        curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, on_body);
        curl_easy_setopt(handle, CURLOPT_WRITEDATA, &transfer);
        curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, on_header);
        curl_easy_setopt(handle, CURLOPT_HEADERDATA, &transfer);
        const CURLcode code = curl_easy_perform(handle);
        if (transfer.too_large)
            return Error{ErrorCode::kTooLarge,
                         "the answer is larger than " + std::to_string(options_.response_bytes_max) + " bytes",
                         {}};
        if (code != CURLE_OK && !transfer.sink_ended)
            return unavailable("no answer from " + options_.base_url + path + ": " +
                               why_none(code, reason[0] != '\0' ? reason : curl_easy_strerror(code)) +
                               certificate_advice(handle, code));
        long status = 0;
        curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
        transfer.response.status = static_cast<int>(status);
        return std::move(transfer.response);
    }

    // Of a socket curl says that it could not connect to localhost, port 80.
    std::string why_none(CURLcode code, const std::string& reason) const {
        const bool is_socket = options_.base_url.starts_with(kUnixPrefix);
        return is_socket && code == CURLE_COULDNT_CONNECT ? "nothing listens there" : reason;
    }

    void set_connection(CURL* handle, const std::string& path) {
        std::string base = options_.base_url;
        if (base.starts_with(kUnixPrefix)) {
            const SocketAddress address = split_socket_address(base);
            curl_easy_setopt(handle, CURLOPT_UNIX_SOCKET_PATH, address.socket.c_str());
            base = "http://localhost" + address.prefix;
        }
        curl_easy_setopt(handle, CURLOPT_URL, (base + path).c_str());
        curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
        curl_easy_setopt(handle, CURLOPT_PATH_AS_IS, 1L);
        curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
        curl_easy_setopt(handle, CURLOPT_TCP_KEEPALIVE, 1L);
        curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options_.connect_timeout.count()));
        curl_easy_setopt(handle, CURLOPT_TIMEOUT_MS, static_cast<long>(options_.timeout.count()));
        set_certificates(handle);
    }

    // What the caller does not say comes from the environment: a machine's certificate is the same for all it calls.
    void set_certificates(CURL* handle) const {
        const auto set = [&](CURLoption option, const char* file) {
            if (file != nullptr && *file != '\0') curl_easy_setopt(handle, option, file);
        };
        set(CURLOPT_CAINFO, options_.ca_file.empty() ? std::getenv("ATOLL_CA_FILE") : options_.ca_file.c_str());
        set(CURLOPT_SSLCERT, std::getenv("ATOLL_CLIENT_CERTIFICATE"));
        set(CURLOPT_SSLKEY, std::getenv("ATOLL_CLIENT_KEY"));
    }

    static void set_method(CURL* handle, Method method, std::string_view body) {
        if (method == Method::kHead) {
            curl_easy_setopt(handle, CURLOPT_NOBODY, 1L);
            return;
        }
        const bool has_body = method == Method::kPost || method == Method::kPut || method == Method::kPatch;
        if (has_body || !body.empty()) {
            curl_easy_setopt(handle, CURLOPT_POST, 1L);
            curl_easy_setopt(handle, CURLOPT_POSTFIELDS, body.empty() ? "" : body.data());
            curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
        }
        curl_easy_setopt(handle, CURLOPT_CUSTOMREQUEST, to_string(method));
    }

    HeaderList headers_for(const CallOptions& options) const {
        HeaderList list;
        const auto add = [&list](const std::string& line) {
            curl_slist* longer = curl_slist_append(list.get(), line.c_str());
            atl::check(longer != nullptr, "out of memory");
            list.release();
            list.reset(longer);
        };
        add("Expect:");  // an empty one is left out: our servers never say "100 Continue"
        bool has_type = false;
        for (const auto& [name, value] : options.headers) {
            has_type = has_type || name == "Content-Type";
            add(name + ": " + value);
        }
        if (!has_type) add("Content-Type: application/json");
        if (!options_.token.empty()) add("Authorization: Bearer " + options_.token);
        return list;
    }

    ClientOptions options_;
    Handle handle_;
};

Client::Client(ClientOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Client::~Client() = default;
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;

Result<ClientResponse> Client::call(Method method, const std::string& path, std::string_view body,
                                    const CallOptions& options) {
    return impl_->call(method, path, body, options);
}

Result<json::Json> Client::get_json(const std::string& path) {
    ATOLL_TRY(const ClientResponse response, call(Method::kGet, path));
    return response.json();
}

Result<json::Json> Client::post_json(const std::string& path, const json::Json& body,
                                     const std::string& idempotency_key) {
    CallOptions options;
    if (!idempotency_key.empty()) options.headers.emplace_back("Idempotency-Key", idempotency_key);
    ATOLL_TRY(const ClientResponse response, call(Method::kPost, path, body.dump(), options));
    return response.json();
}

Result<json::Json> Client::put_json(const std::string& path, const json::Json& body) {
    ATOLL_TRY(const ClientResponse response, call(Method::kPut, path, body.dump()));
    return response.json();
}

}  // namespace atl::http
