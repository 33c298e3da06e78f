#include <thread>

#include "services/stack/component.h"
#include "services/stack/process.h"
#include "services/stack/stack.h"
#include "shared/auth/auth.h"
#include "shared/auth/certificate.h"
#include "shared/base/file.h"
#include "shared/http/client/client.h"

// The keys that sign tokens and the tokens of the stack itself: made, kept, replaced.
namespace atl::stack {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::hours kTokenLifetime{24 * 365};
constexpr std::chrono::hours kTokenRenewal = kTokenLifetime / 2;  // before its end
constexpr std::chrono::seconds kSettled{15};                      // services look at their key files every five seconds
constexpr std::chrono::milliseconds kAskAgain{200};

struct TokenKind {
    const char* name;
    auth::Role role;
};
// People's three roles, Prometheus', and what the aggregation service shows to the store and to dispatch.
constexpr TokenKind kTokens[] = {{"admin", auth::Role::kAdmin},
                                 {"operator", auth::Role::kOperator},
                                 {"viewer", auth::Role::kViewer},
                                 {"metrics", auth::Role::kMetrics},
                                 {"aggregation", auth::Role::kOperator}};

Status make_keys(const Layout& layout) {
    if (fs::exists(layout.private_key()) && fs::exists(layout.public_key())) return {};
    ATOLL_TRY(const auth::KeyPair keys, auth::generate_keys());
    ATOLL_RETURN_IF_ERROR(write_file_atomic(layout.private_key(), keys.private_pem, 0600));
    return write_file_atomic(layout.public_key(), keys.public_pem);
}

// Whether it still has half its life before it, and is of this authority.
bool lasts(const fs::path& certificate, const std::string& authority) {
    const auto pem = read_file(certificate);
    if (!pem.ok() || !auth::is_issued_by(authority, *pem)) return false;
    const auto end_s = auth::certificate_end_s(*pem);
    const auto renewal = std::chrono::system_clock::now() + kTokenRenewal;
    return end_s.ok() && *end_s > std::chrono::system_clock::to_time_t(renewal);
}

// The broker and its clients show one another the same certificate.
Status make_kafka_credentials(const Layout& layout) {
    if (fs::exists(layout.kafka_credentials())) return {};
    ATOLL_TRY(const std::string pem, auth::make_credentials("atoll", {"127.0.0.1", "localhost", "kafka"}));
    return write_file_atomic(layout.kafka_credentials(), pem, 0600);
}

bool lasts(const auth::Verifier& verifier, const fs::path& file) {
    const auto token = read_file(file);
    if (!token.ok()) return false;
    const auto principal = verifier.verify(*token);
    const auto renewal = std::chrono::system_clock::now() + kTokenRenewal;
    return principal.ok() && principal->expires_unix_s > std::chrono::system_clock::to_time_t(renewal);
}

// Those in tokens/ that are missing, have lived half their life or are not of these keys.
Status make_tokens(const Layout& layout, const std::string& private_pem, const std::string& public_pem) {
    ATOLL_TRY(const auth::Verifier verifier, auth::Verifier::from_pem(public_pem));
    ATOLL_TRY(const auth::Issuer issuer, auth::Issuer::from_pem(private_pem));
    for (const auto& [name, role] : kTokens) {
        if (lasts(verifier, layout.token(name))) continue;
        auth::Principal principal;
        principal.subject = name;
        principal.role = role;
        ATOLL_TRY(const std::string token, issuer.issue(std::move(principal), kTokenLifetime));
        ATOLL_RETURN_IF_ERROR(write_file_atomic(layout.token(name), token, 0600));
    }
    return {};
}

// The key that is on its way: one that an earlier call has left, else a new one.
Result<std::string> next_key(const Layout& layout) {
    if (fs::exists(layout.next_private_key())) return read_file(layout.next_private_key());
    ATOLL_TRY(const auth::KeyPair keys, auth::generate_keys());
    ATOLL_RETURN_IF_ERROR(write_file_atomic(layout.next_private_key(), keys.private_pem, 0600));
    return keys.private_pem;
}

Status add_public_key(const Layout& layout, const std::string& public_pem) {
    ATOLL_TRY(const std::string known, read_file(layout.public_key()));
    if (known.find(public_pem) != std::string::npos) return {};
    return write_file_atomic(layout.public_key(), public_pem + known);
}

bool takes(const std::string& address, const std::string& token) {
    http::ClientOptions options;
    options.base_url = address;
    options.token = token;
    options.timeout = std::chrono::seconds(2);
    options.attempts_max = 1;
    const auto answer = http::Client(std::move(options)).call(http::Method::kGet, "/v1/token");
    return answer.ok() && answer->ok();
}

// A service that does not run reads the keys when it starts.
Status wait_until_taken(const Layout& layout, const std::string& private_pem, Clock::time_point deadline) {
    ATOLL_TRY(const auth::Issuer issuer, auth::Issuer::from_pem(private_pem));
    ATOLL_TRY(const std::string token,
              issuer.issue({.subject = "rotate-key", .role = auth::Role::kViewer}, std::chrono::minutes(10)));
    for (const char* service : {"registry", "store", "dispatch", "aggregation"})
        while (running_process(layout.pid_file(service)) && !takes(socket_address(layout, service), token)) {
            if (Clock::now() >= deadline)
                return unavailable(std::string(service) +
                                   " does not take tokens of the new key yet; the old one still "
                                   "signs. Look at `atoll status`, then type it again");
            std::this_thread::sleep_for(kAskAgain);
        }
    return {};
}

// Until dispatch has surely seen the key that signs.
void wait_until_settled(const Layout& layout) {
    std::error_code ignored;
    const auto settled = fs::last_write_time(layout.private_key(), ignored) + kSettled;
    if (!ignored && running_process(layout.pid_file("dispatch")))
        std::this_thread::sleep_for(
            std::min<fs::file_time_type::duration>(settled - fs::file_time_type::clock::now(), kSettled));
}

Result<Layout> keys_of(const fs::path& state) {
    const Layout layout{fs::absolute(state).lexically_normal()};
    ATOLL_RETURN_IF_ERROR(check_owner(layout.state));
    if (!fs::exists(layout.private_key()))
        return not_found("there is no signing key in " + (layout.state / "keys").string(), "--state");
    return layout;
}

}  // namespace

