#include "shared/base/staged_directory.h"

#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>
#include <vector>

#include "shared/base/file_lock.h"

namespace atl {
namespace {

namespace fs = std::filesystem;

Status remove_file(const fs::path& path) {
    std::error_code error;
    fs::remove(path, error);
    return error ? Status(file_error(path, "remove", error)) : Status();
}

Status move_file(const fs::path& from, const fs::path& to) {
    std::error_code error;
    fs::rename(from, to, error);
    return error ? Status(file_error(to, "rename to", error)) : Status();
}

std::vector<std::string> names_in(const fs::path& directory) {
    std::vector<std::string> names;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(directory, error))
        names.push_back(entry.path().filename().string());
    return names;
}

// By the open directory, so that nothing of another directory goes which has its name now.
fs::path path_by_lock(const UniqueFd& lock, const fs::path& name) {
    return fs::path("/proc/self/fd") / std::to_string(lock.get()) / name;
}

}  // namespace

StagedDirectory::StagedDirectory(fs::path out, bool is_new, UniqueFd lock)
    : out_(std::move(out)), is_new_(is_new), work_(out_ / ".saving"), lock_(std::move(lock)) {}

StagedDirectory::StagedDirectory(StagedDirectory&& other) noexcept
    : out_(std::move(other.out_)),
      is_new_(other.is_new_),
      work_(std::exchange(other.work_, {})),
      lock_(std::move(other.lock_)) {}

StagedDirectory::~StagedDirectory() {
    if (work_.empty()) return;
    std::error_code ignored;
    fs::remove_all(path_by_lock(lock_, work_.filename()), ignored);
    if (is_new_ && leads_to(out_, lock_)) ::rmdir(out_.c_str());  // fails if there is something in it
}

Result<StagedDirectory> StagedDirectory::create(const fs::path& out) {
    std::error_code error;
    const bool was_there = fs::exists(out, error);
    fs::create_directories(out, error);
    if (error) return file_error(out, "create", error);
    ATOLL_TRY(UniqueFd lock, lock_directory(out));
    StagedDirectory staged(out, !was_there, std::move(lock));
    fs::remove_all(staged.work_, error);
    if (!error) fs::create_directory(staged.work_, error);
    if (error) return file_error(staged.work_, "create", error);
    return staged;
}

Status StagedDirectory::commit(const std::string& gate, const std::function<bool(const std::string&)>& stale) {
    const std::vector<std::string> names = names_in(work_);
    check(std::ranges::find(names, gate) != names.end(), "a staged directory without what makes it readable");
    if (!leads_to(out_, lock_))
        return Error{ErrorCode::kNotFound,
                     out_.string() + " was renamed, removed or replaced while its new files were written",
                     out_.string()};
    ATOLL_RETURN_IF_ERROR(remove_file(out_ / gate));
    (void)sync_path(out_);
    for (const std::string& name : names) {
        if (name != gate) ATOLL_RETURN_IF_ERROR(move_file(work_ / name, out_ / name));
    }
    for (const std::string& name : names_in(out_)) {
        if (stale(name) && std::ranges::find(names, name) == names.end())
            ATOLL_RETURN_IF_ERROR(remove_file(out_ / name));
    }
    (void)sync_path(out_);
    ATOLL_RETURN_IF_ERROR(move_file(work_ / gate, out_ / gate));
    (void)sync_path(out_);
    return {};
}

}  // namespace atl
