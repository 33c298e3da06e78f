#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "shared/base/file.h"

namespace atl {

// New files of a directory that take the place of older ones together. They are written into path(), inside the
// directory, so that renaming never copies. While the object lives, no process of this machine makes another for the
// same directory; what a killed process left is removed.
//
//   ATOLL_TRY(StagedDirectory staged, StagedDirectory::create(out));
//   for (each file) ATOLL_RETURN_IF_ERROR(write_file_atomic(staged.path() / name, bytes));
//   return staged.commit("config.json", is_one_of_ours);
class StagedDirectory {
  public:
    // Makes the directory too. kConflict: another process is writing there.
    static Result<StagedDirectory> create(const std::filesystem::path& out);
    ~StagedDirectory();  // removes what is not in place, and the directory if it was made for that and is empty
    StagedDirectory(StagedDirectory&& other) noexcept;
    StagedDirectory& operator=(StagedDirectory&&) = delete;

    const std::filesystem::path& path() const { return work_; }

    // Puts the files in place, which are synced; others that are `stale` by name go. Nothing can be read without the
    // file `gate`: the old one goes first and the new one comes last. So a crash, or an error, leaves the old files,
    // the new ones, or nothing that can be read: never a mixture. kNotFound: the directory is no longer at its place,
    // or another one is there, which is left as it is.
    Status commit(const std::string& gate, const std::function<bool(const std::string&)>& stale);

  private:
    StagedDirectory(std::filesystem::path out, bool is_new, UniqueFd lock);
    std::filesystem::path out_;
    bool is_new_;                 // out_, which was not there
    std::filesystem::path work_;  // empty: moved from
    UniqueFd lock_;               // of out_
};

}  // namespace atl
