#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "services/stack/stack.h"

// As whom a stack runs that root starts: as the user to whom its state directory belongs, never as root.
namespace atl::stack {

struct StackUser {
    std::string name;
    uid_t uid = 0;
    gid_t gid = 0;
    std::string home;
};

// Whose the state directory is; where it is root's, or is not there, `asked`, else "atoll", which is made.
Result<StackUser> user_of_stack(const std::filesystem::path& state, const std::string& asked);

// As root: makes the state directory the user's, with what an earlier Atoll of root's left in it, and says so.
// kConflict: that one still runs. kInvalidArgument: the user cannot get there.
Status give_state_directory(const Layout& layout, const StackUser& user, const Report& report);

// kInternal: this root cannot become another user, as in a container without the capabilities.
Status may_become(const StackUser& user);

// This process is the user from now on, and can never be root again.
Status become(const StackUser& user);

// As root: becomes the owner of the state directory, which is made absolute and free of links, as root's links may lie
// where the owner cannot go. One of root's own changes nothing, nor does this for anybody but root.
Status become_owner(std::filesystem::path& state);

// This process is the user while the object lives, and root again afterwards.
class ActingAs {
  public:
    explicit ActingAs(const StackUser& user);
    ~ActingAs();
    ActingAs(const ActingAs&) = delete;
    ActingAs& operator=(const ActingAs&) = delete;

  private:
    std::vector<gid_t> groups_;
};

// A token of the stack's own. Root reads it as the directory's owner, who could have put a link to a file of root's in
// its place.
Result<std::string> read_token(const Layout& layout, const std::string& name);

}  // namespace atl::stack
