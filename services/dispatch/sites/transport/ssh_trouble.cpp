#include "services/dispatch/sites/transport/ssh_trouble.h"

#include <algorithm>
#include <sstream>
#include <string_view>

#include "services/dispatch/sites/transport/frame.h"
#include "shared/base/text.h"

namespace atl::dispatch {
namespace {

constexpr std::string_view kMends = " → ";

// OpenSSH speaks English everywhere. A line of its own, not of a site's banner.
bool is_refusal_of_key_or_user(std::string_view line) {
    const bool has_methods = line.find(": Permission denied (") != std::string_view::npos && line.ends_with(").");
    return has_methods || line.find(": Too many authentication failures") != std::string_view::npos ||
           line.find("No more authentication methods available") != std::string_view::npos;
}

bool is_about_host_key(std::string_view line) {
    return line == "Host key verification failed." || line.find("host key is known for ") != std::string_view::npos ||
           line.find("no matching host key type found") != std::string_view::npos;
}

// Before ssh has said for whom it comes: no log of logins there holds it.
bool is_about_the_way(std::string_view line) {
    return line.starts_with("ssh: connect to host ") || line.starts_with("ssh: Could not resolve hostname ") ||
           line.starts_with("kex_exchange_identification: ") || line.starts_with("banner exchange: ");
}

bool is_letter_or_digit(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool consists_of(std::string_view text, std::string_view more) {
    return std::ranges::all_of(text,
                               [&](char c) { return is_letter_or_digit(c) || more.find(c) != std::string_view::npos; });
}

// "SHA256:…" of "SHA256:….", as it stands on a line of its own.
std::string read_fingerprint(std::string_view line) {
    constexpr std::string_view kBegin = "SHA256:";
    constexpr std::size_t kLength = 43;  // of 32 bytes in base64, which is not filled up
    const std::string_view hash = line.substr(std::min(line.size(), kBegin.size()), kLength);
    if (!line.starts_with(kBegin) || hash.size() != kLength || !consists_of(hash, "+/")) return {};
    const std::string_view rest = line.substr(kBegin.size() + kLength);
    return rest.empty() || rest == "." ? std::string(line.substr(0, kBegin.size() + kLength)) : std::string();
}

// A path that means nothing else to a shell: it goes into a command that people copy.
bool is_harmless_path(std::string_view path) {
    return path.starts_with('/') && consists_of(path, "/._-+@=,:");
}

// The file between two marks of a line.
std::string between(std::string_view line, std::string_view begin, std::string_view end) {
    const auto from = line.find(begin) + begin.size();
    return last_line(std::string(line.substr(from, line.find(end, from) - from)));
}

// A private key that ssh passes over: "Permissions 0644 for 'FILE' are too open.", "Load key "FILE": REASON".
void read_key_trouble(std::string_view line, LoginFailure& failure) {
    std::string file;
    if (line.starts_with("Permissions ") && line.ends_with(" are too open.")) {
        file = between(line, " for '", "'");
        if (!is_harmless_path(file)) return;
        failure.key_file = file;
        failure.key = "the key " + file + " can be read by others, so ssh does not use it";
        failure.key_mend = "`chmod 600 " + file + "`";
    } else if (line.starts_with("Load key \"") && line.find("\": ") != std::string_view::npos && failure.key.empty()) {
        file = between(line, "Load key \"", "\"");
        if (!is_harmless_path(file)) return;
        failure.key_file = file;
        const std::string reason = last_line(std::string(line.substr(line.rfind(": ") + 2)));
        const bool is_denied = reason == "Permission denied";
        failure.key = "the key " + file + " cannot be read: " + reason;
        failure.key_mend = is_denied ? "give " + file + " to the user that dispatch runs as, `chmod 600` it"
                                     : "put a private key of OpenSSH's into " + file;
    }
}

// As ssh, a host or a certificate says it, without the mark that divides our texts.
std::string unmarked(const std::string& said) {
    return replace_all(said, kMends, " -> ");
}

}  // namespace

void forget_foreign_key(LoginFailure& failure, const std::set<std::string>& own) {
    if (own.contains(failure.key_file)) return;
    failure.key_file.clear();
    failure.key.clear();
    failure.key_mend.clear();
}

std::string ssh_messages(const std::string& own, const std::string& err, bool has_given_up) {
    if (trim(own).empty()) return has_given_up ? err : "";
    return read_login_failure(own).has_reached_site ? own : err + "\n" + own;
}

LoginFailure read_login_failure(const std::string& said) {
    LoginFailure failure;
    failure.words = last_line(said);
    std::istringstream lines(said);
    for (std::string line; std::getline(lines, line);) {
        if (line.ends_with('\r')) line.pop_back();
        if (is_about_the_way(line)) failure.has_reached_site = false;
        if (const std::string shown = read_fingerprint(line); !shown.empty()) failure.fingerprint = shown;
        read_key_trouble(line, failure);
        if (is_about_host_key(line)) failure.cause = Cause::kHostKey;
        if (!is_refusal_of_key_or_user(line)) continue;
        failure.cause = Cause::kAuthentication;
        failure.words = last_line(line);
    }
    // A host on the way has refused: what comes after it tells only that the way ended there.
    if (failure.cause == Cause::kAuthentication) failure.has_reached_site = true;
    if (failure.cause != Cause::kHostKey) failure.fingerprint.clear();
    return failure;
}

std::string describe_login_failure(const LoginFailure& failure, const std::string& facility, const TransportSpec& spec,
                                   const std::string& certificates) {
    const std::string mends(kMends);
    if (failure.cause == Cause::kHostKey) {
        const std::string trust = "`atoll facility trust " + facility + "` shows and pins ";
        if (failure.fingerprint.empty())
            return "no host key of " + spec.host + " is known that it has" + mends + trust + "the one that it shows";
        return spec.host + " shows another host key than the known one: " + failure.fingerprint + mends +
               "if the site says that it is new, " + trust + "it";
    }
    if (failure.cause != Cause::kAuthentication)
        return "no connection to " + spec.host + ": " + unmarked(failure.words);
    std::string why = failure.words;
    for (const std::string& more : {failure.key, certificates})
        if (!more.empty()) why += "; " + more;
    const std::string by_hand =
        "`ssh " + (spec.config_file.empty() ? "" : "-F " + spec.config_file + " ") + spec.host + "`";
    const std::string refusal = spec.host + " refuses the login (" + unmarked(why) + ")" + mends;
    if (!failure.key_mend.empty()) return refusal + failure.key_mend + ", which is noticed by itself";
    return refusal + "try " + by_hand +
           " by hand as the coordinator's user. A changed key, certificate, agent or ssh configuration is noticed by " +
           "itself, `atoll facility check " + facility +
           "` tries at once; for a second factor there is `atoll facility login " + facility + "`";
}

std::pair<std::string, std::string> split_mend(const std::string& message) {
    const auto at = message.find(kMends);
    if (at == std::string::npos) return {message, ""};
    return {message.substr(0, at), message.substr(at + kMends.size())};
}

}  // namespace atl::dispatch
