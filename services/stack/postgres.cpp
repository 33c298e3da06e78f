#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "services/stack/component.h"
#include "services/stack/process.h"
#include "shared/base/file.h"
#include "shared/digest/digest.h"

namespace atl::stack {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSuperuser = "atoll";

constexpr const char* kSettings =
    R"(# Written by `atoll up`. Only a unix socket in a private directory: no port, no password.
listen_addresses = ''
unix_socket_permissions = 0700
max_connections = 200
shared_buffers = 64MB
max_wal_size = 256MB
timezone = 'UTC'
log_timezone = 'UTC'
log_min_messages = warning
log_checkpoints = off
)";

// The newest server's programs; Debian keeps them out of PATH.
Result<fs::path> postgres_programs() {
    if (const char* given = std::getenv("ATOLL_POSTGRES_BIN")) return fs::path(given);
    std::error_code ignored;
    std::vector<std::pair<int, fs::path>> found;
    for (const auto& entry : fs::directory_iterator("/usr/lib/postgresql", ignored))
        if (fs::exists(entry.path() / "bin/initdb"))
            found.emplace_back(std::atoi(entry.path().filename().c_str()), entry.path() / "bin");
    if (found.empty())
        return not_found(
            "PostgreSQL's server is not installed: install Debian's package postgresql, or set "
            "ATOLL_POSTGRES_BIN to the directory of initdb");
    return std::max_element(found.begin(), found.end())->second;
}

fs::path postgres_socket_directory(const Layout& layout) {
    return socket_directory(layout, layout.postgres() / "run", ".s.PGSQL.5432", "");
}

// Private to us.
Status make_private(const fs::path& directory) {
    std::error_code error;
    fs::create_directories(directory, error);
    struct stat info{};
    if (error || ::lstat(directory.c_str(), &info) != 0 || !S_ISDIR(info.st_mode))
        return internal_error("cannot make " + directory.string());
    if (info.st_uid != ::geteuid()) return conflict(directory.string() + " belongs to another user");
    ::chmod(directory.c_str(), 0700);
    return {};
}

Status create_cluster(const Layout& layout, const fs::path& programs) {
    const fs::path data = layout.postgres() / "data";
    if (!fs::exists(data / "atoll-ready")) {
        std::error_code ignored;
        fs::remove_all(data, ignored);  // of an initdb that was cut short
        ATOLL_RETURN_IF_ERROR(make_private(data));
        ATOLL_RETURN_IF_ERROR(run_checked({(programs / "initdb").string(), "-D", data.string(), "-U", kSuperuser,
                                           "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8"},
                                          "initdb failed", kMakeTimeMax));
        ATOLL_RETURN_IF_ERROR(write_file_atomic(data / "atoll-ready", ""));
    }
    return write_file_atomic(data / "postgresql.conf", kSettings);
}

Result<std::vector<std::string>> start_postgres(const Layout& layout) {
    ATOLL_TRY(const fs::path programs, postgres_programs());
    ATOLL_RETURN_IF_ERROR(make_private(layout.postgres()));
    ATOLL_RETURN_IF_ERROR(make_private(postgres_socket_directory(layout)));
    ATOLL_RETURN_IF_ERROR(create_cluster(layout, programs));
    return std::vector<std::string>{(programs / "postgres").string(), "-D", (layout.postgres() / "data").string(), "-k",
                                    postgres_socket_directory(layout).string()};
}

bool postgres_answers(const Layout& layout) {
    const auto programs = postgres_programs();
    return programs.ok() &&
           run_checked({(*programs / "pg_isready").string(), "-q", "-h", postgres_socket_directory(layout).string(),
                        "-U", kSuperuser, "-d", "postgres"},
                       "")
               .ok();
}

// Answers, and has the database.
bool postgres_ready(const Layout& layout) {
    if (!postgres_answers(layout)) return false;
    const fs::path made = layout.postgres() / "database-made";
    if (fs::exists(made)) return true;
    const std::string programs = postgres_programs()->string();
    const std::string directory = postgres_socket_directory(layout).string();
    const auto run = [&](const char* program, const std::vector<std::string>& arguments) {
        std::vector<std::string> argv = {programs + "/" + program, "-h", directory, "-U", kSuperuser};
        argv.insert(argv.end(), arguments.begin(), arguments.end());
        return run_checked(argv, std::string(program) + " failed");
    };
    const auto count =
        run("psql", {"-qAtd", "postgres", "-c", "select count(*) from pg_database where datname = 'atoll'"});
    if (!count.ok() || (*count == "0\n" && !run("createdb", {"atoll"}).ok())) return false;
    return write_file_atomic(made, "").ok();
}

}  // namespace

std::string postgres_conninfo(const Layout& layout) {
    std::string host;
    for (const char c : postgres_socket_directory(layout).string()) {
        if (c == '\'' || c == '\\') host += '\\';
        host += c;
    }
    return "host='" + host + "' port=5432 user=" + kSuperuser + " dbname=atoll";
}

Component postgres_component(const Stack& stack) {
    Component component;
    component.name = "postgres";
    component.address = postgres_socket_directory(stack.layout).string();
    component.start = [layout = stack.layout] { return start_postgres(layout); };
    component.ready = [layout = stack.layout] { return postgres_ready(layout); };
    component.stop_signal = SIGINT;  // fast shutdown: ends connections, writes a checkpoint
    component.stop_time_max = std::chrono::seconds(30);
    component.after_stop = [directory = postgres_socket_directory(stack.layout)] {
        std::error_code ignored;
        fs::remove(directory, ignored);  // when it lies under /tmp; not if anything is left in it
    };
    return component;
}

}  // namespace atl::stack
