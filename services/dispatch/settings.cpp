#include "services/dispatch/settings.h"

#include <unistd.h>

#include <algorithm>

#include "shared/service/settings_reader.h"

namespace atl::dispatch {
namespace {

// An attempt counts as lost after three answers of the batch system over two of its intervals.
PollPolicy poll_policy(std::int64_t poll_ms, std::int64_t poll_ms_max, std::int64_t batch_poll_ms) {
    PollPolicy poll_policy;
    poll_policy.poll_ms = poll_ms;
    poll_policy.poll_ms_max = poll_ms_max;
    poll_policy.batch_poll_ms = batch_poll_ms;
    poll_policy.missing_ms = std::max(2 * batch_poll_ms, poll_ms_max);
    return poll_policy;
}

}  // namespace

const std::string& store_url_for(const Facility& facility, const Settings& settings) {
    const bool is_as_we_are = facility.transport.kind == TransportKind::kLocal && !facility.image;
    const bool is_by_us = facility.transport.data == DataPath::kSsh;
    return is_as_we_are || is_by_us ? settings.store_url : settings.store_url_for_sites;
}

Status require_store_url(const Facility& facility, const Settings& settings) {
    if (!store_url_for(facility, settings).empty()) return {};
    const std::string what =
        " the coordinator has no public URL, so nothing there can reach its store: set one (with Compose: "
        "compose/init --public-url URL)";
    if (facility.transport.kind == TransportKind::kLocal)
        return invalid_argument("image", "a facility with an image needs an address of the store:" + what);
    return invalid_argument("transport.data", "a facility elsewhere needs an address of the store:" + what +
                                                  ", or let its data go through ssh: transport.data=ssh");
}

namespace {

void read_addresses(service::SettingsReader& reader, Settings& settings) {
    settings.private_key_file = reader.required_text(
        "private_key_file", "PEM file of the key that signs the tokens of tasks; read again when it changes");
    settings.registry_url = reader.required_address("registry_url", "the registry, through the gateway");
    settings.store_url = reader.required_address(
        "store_url", "the store, through the gateway; facilities on this machine without an image use it as well");
    settings.store_url_for_sites =
        reader.address("store_url_for_sites", settings.store_url, "`store_url`",
                       "the store as facilities elsewhere reach it; empty: those that need it are refused");
    settings.aggregation_url = reader.address(
        "aggregation_url", "", "none",
        "aggregation, through the gateway, asked where events do not come; without it Kafka is the only way");
    std::error_code ignored;
    const auto this_program = std::filesystem::read_symlink("/proc/self/exe", ignored);
    settings.programs = reader.text("programs", this_program.parent_path().string(), "that of this program",
                                    "directory of `atoll` and `atoll-trainer`, for local facilities that name none");
    settings.topic_prefix = reader.text("topic_prefix", "", "none", "prefix of the Kafka topics, for tests");
}

void read_ssh(service::SettingsReader& reader, SshSettings& ssh) {
    std::error_code ignored;
    const auto control = std::filesystem::temp_directory_path(ignored) / ("atoll-ssh-" + std::to_string(::getuid()));
    ssh.control_directory = reader.text(
        "control_directory", control.string(), "`atoll-ssh-UID` in the directory for temporary files",
        "directory of the sockets of ssh connections, at most " + std::to_string(kControlPathMax) + " bytes long");
    if (ssh.control_directory.string().size() > kControlPathMax)
        reader.object().fail("control_directory", "has more than " + std::to_string(kControlPathMax) +
                                                      " bytes, too many for the paths of sockets: name a shorter one");
    ssh.logins_max = reader.integer(
        "ssh_logins_max", ssh.logins_max, 1, 1000,
        "logins of a user at a host within `ssh_logins_window_s`; of all users at a host, four times as many");
    ssh.logins_window_s =
        reader.integer("ssh_logins_window_s", ssh.logins_window_s, 1, 86400, "seconds within which logins are counted");
    ssh.sessions_max =
        reader.integer("ssh_sessions_max", ssh.sessions_max, 1, 64, "ssh sessions of a facility at a time");
}

void read_limits(service::SettingsReader& reader, Settings& settings) {
    settings.workers =
        reader.integer("workers", settings.workers, 1, 256,
                       "steps of tasks that this process runs at a time, without slow ones such as transfers");
    settings.facility_steps_max = reader.integer("facility_steps_max", settings.facility_steps_max, 1, 256,
                                                 "steps at one facility at a time, of all dispatch processes");
    settings.operator_active_max = reader.integer(
        "operator_active_max", settings.operator_active_max, 1, 1'000'000,
        "jobs and preparations of one operator that have not ended and been cleaned up; admins have no limit");
    settings.lease_s = reader.integer("lease_s", settings.lease_s, 1, 3600,
                                      "seconds after which another worker takes over the task of one that has died");
    settings.keep.events_days = reader.integer("keep_events_days", settings.keep.events_days, 1, kKeepDaysMax,
                                               "days for which a job's events are kept after its end");
    settings.keep.jobs_days =
        reader.integer("keep_jobs_days", settings.keep.jobs_days, 0, kKeepDaysMax,
                       "days for which jobs and preparations are kept after their end; 0: for good");
}

void read_polls(service::SettingsReader& reader, Settings& settings) {
    constexpr std::int64_t kHour_ms = 3'600'000;
    const std::int64_t local = reader.integer("poll_interval_ms", 500, 10, kHour_ms,
                                              "milliseconds between two looks at a task of a local facility");
    const std::int64_t ssh = reader.integer("ssh_poll_interval_ms", 2000, 10, kHour_ms,
                                            "shortest time between two looks at a task of a facility by ssh");
    const std::int64_t ssh_max =
        reader.integer("ssh_poll_interval_max_ms", 60000, 10, kHour_ms,
                       "longest; between both it is a third of the time that an attempt has waited or run");
    const std::int64_t ssh_retry =
        reader.integer("ssh_retry_interval_ms", 2000, 10, 600'000,
                       "first pause after a facility could not be reached; it doubles each time, up to ten minutes");
    const std::int64_t batch = reader.integer("batch_poll_interval_ms", 5000, 10, kHour_ms,
                                              "shortest time between two questions to a batch system");
    settings.local_poll_policy = poll_policy(local, local, std::max(local, batch));
    settings.ssh_poll_policy = poll_policy(ssh, std::max(ssh, ssh_max), std::max(ssh, batch));
    settings.ssh_poll_policy.retry_ms = ssh_retry;
}

}  // namespace

Settings read_settings(service::SettingsReader& reader) {
    Settings settings;
    read_addresses(reader, settings);
    read_limits(reader, settings);
    read_ssh(reader, settings.ssh);
    read_polls(reader, settings);
    return settings;
}

Result<Settings> parse_settings(const json::Json& own) {
    service::SettingsReader reader(own, "dispatch");
    Settings settings = read_settings(reader);
    ATOLL_RETURN_IF_ERROR(reader.finish());
    return settings;
}

}  // namespace atl::dispatch
