#pragma once

#include <string>

#include "services/dispatch/db/facilities.h"
#include "services/dispatch/domain/facility.h"
#include "shared/auth/auth.h"

// Who may do what with a facility: it has an owner, who says whose jobs may use the account there. One without an owner
// (of an earlier release) is the admins', for everybody's jobs.
namespace atl::dispatch {

bool may_change(const Facility& facility, const auth::Principal& principal);
// kPermissionDenied that names the facility: jobs of this principal may not use its account.
Status require_use(const Facility& facility, const auth::Principal& principal, const std::string& field);
// kPermissionDenied: at a facility of the coordinator's own machine an admin alone has files prepared that are not in
// its work directory.
Status require_input(const Facility& facility, const auth::Principal& principal, const std::string& input,
                     const std::string& field);
// As whoever may not change it gets it: each value of its environment, which can be a secret, is "…".
Facility without_secrets(Facility facility, const auth::Principal& principal);
// kPermissionDenied: another one's facility, or what an admin alone may say. That is its owner's name, how it is
// reached (the login is made with the coordinator's keys), and what runs on the coordinator's own machine.
Status require_change(const Facility& before, const Facility& after, const auth::Principal& principal);
Status require_remove(const Facility& facility, const auth::Principal& principal);
// kPermissionDenied: an admin has pinned the host key, which then only admins change.
Status require_host_key_change(const StoredFacility& before, const Facility& after, const auth::Principal& principal);

}  // namespace atl::dispatch
