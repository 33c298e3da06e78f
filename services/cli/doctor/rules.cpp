#include "services/cli/doctor/rules.h"

namespace atl::cli {
namespace {

using Test = Rule::Test;
using Unit = Rule::Unit;

constexpr Rule kRules[] = {
    {"AtollDependencyAway", kCritical, "atoll_ready", Test::kBelow, 1, "", "dependency", Unit::kNone,
     "{service} cannot work with {label}",
     "`atoll status` says what runs; look at the log of {service} and of {label}"},
    {"AtollFacilityUnreachable", kWarning, "atoll_facility_silent_seconds", Test::kAbove, 0, "", "facility",
     Unit::kSeconds, "has been unusable for {value}", "`atoll facility check {label}` says what is in the way"},
    {"AtollBatchSystemAway", kWarning, "atoll_facility_batch_system_up", Test::kBelow, 1, "", "facility", Unit::kNone,
     "its batch system gives no answer", "ask the site; `atoll facility check {label}` tries it again"},
    {"AtollCredentialEnds", kWarning, "atoll_facility_credential_expiry_timestamp_seconds", Test::kEndsWithin,
     7 * kDay_s, "", "facility", Unit::kSeconds, "its ssh certificate ends in {value}",
     "renew it where dispatch runs; it is taken without a restart"},
    {"AtollTokenEnds", kWarning, "atoll_token_expiry_timestamp_seconds", Test::kEndsWithin, 7 * kDay_s, "", "token",
     Unit::kSeconds, "the token of {service} ends in {value}",
     "a running stack renews its tokens itself: the log of its supervisor (compose: of `renewal`) says why it did not"},
    {"AtollCertificateEnds", kWarning, "atoll_certificate_expiry_timestamp_seconds", Test::kEndsWithin, 14 * kDay_s, "",
     "use", Unit::kSeconds, "the certificate ends in {value}",
     "renew it and install it where it is served (gateway: compose/tls.yaml, `atoll up --tls-certificate`)"},
    {"AtollRoundLate", kWarning, "atoll_round_age_ratio", Test::kAbove, 3, "", "", Unit::kNone,
     "a round takes {value} times as long as expected", "`atoll job list` says what jobs wait for"},
    {"AtollTasksNotTakenUp", kCritical, "atoll_due_task_age_seconds", Test::kAbove, 300, "", "", Unit::kSeconds,
     "a task has been waiting for a worker for {value}",
     "look at the log of {service}; raise `workers` in its settings if all are busy"},
    {"AtollDiskFull", kCritical, "atoll_store_disk_free_bytes", Test::kBelow, 2, "atoll_store_disk_reserve_bytes", "",
     Unit::kBytes, "its disk has {value} free; uploads are refused soon",
     "`atoll model prune`, `atoll job prune`, or a larger disk"},
    {"AtollOutboxStuck", kCritical, "atoll_outbox_lag_seconds", Test::kAbove, 120, "", "", Unit::kSeconds,
     "its events have waited for Kafka for {value}", "`atoll status`: is Kafka ready? Its log says why not"},
    {"AtollConsumerLags", kCritical, "atoll_inbox_lag_seconds", Test::kAbove, 120, "", "consumer", Unit::kSeconds,
     "events have waited for it for {value}", "check the log of {service}; restarting it loses nothing"},
    {"AtollDeadLetters", kWarning, "atoll_inbox_dead_letters", Test::kAbove, 0, "", "consumer", Unit::kNone,
     "refused events: {value}", "`atoll events list` says why; then `atoll events replay --all`"},
    {"AtollBlobsDamaged", kCritical, "atoll_store_blobs_damaged", Test::kAbove, 0, "", "", Unit::kNone,
     "corrupt blobs: {value}", "`atoll model damaged` lists them: upload them again, and look at the disk"},
    {"", kWarning, "atoll_facility_login_budget_remaining", Test::kBelow, 1, "", "facility", Unit::kNone, kLoginsSpent,
     "wait; `ssh_logins_max` of dispatch says how many a site bears"},
};

}  // namespace

std::span<const Rule> rules() {
    return kRules;
}

}  // namespace atl::cli
