#include "services/stack/stack_user.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <thread>

#include "services/stack/components.h"
#include "services/stack/process.h"
#include "shared/base/environment.h"
#include "shared/base/file.h"

namespace atl::stack {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUser = "atoll";
constexpr const char* kHome = "/var/lib/atoll-home";  // ssh looks there for keys and its configuration
// What an Atoll that ran as root made. The copies of programs are younger: where root has some they are root's own.
constexpr std::array<std::string_view, 12> kOwnEntries = {
    "stack.json", "lock", "settings.yaml", "run", "logs", "keys", "tokens", "config", "store", "kafka", "nginx", "pg"};

std::optional<StackUser> known_user(const passwd* entry) {
    if (entry == nullptr) return {};
    return StackUser{entry->pw_name, entry->pw_uid, entry->pw_gid, entry->pw_dir};
}

// Two that begin at once both want it; only one of them finds /etc/passwd unlocked.
Result<StackUser> make_user() {
    const std::string useradd = fs::exists("/usr/sbin/useradd") ? "/usr/sbin/useradd" : "useradd";
    const std::vector<std::string> argv = {useradd,         "--system",          "--user-group",
                                           "--create-home", "--home-dir",        kHome,
                                           "--shell",       "/usr/sbin/nologin", kUser};
    constexpr int kAttempts = 50;
    constexpr std::chrono::milliseconds kPause{100};
    std::string why;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
        const auto made = run_checked(argv, "useradd failed");
        if (const auto user = known_user(::getpwnam(kUser))) return *user;
        why = made.ok() ? "useradd made none" : made.error().message;
        if (!made.ok() && made.error().code == ErrorCode::kNotFound) {
            why = "useradd is not installed";
            break;
        }
        std::this_thread::sleep_for(kPause);
    }
    return not_found(std::string("root runs Atoll as the user ") + kUser + ", who could not be created: " + why +
                         ". Create that user, or name another one with --user",
                     "--user");
}

// As the user.
Status check_way(const fs::path& directory, const StackUser& user) {
    const ActingAs acting(user);
    fs::path way;
    for (const fs::path& part : directory) {
        way /= part;
        if (::faccessat(AT_FDCWD, way.c_str(), X_OK, AT_EACCESS) == 0) continue;
        if (errno == ENOENT) return {};
        return invalid_argument("--state", "the user " + user.name + ", as whom root runs Atoll, cannot enter " +
                                               way.string() + " on the way to " + directory.string() +
                                               ": choose a --state directory whose parents others may enter, and move "
                                               "there what this one holds");
    }
    return {};
}

// A directory that holds other things too is not given away.
Result<std::vector<fs::path>> own_entries(const Layout& layout) {
    std::vector<fs::path> own;
    std::string strange;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(layout.state, error)) {
        const std::string name = entry.path().filename();
        if (std::find(kOwnEntries.begin(), kOwnEntries.end(), name) != kOwnEntries.end())
            own.push_back(fs::weakly_canonical(entry.path()));
        else
            strange = name;
    }
    if (strange.empty() || fs::exists(layout.file())) return own;
    return conflict(layout.state.string() + " holds what is not Atoll's (" + strange + "): choose an empty directory",
                    "--state");
}

// The directory itself comes last: whoever is killed on the way leaves it root's, and the next call goes on.
Status give_away(const Layout& layout, const StackUser& user) {
    ATOLL_TRY(const std::vector<fs::path> entries, own_entries(layout));
    if (!entries.empty()) {
        std::vector<std::string> argv = {"chown", "--recursive", "--no-dereference",
                                         std::to_string(user.uid) + ":" + std::to_string(user.gid), "--"};
        argv.insert(argv.end(), entries.begin(), entries.end());
        ATOLL_RETURN_IF_ERROR(
            run_checked(argv, layout.state.string() + " cannot be given away", std::chrono::hours(1)));
    }
    if (::chown(layout.state.c_str(), user.uid, user.gid) != 0) return file_error(layout.state, "give away");
    return {};
}

Error cannot_become(const StackUser& user) {
    return internal_error("root cannot become the user " + user.name +
                          ": where this is a container, it needs the capabilities setuid and setgid");
}

}  // namespace

ActingAs::ActingAs(const StackUser& user) {
    groups_.resize(static_cast<std::size_t>(std::max(0, ::getgroups(0, nullptr))));
    groups_.resize(
        static_cast<std::size_t>(std::max(0, ::getgroups(static_cast<int>(groups_.size()), groups_.data()))));
    // The real user too, with root kept aside: a program that is started meanwhile cannot become root again, nor is a
    // process of root's signalled because a file of the user's names it.
    check(::initgroups(user.name.c_str(), user.gid) == 0 && ::setresgid(user.gid, user.gid, 0) == 0 &&
              ::setresuid(user.uid, user.uid, 0) == 0,
          "root cannot act as another user");
}

