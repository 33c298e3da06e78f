#include "shared/pg/lease.h"

namespace atl::pg {
namespace {

// "t.a = next.a AND t.b = next.b", or with parameters from $first on "a = $4 AND b = $5".
std::string names_row(const LeaseTable& table, int first = 0) {
    std::string condition;
    for (const std::string& column : table.key) {
        if (!condition.empty()) condition += " AND ";
        condition += first == 0 ? "t." + column + " = next." + column : column + " = $" + std::to_string(first++);
    }
    return condition;
}

// Lets a lease that is still this one's end in `duration`.
Result<Rows> update(Connection& connection, const Lease& lease, std::chrono::seconds duration, const std::string& also,
                    const std::string& condition = {}) {
    std::vector<Param> params{lease.fence, duration.count()};
    params.insert(params.end(), lease.key.begin(), lease.key.end());
    return connection.query("UPDATE " + lease.table->name + " SET lease_until = now() + $2 * interval '1 s'" + also +
                                " WHERE fence = $1 AND " + names_row(*lease.table, 3) + condition,
                            params);
}

}  // namespace

Result<std::optional<LeasedRow>> take_lease(Connection& connection, const LeaseTable& table, const LeaseTerms& terms) {
    std::string key;
    for (const std::string& column : table.key) key += (key.empty() ? "t." : ", t.") + column;
    ATOLL_TRY(Rows rows, connection.query("WITH next AS MATERIALIZED (SELECT " + key + " FROM " + table.name + " t " +
                                              table.joins + " WHERE (t.lease_until < now() OR t.lease_until > " +
                                              kBeyondAnyPause + ") AND " + table.due + " ORDER BY " + table.order +
                                              " LIMIT 1 FOR UPDATE OF t SKIP LOCKED) UPDATE " + table.name +
                                              " t SET lease_until = now() + $1 * interval '1 s', lease_holder = $2, "
                                              "fence = t.fence + 1" +
                                              table.on_take + " FROM next WHERE " + names_row(table) + " RETURNING t.*",
                                          {terms.duration.count(), terms.holder}));
    if (rows.empty()) return std::optional<LeasedRow>();
    Lease lease{&table, {}, rows.integer(0, "fence")};
    for (const std::string& column : table.key) lease.key.push_back(rows.text(0, column));
    return std::optional(LeasedRow{std::move(lease), std::move(rows)});
}

Result<bool> renew_lease(Connection& connection, const Lease& lease, std::chrono::seconds duration) {
    // Whoever locks the row is about to end the work or to change it; waiting would hold up the other leases.
    const std::string row = "ctid = ANY (ARRAY(SELECT ctid FROM " + lease.table->name + " WHERE fence = $1 AND " +
                            names_row(*lease.table, 3) + " AND lease_until > now() FOR NO KEY UPDATE SKIP LOCKED))";
    ATOLL_TRY(const Rows rows, update(connection, lease, duration, "", " AND " + row));
    return rows.affected() == 1;
}

Result<bool> holds_lease(Connection& connection, const Lease& lease) {
    std::vector<Param> params{lease.fence};
    params.insert(params.end(), lease.key.begin(), lease.key.end());
    ATOLL_TRY(const Rows rows, connection.query("SELECT 1 FROM " + lease.table->name + " WHERE fence = $1 AND " +
                                                    names_row(*lease.table, 2),
                                                params));
    return !rows.empty();
}

Status give_lease_back(Connection& connection, const Lease& lease, std::chrono::seconds pause,
                       const std::string& also) {
    ATOLL_RETURN_IF_ERROR(update(connection, lease, pause, ", lease_holder = '', fence = fence + 1" + also));
    return {};
}

Status give_leases_back(Connection& connection, const LeaseTable& table, const std::string& holder) {
    if (holder.empty()) return {};
    ATOLL_RETURN_IF_ERROR(connection.query(
        "UPDATE " + table.name + " SET " + kGiveLeaseBack + " WHERE lease_holder = $1 AND lease_until > now()",
        {holder}));
    return {};
}

HeldLeases::Hold::Hold(HeldLeases& held, Lease lease) : held_(held) {
    const std::lock_guard lock(held_.mutex_);
    at_ = held_.leases_.insert(held_.leases_.end(), std::move(lease));
}

HeldLeases::Hold::~Hold() {
    const std::lock_guard lock(held_.mutex_);
    held_.leases_.erase(at_);
}

std::vector<Lease> HeldLeases::list() const {
    const std::lock_guard lock(mutex_);
    return {leases_.begin(), leases_.end()};
}

}  // namespace atl::pg
