#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "shared/pg/pg.h"

// Work that lies in a table, a row a piece, each leased by one worker at a time, of any number of processes. Such a
// table has the columns
//   lease_until  timestamptz NOT NULL DEFAULT '-infinity',
//   lease_holder text NOT NULL DEFAULT '',
//   fence        bigint NOT NULL DEFAULT 0
// Whoever takes a lease raises the fence, and every statement that ends the work names the fence it was given, so that
// a worker that was thought dead changes nothing.
namespace atl::pg {

// All but `name` is SQL, in which the table is called t.
struct LeaseTable {
    std::string name;
    std::vector<std::string> key;  // columns
    std::string joins;
    std::string due;           // the rows that hold work to be done now
    std::string order;         // of which the first that nobody holds is taken
    std::string on_take = {};  // what else taking a lease sets: ", attempts = t.attempts + 1"
};

struct Lease {
    const LeaseTable* table = nullptr;
    std::vector<std::string> key;
    std::int64_t fence = 0;
};

struct LeaseTerms {
    std::chrono::seconds duration;
    std::string holder = {};  // a name that the process has again after a restart; "" if it has none
};

struct LeasedRow {
    Lease lease;
    Rows rows;  // one, with all columns of the table
};

// No lease or pause is longer than an hour and a quarter: a time beyond this one was written before the database's
// clock was set back, and counts as past.
inline constexpr char kBeyondAnyPause[] = "now() + interval '90 minutes'";

// Belongs into the statement that ends a piece of work, under its fence: nobody can renew the lease or end it twice.
inline constexpr char kGiveLeaseBack[] = "lease_until = '-infinity', lease_holder = '', fence = fence + 1";

Result<std::optional<LeasedRow>> take_lease(Connection& connection, const LeaseTable& table, const LeaseTerms& terms);
// False: the lease has run out, went to another worker or was given back, or its row is locked at this moment.
Result<bool> renew_lease(Connection& connection, const Lease& lease, std::chrono::seconds duration);
// False: another has taken the work over, or it has ended.
Result<bool> holds_lease(Connection& connection, const Lease& lease);
// Gives work back that is not done, to be taken again after `pause`. `also`: what else is set, as LeaseTable::on_take.
Status give_lease_back(Connection& connection, const Lease& lease, std::chrono::seconds pause = {},
                       const std::string& also = {});
// Gives back what an earlier process of this name held when it died; nothing for "". Were it still alive, its results
// would be void by their fence, as after any lost lease.
Status give_leases_back(Connection& connection, const LeaseTable& table, const std::string& holder);

// The leases of this process that are renewed: those that a thread has in hand. What a thread had to drop, because the
// database was away when it was to be saved or given back, is never renewed again, and somebody takes it over.
// Thread-safe.
class HeldLeases {
  public:
    class Hold {
      public:
        Hold(HeldLeases& held, Lease lease);
        ~Hold();
        Hold(const Hold&) = delete;
        Hold& operator=(const Hold&) = delete;

      private:
        HeldLeases& held_;
        std::list<Lease>::iterator at_;
    };
    std::vector<Lease> list() const;

  private:
    mutable std::mutex mutex_;
    std::list<Lease> leases_;
};

}  // namespace atl::pg
