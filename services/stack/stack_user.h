#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "services/stack/stack.h"

// The unprivileged user that runs a stack which root starts: the owner of its state directory, never root.
namespace atl::stack {

struct StackUser {
    std::string name;
    uid_t uid = 0;
    gid_t gid = 0;
    std::string home;
};

// Returns the owner of the state directory. If that is root or the directory does not exist, returns the user `asked`,
// or "atoll" where none is asked for; "atoll" is created if it does not exist.
Result<StackUser> user_of_stack(const std::filesystem::path& state, const std::string& asked);

// Root only. Gives the user the state directory and everything that an earlier version, which ran as root, left in it,
// and reports that. kConflict: that stack is still running. kInvalidArgument: the user cannot enter the directory.
Status give_state_directory(const Layout& layout, const StackUser& user, const Report& report);

// Checks that this process can switch to the user. kInternal: it cannot, as in a container without CAP_SETUID.
Status may_become(const StackUser& user);

// Switches this process to the user for good: it cannot become root again.
Status become(const StackUser& user);

// Switches to the owner of the state directory if this process is root and the owner is not. Also resolves `state` to
// an absolute path without links, because root's links may lie where the owner cannot enter.
Status become_owner(std::filesystem::path& state);

// Runs this process as the user during the object's lifetime, and as root again afterwards.
class ActingAs {
  public:
    explicit ActingAs(const StackUser& user);
    ~ActingAs();
    ActingAs(const ActingAs&) = delete;
    ActingAs& operator=(const ActingAs&) = delete;

  private:
    std::vector<gid_t> groups_;
};

// Reads one of the stack's tokens. Root reads it as the owner of the directory, who could have replaced it by a link to
// a file that only root may read.
Result<std::string> read_token(const Layout& layout, const std::string& name);

}  // namespace atl::stack
