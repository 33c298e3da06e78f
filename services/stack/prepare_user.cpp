#include "services/stack/prepare_user.h"

#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "services/stack/components.h"

namespace atl::stack {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrograms[] = {"atoll",          "atoll-registry",    "atoll-store",
                                     "atoll-dispatch", "atoll-aggregation", "atoll-trainer"};

// Opened by root, written by the user.
struct OpenFile {
    UniqueFd source;
    fs::path copy;
    unsigned mode;
};

bool is_reached(const fs::path& path, int rights, const StackUser& user) {
    const ActingAs acting(user);
    return ::faccessat(AT_FDCWD, path.c_str(), rights, AT_EACCESS) == 0;
}

// None where the user reaches all of them where they are.
Result<std::vector<OpenFile>> open_out_of_reach(const std::vector<fs::path>& files, const fs::path& directory,
                                                unsigned mode, const StackUser& user) {
    std::vector<OpenFile> open;
    const int rights = (mode & 0100) != 0 ? X_OK | R_OK : R_OK;
    if (std::all_of(files.begin(), files.end(), [&](const fs::path& file) { return is_reached(file, rights, user); }))
        return open;
    for (const fs::path& file : files) {
        UniqueFd source(::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
        struct stat info{};
        if (!source.valid() || ::fstat(source.get(), &info) != 0) return file_error(file, "open");
        if (!S_ISREG(info.st_mode)) return invalid_argument(file.string(), "is not a regular file");
        open.push_back({std::move(source), directory / file.filename(), mode});
    }
    return open;
}

bool is_same(const struct stat& one, const struct stat& other) {
    return one.st_size == other.st_size && one.st_mtim.tv_sec == other.st_mtim.tv_sec &&
           one.st_mtim.tv_nsec == other.st_mtim.tv_nsec;
}

// What runs keeps the file that it was started from.
Status write_copy(const OpenFile& file) {
    struct stat source{}, copy{};
    if (::fstat(file.source.get(), &source) != 0) return file_error(file.copy, "look at what becomes");
    if (::lstat(file.copy.c_str(), &copy) == 0 && is_same(source, copy)) return {};
    std::error_code error;
    fs::create_directories(file.copy.parent_path(), error);
    std::string temporary = file.copy.string() + ".XXXXXX";
    const UniqueFd target(::mkostemp(temporary.data(), O_CLOEXEC));
    if (!target.valid()) return file_error(file.copy, "make");
    ssize_t copied = 1;
    while (copied > 0) copied = ::sendfile(target.get(), file.source.get(), nullptr, 1U << 30);
    const timespec times[] = {source.st_mtim, source.st_mtim};
    if (copied == 0 && ::fchmod(target.get(), file.mode) == 0 && ::futimens(target.get(), times) == 0 &&
        ::rename(temporary.c_str(), file.copy.c_str()) == 0)
        return {};
    const Error failed = file_error(file.copy, "write");
    ::unlink(temporary.c_str());
    return failed;
}

// With the end of what an earlier version had there, as a second Kafka beside the first: not while it may run.
Status write_copies(const std::vector<OpenFile>& files, bool is_running) {
    std::set<fs::path> kept;
    for (const OpenFile& file : files) {
        ATOLL_RETURN_IF_ERROR(write_copy(file));
        kept.insert(file.copy);
    }
    std::error_code ignored;
    if (is_running) return {};
    for (const auto& entry : fs::directory_iterator(files.front().copy.parent_path(), ignored))
        if (!kept.contains(entry.path())) fs::remove(entry.path(), ignored);
    return {};
}

std::vector<fs::path> programs_in(const fs::path& directory) {
    std::vector<fs::path> files;
    for (const char* name : kPrograms)
        if (fs::exists(directory / name)) files.push_back(directory / name);
    return files;
}

std::vector<fs::path> jars_in(const fs::path& directory) {
    std::vector<fs::path> files;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(directory, ignored))
        if (entry.path().extension() == ".jar") files.push_back(entry.path());
    return files;
}

class Copier {
  public:
    Copier(const Layout& layout, const StackUser& user, const Report& report)
        : layout_(layout), user_(user), report_(report) {}

    // True where the files were out of reach and have copies now.
    Result<bool> copy(const std::vector<fs::path>& files, const fs::path& directory, unsigned mode) const {
        ATOLL_TRY(const std::vector<OpenFile> open, open_out_of_reach(files, directory, mode, user_));
        if (open.empty()) return false;
        {
            const ActingAs acting(user_);
            ATOLL_RETURN_IF_ERROR(write_copies(open, any_running(layout_)));
        }
        report_(directory.string() + ": copies of what the user " + user_.name + " cannot reach in " +
                files.front().parent_path().string());
        return true;
    }

    Status copy_programs(UpOptions& options) const {
        const Stack stack = stack_of(options);
        if (found_stack(layout_, options.programs, {}).programs == layout_.program_copies())
            options.programs = stack.programs;
        std::vector<fs::path> files = programs_in(stack.programs);
        if (!fs::exists(stack.programs / "atoll")) files.push_back(options.atoll);
        ATOLL_TRY(const bool has_copies, copy(files, layout_.program_copies(), 0755));
        if (has_copies) options.programs = layout_.program_copies();
        if (!is_reached(options.atoll, X_OK, user_))
            options.atoll = (has_copies ? layout_.program_copies() : stack.programs) / "atoll";
        return {};
    }

    Status copy_jars(UpOptions& options) const {
        const Stack stack = stack_of(options);
        if (found_stack(layout_, {}, options.kafka_jars).kafka_jars == layout_.jar_copies())
            options.kafka_jars = stack.kafka_jars;
        ATOLL_TRY(const bool has_copies, copy(jars_in(stack.kafka_jars), layout_.jar_copies(), 0644));
        if (has_copies) options.kafka_jars = layout_.jar_copies();
        return {};
    }

    Status copy_certificate(UpOptions& options) const {
        if (!options.address) return {};
        for (auto& [file, name] :
             {std::pair{&options.address->certificate, "certificate"}, {&options.address->certificate_key, "key"}}) {
            const fs::path directory = layout_.state / "tls" / name;
            const std::vector<fs::path> files(file->empty() ? 0 : 1, *file);
            ATOLL_TRY(const bool has_copy, copy(files, directory, 0600));
            if (has_copy) *file = directory / file->filename();
        }
        return {};
    }

  private:
    // Where root itself has things: what the user's stack.json names root opens for nobody.
    static Stack stack_of(const UpOptions& options) {
        const Layout without_memory{"/nonexistent"};  // no stack.json is there
        return found_stack(without_memory, options.programs, options.kafka_jars);
    }

    const Layout& layout_;
    const StackUser& user_;
    const Report& report_;
};

}  // namespace

Result<StackUser> prepare_user(UpOptions& options, const std::string& asked, const Report& report) {
    options.state = fs::weakly_canonical(fs::absolute(options.state));
    ATOLL_RETURN_IF_ERROR(check_options(options));
    const Layout layout{options.state};
    ATOLL_TRY(StackUser user, user_of_stack(layout.state, asked));
    ATOLL_RETURN_IF_ERROR(may_become(user));
    ATOLL_RETURN_IF_ERROR(give_state_directory(layout, user, report));
    const Copier copier(layout, user, report);
    ATOLL_RETURN_IF_ERROR(copier.copy_programs(options));
    ATOLL_RETURN_IF_ERROR(copier.copy_jars(options));
    ATOLL_RETURN_IF_ERROR(copier.copy_certificate(options));
    return user;
}

}  // namespace atl::stack