Status make_credentials(const Layout& layout) {
    ATOLL_RETURN_IF_ERROR(make_keys(layout));
    ATOLL_RETURN_IF_ERROR(make_kafka_credentials(layout));
    ATOLL_TRY(const std::string public_pem, read_file(layout.public_key()));
    ATOLL_TRY(const std::string private_pem, read_file(layout.private_key()));
    return make_tokens(layout, private_pem, public_pem);
}

Status make_kafka_certificates(const Layout& layout) {
    if (!fs::exists(layout.kafka_authority())) {
        ATOLL_TRY(const std::string made, auth::make_authority("atoll-kafka-authority"));
        ATOLL_RETURN_IF_ERROR(write_file_atomic(layout.kafka_authority(), made, 0600));
    }
    ATOLL_TRY(const std::string authority, read_file(layout.kafka_authority()));
    for (const std::string name : {"broker", "registry", "store", "dispatch", "aggregation"}) {
        if (lasts(layout.kafka_certificate(name), authority)) continue;
        const std::vector<std::string> hosts =
            name == "broker" ? std::vector<std::string>{"kafka", "localhost", "127.0.0.1"} : std::vector<std::string>{};
        ATOLL_TRY(const std::string pem, auth::issue_credentials(authority, name, hosts, kTokenLifetime));
        ATOLL_RETURN_IF_ERROR(write_file_atomic(layout.kafka_certificate(name), pem, 0600));
    }
    return {};
}

Status rotate_key(const fs::path& state, const Report& report, std::chrono::milliseconds patience) {
    ATOLL_TRY(const Layout layout, keys_of(state));
    ATOLL_TRY(const UniqueFd held, lock_state(layout));
    ATOLL_TRY(const std::string private_pem, next_key(layout));
    ATOLL_TRY(const std::string public_pem, auth::public_key_of(private_pem));
    ATOLL_RETURN_IF_ERROR(add_public_key(layout, public_pem));
    report("the new key is known; waiting until each service takes its tokens");
    ATOLL_RETURN_IF_ERROR(wait_until_taken(layout, private_pem, Clock::now() + patience));
    ATOLL_RETURN_IF_ERROR(write_file_atomic(layout.private_key(), private_pem, 0600));
    ATOLL_RETURN_IF_ERROR(make_tokens(layout, private_pem, public_pem));
    std::error_code error;
    fs::remove(layout.next_private_key(), error);
    if (error) return internal_error("cannot remove " + layout.next_private_key().string() + ": " + error.message());
    report("the new key signs; tokens of the old one hold until `atoll token rotate-key --drop-old`");
    return {};
}

Status drop_old_keys(const fs::path& state, const Report& report) {
    ATOLL_TRY(const Layout layout, keys_of(state));
    ATOLL_TRY(const UniqueFd held, lock_state(layout));
    if (fs::exists(layout.next_private_key()))
        return conflict("a new key is on its way; `atoll token rotate-key` brings it to its end first", "--drop-old");
    ATOLL_TRY(const std::string private_pem, read_file(layout.private_key()));
    ATOLL_TRY(const std::string public_pem, auth::public_key_of(private_pem));
    ATOLL_TRY(const std::string known, read_file(layout.public_key()));
    if (known == public_pem) {
        report("there is no old key");
        return {};
    }
    wait_until_settled(layout);
    ATOLL_RETURN_IF_ERROR(make_tokens(layout, private_pem, public_pem));
    ATOLL_RETURN_IF_ERROR(write_file_atomic(layout.public_key(), public_pem));
    report("old keys are gone: within five seconds no service takes their tokens");
    return {};
}

}  // namespace atl::stack