ActingAs::~ActingAs() {
    check(::setresuid(0, 0, 0) == 0 && ::setresgid(0, 0, 0) == 0 && ::setgroups(groups_.size(), groups_.data()) == 0,
          "root cannot be root again");
}

Result<StackUser> user_of_stack(const fs::path& state, const std::string& asked) {
    struct stat info{};
    if (::stat(state.c_str(), &info) == 0 && info.st_uid != 0) {
        const auto owner = known_user(::getpwuid(info.st_uid));
        if (!owner)
            return invalid_argument("--state", state.string() + " belongs to user " + std::to_string(info.st_uid) +
                                                   ", who has no name on this machine");
        if (!asked.empty() && asked != owner->name)
            return conflict("the stack in " + state.string() + " belongs to " + owner->name + ", not to " + asked,
                            "--user");
        return *owner;
    }
    const auto user = known_user(::getpwnam(asked.empty() ? kUser : asked.c_str()));
    if (!user && asked.empty()) return make_user();
    if (!user) return not_found("there is no user " + asked, "--user");
    if (user->uid == 0) return invalid_argument("--user", "must be another user than root");
    return *user;
}

Status give_state_directory(const Layout& layout, const StackUser& user, const Report& report) {
    struct stat info{};
    if (::stat(layout.state.c_str(), &info) == 0 && info.st_uid == user.uid) return check_way(layout.state, user);
    const std::string state = quoted(layout.state);
    if (any_running(layout))
        return conflict("Atoll runs as root in " + state + ": `atoll down --state " + state +
                        "` first, its data stays; then `atoll up` runs it as the user " + user.name);
    ATOLL_RETURN_IF_ERROR(check_way(layout.state.parent_path(), user));
    std::error_code error;
    fs::create_directories(layout.state, error);
    if (error) return invalid_argument("--state", "cannot make " + layout.state.string() + ": " + error.message());
    ATOLL_RETURN_IF_ERROR(give_away(layout, user));
    ATOLL_RETURN_IF_ERROR(check_way(layout.state, user));
    if (fs::exists(layout.file()))
        report(layout.state.string() + " was root's and belongs to the user " + user.name +
               " now, as whom all runs: for ssh with the keys and the configuration of " + user.home + "/.ssh");
    return {};
}

Status may_become(const StackUser& user) {
    const bool may = ::setegid(user.gid) == 0 && ::seteuid(user.uid) == 0;
    check(::seteuid(0) == 0 && ::setegid(0) == 0, "root cannot be root again");
    const int groups = may ? ::getgroups(0, nullptr) : -1;
    std::vector<gid_t> all(static_cast<std::size_t>(std::max(0, groups)));
    const bool sets_groups =
        groups >= 0 && ::getgroups(groups, all.data()) >= 0 && ::setgroups(all.size(), all.data()) == 0;
    return sets_groups ? Status() : cannot_become(user);
}

Status become(const StackUser& user) {
    if (::initgroups(user.name.c_str(), user.gid) != 0 || ::setgid(user.gid) != 0 || ::setuid(user.uid) != 0)
        return cannot_become(user);
    check(::setuid(0) != 0, "rights were kept");
    for (const char* name : {"USER", "LOGNAME"}) ::setenv(name, user.name.c_str(), 1);
    ::setenv("HOME", user.home.c_str(), 1);
    ::setenv("SHELL", "/bin/sh", 1);
    if (::access(environment("TMPDIR").c_str(), W_OK | X_OK) != 0) ::unsetenv("TMPDIR");
    std::error_code ignored;
    fs::current_path("/", ignored);
    return {};
}

Result<std::string> read_token(const Layout& layout, const std::string& name) {
    struct stat info{};
    if (::geteuid() != 0 || ::stat(layout.state.c_str(), &info) != 0 || info.st_uid == 0)
        return read_file(layout.token(name));
    ATOLL_TRY(const StackUser user, user_of_stack(layout.state, {}));
    ATOLL_RETURN_IF_ERROR(may_become(user));
    const ActingAs acting(user);
    return read_file(layout.token(name));
}

Status become_owner(fs::path& state) {
    if (::geteuid() != 0) return {};
    state = fs::weakly_canonical(fs::absolute(state));
    struct stat info{};
    if (::stat(state.c_str(), &info) != 0 || info.st_uid == 0) return {};
    ATOLL_TRY(const StackUser user, user_of_stack(state, {}));
    return become(user);
}

}  // namespace atl::stack
