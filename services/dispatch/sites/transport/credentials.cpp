#include "services/dispatch/sites/transport/credentials.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <set>
#include <sstream>

#include "services/dispatch/sites/transport/frame.h"
#include "shared/base/environment.h"
#include "shared/base/subprocess.h"
#include "shared/base/text.h"

namespace atl::dispatch {
namespace {

constexpr std::chrono::seconds kAskTimeMax{10};
constexpr std::size_t kHopsMax = 8;

CommandResult ask(const std::vector<std::string>& argv, const std::map<std::string, std::string>& environment = {}) {
    CommandOptions options;
    options.timeout = kAskTimeMax;
    options.environment = environment;
    const auto answer = run_command(argv, options);
    return answer.ok() ? *answer : CommandResult();
}

// As ssh does it: by the user's entry, not by $HOME.
std::string without_tilde(const std::string& path) {
    const passwd* user = ::getpwuid(::getuid());
    for (const char* sign : {"~/", "%d/"})
        if (path.starts_with(sign) && user != nullptr)
            return std::string(user->pw_dir) + path.substr(1 + (*sign == '%'));
    return path;
}

struct Named {
    std::set<std::string> files;
    std::set<std::string> keys;
    std::set<std::string> agents;
    std::vector<std::string> jumps;
};

// ssh -G.
CommandResult ask_ssh(const std::string& host, const std::string& config_file) {
    std::vector<std::string> argv = {"ssh", "-v", "-G"};
    if (!config_file.empty()) argv.insert(argv.end(), {"-F", config_file});
    argv.insert(argv.end(), {"--", host});
    return ask(argv);
}

// What ssh would use on its way to one host.
void add_what_ssh_names(const std::string& host, const std::string& config_file, Named& named) {
    const CommandResult answer = ask_ssh(host, config_file);
    std::istringstream options(answer.out);
    for (std::string line; std::getline(options, line);) {
        std::istringstream words(line);
        std::string key, value;
        words >> key;
        if (key == "identityfile" || key == "certificatefile" || key == "userknownhostsfile" ||
            key == "globalknownhostsfile") {
            while (words >> value) {
                const std::string path = without_tilde(value);
                named.files.insert(path);
                if (key != "identityfile") continue;
                named.keys.insert(path);
                named.files.insert({path + ".pub", path + "-cert.pub"});
            }
        } else if (key == "identityagent" && words >> value) {
            named.agents.insert(value == "SSH_AUTH_SOCK" ? "" : without_tilde(value));
        } else if (key == "proxyjump" && words >> value && value != "none") {
            std::istringstream hops(value);
            for (std::string hop; std::getline(hops, hop, ',');) named.jumps.push_back(hop);
        }
    }
    std::istringstream notes(answer.err);
    const std::string reading = "Reading configuration data ";
    for (std::string line; std::getline(notes, line);)
        if (const auto at = line.find(reading); at != std::string::npos) {
            while (line.ends_with('\r')) line.pop_back();
            named.files.insert(line.substr(at + reading.size()));
        }
}

std::string describe_file(const std::string& path) {
    struct stat info{};
    if (::stat(path.c_str(), &info) != 0) return path + " is not there\n";
    return path + " " + std::to_string(info.st_size) + " " + std::to_string(info.st_ino) + " " +
           std::to_string(info.st_mtim.tv_sec) + "." + std::to_string(info.st_mtim.tv_nsec) + " " +
           std::to_string(info.st_mode) + "\n";
}

// "from 2026-11-23T10:00:00 to 2026-11-23T22:00:00", in UTC, or "forever"; "" of what is no certificate.
std::string read_validity(const std::string& file) {
    const std::string about = ask({"ssh-keygen", "-L", "-f", file}, {{"TZ", "UTC0"}}).out;
    const auto begin = about.find("Valid: ");
    if (begin == std::string::npos) return "";
    const auto end = std::min(about.find('\n', begin), about.size());
    return last_line(about.substr(begin + 7, end - begin - 7));
}

}  // namespace

Credentials read_credentials(const TransportSpec& spec) {
    Named named;
    named.jumps = {spec.host};
    for (std::size_t hop = 0; hop < named.jumps.size() && hop < kHopsMax; ++hop)
        add_what_ssh_names(std::string(named.jumps[hop]), spec.config_file, named);
    named.agents.insert("");
    Credentials credentials;
    credentials.keys = named.keys;
    for (const std::string& file : named.files) {
        credentials.state += describe_file(file);
        if (file.ends_with("-cert.pub") && ::access(file.c_str(), R_OK) == 0) credentials.certificates.push_back(file);
    }
    for (const std::string& agent : named.agents) {
        const std::string socket = agent.empty() ? environment("SSH_AUTH_SOCK") : agent;
        if (!socket.empty() && socket != "none")
            credentials.state += ask({"ssh-add", "-l"}, {{"SSH_AUTH_SOCK", socket}}).out;
    }
    return credentials;
}

LoginTarget resolve_target(const TransportSpec& spec) {
    LoginTarget target{"", spec.host};
    std::istringstream options(ask_ssh(spec.host, spec.config_file).out);
    for (std::string key, value; options >> key && std::getline(options >> std::ws, value);) {
        if (key == "user") target.user = value;
        if (key == "hostname") target.host = value;
        if (key == "port") target.port = value;
    }
    return target;
}

std::string to_text(const LoginTarget& target) {
    return (target.user.empty() ? "" : target.user + "@") + target.host + ":" + target.port;
}

std::string describe_certificates(const Credentials& credentials) {
    std::vector<std::string> descriptions;
    for (const std::string& file : credentials.certificates)
        if (const std::string validity = read_validity(file); !validity.empty())
            descriptions.push_back("certificate " + file + ": valid " + validity + ", UTC");
    return join(descriptions, "; ");
}

std::optional<std::int64_t> certificates_end_s(const Credentials& credentials) {
    std::optional<std::int64_t> first;
    for (const std::string& file : credentials.certificates) {
        const std::string validity = read_validity(file);
        const auto at = validity.find(" to ");
        std::tm end{};
        if (at == std::string::npos || ::strptime(validity.c_str() + at + 4, "%Y-%m-%dT%H:%M:%S", &end) == nullptr)
            continue;
        const std::int64_t end_s = ::timegm(&end);
        first = first ? std::min(*first, end_s) : end_s;
    }
    return first;
}

}  // namespace atl::dispatch
