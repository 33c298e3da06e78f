#include "services/dispatch/admission/facility_access.h"

#include <algorithm>

#include "services/dispatch/domain/preparation_spec.h"
#include "shared/base/text.h"

namespace atl::dispatch {
namespace {

bool is_admin(const auth::Principal& principal) {
    return principal.role == auth::Role::kAdmin;
}

Error denied(const std::string& why, const std::string& field) {
    return {ErrorCode::kPermissionDenied, why, field};
}

Status require_owner(const Facility& facility, const auth::Principal& principal) {
    if (may_change(facility, principal)) return {};
    const std::string& owner = facility.owner;
    return denied("the facility " + in_quotes(facility.name) + " is " +
                      (owner.empty() ? "the admins'" : "of " + owner) + "; only " +
                      (owner.empty()      ? "they"
                       : owner == "admin" ? "an admin"
                                          : owner + " or an admin") +
                      " may change it",
                  "owner");
}

}  // namespace

bool may_change(const Facility& facility, const auth::Principal& principal) {
    const bool is_owner = !facility.owner.empty() && facility.owner == principal.subject;
    return is_admin(principal) || (is_owner && principal.role == auth::Role::kOperator);
}

Status require_use(const Facility& facility, const auth::Principal& principal, const std::string& field) {
    if (may_change(facility, principal) || is_for_jobs_of(facility, principal.subject)) return {};
    std::vector<std::string> names = facility.allow;
    names.push_back(principal.subject);
    const std::string owner = facility.owner.empty() ? "the admins" : facility.owner;
    return denied("the facility " + in_quotes(facility.name) + " of " + owner + " is not for jobs of " +
                      in_quotes(principal.subject) + "; its owner may say `atoll facility set " + facility.name +
                      " --allow " + join(names, " --allow ") + "`",
                  field);
}

Status require_input(const Facility& facility, const auth::Principal& principal, const std::string& input,
                     const std::string& field) {
    const bool is_elsewhere = std::ranges::any_of(input_paths(input), [&](const std::string& path) {
        return path.starts_with('/') && !path.starts_with(facility.work_dir + "/");
    });
    if (is_admin(principal) || facility.transport.kind != TransportKind::kLocal || !is_elsewhere) return {};
    return denied("a file of the coordinator's own machine must be in the facility's directory, " + facility.work_dir +
                      ", as all its facilities run as one user: have it copied there, or ask an admin to prepare it",
                  field);
}

Facility without_secrets(Facility facility, const auth::Principal& principal) {
    if (may_change(facility, principal)) return facility;
    for (auto& [name, value] : facility.environment) value = "…";
    return facility;
}

Status require_change(const Facility& before, const Facility& after, const auth::Principal& principal) {
    ATOLL_RETURN_IF_ERROR(require_owner(before, principal));
    if (is_admin(principal)) return {};
    if (after.owner != before.owner) return denied("an admin alone may give a facility to somebody else", "owner");
    Facility allowing = before;
    allowing.allow = after.allow;
    if (to_json(allowing) == to_json(after)) return {};  // the records: what was found out of the site is none of it
    // An owner whom an admin gave a facility of this machine says whose jobs may use it, and nothing else of it.
    if (before.transport.kind != TransportKind::kSsh || after.transport.kind != TransportKind::kSsh)
        return denied("an admin alone may change a facility on the coordinator's own machine", "transport.kind");
    TransportSpec same_way = after.transport;
    same_way.host_key = before.transport.host_key;
    if (same_way != before.transport)
        return denied("an admin alone may say how a facility is reached: the login is made with the coordinator's keys",
                      "transport");
    return {};
}

Status require_host_key_change(const StoredFacility& before, const Facility& after, const auth::Principal& principal) {
    const std::string& pinned = before.facility.transport.host_key;
    if (is_admin(principal) || !before.admin_pinned_host_key || pinned == after.transport.host_key) return {};
    return denied("an admin pinned this host key, and only an admin may change it", "transport.host_key");
}

Status require_remove(const Facility& facility, const auth::Principal& principal) {
    return require_owner(facility, principal);
}

}  // namespace atl::dispatch
