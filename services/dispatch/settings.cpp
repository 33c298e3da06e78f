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
        "private_key_file", "PEM file with the key that signs task tokens; reread when it changes");
    settings.registry_url = reader.required_address("registry_url", "URL of the registry through the gateway");
    settings.store_url = reader.required_address(
        "store_url", "URL of the store through the gateway; local facilities without an image use it too");
    settings.store_url_for_sites =
        reader.address("store_url_for_sites", settings.store_url, "`store_url`",
                       "URL of the store for remote facilities; if empty, facilities that need it are refused");
    settings.aggregation_url = reader.address("aggregation_url", "", "none",
                                              "URL of aggregation through the gateway, polled when events do not "
                                              "arrive; if empty, dispatch relies on Kafka alone");
    std::error_code ignored;
    const auto this_program = std::filesystem::read_symlink("/proc/self/exe", ignored);
    settings.programs =
        reader.text("programs", this_program.parent_path().string(), "that of the running program",
                    "directory of `atoll` and `atoll-trainer` for local facilities without a `programs` setting");
    settings.topic_prefix = reader.topic_prefix();
}

void read_ssh(service::SettingsReader& reader, SshSettings& ssh) {
    std::error_code ignored;
    const auto control = std::filesystem::temp_directory_path(ignored) / ("atoll-ssh-" + std::to_string(::getuid()));
    ssh.control_directory =
        reader.text("control_directory", control.string(), "`atoll-ssh-UID` in the temporary directory",
                    "directory for the control sockets of ssh connections; its path may have at most " +
                        std::to_string(kControlPathMax) + " bytes");
    if (ssh.control_directory.string().size() > kControlPathMax)
        reader.object().fail("control_directory", "has more than " + std::to_string(kControlPathMax) +
                                                      " bytes, too many for the paths of sockets: name a shorter one");
    ssh.logins_max = reader.integer("ssh_logins_max", ssh.logins_max, 1, 1000,
                                    "ssh logins allowed per user and host within `ssh_logins_window_s`; all users of a "
                                    "host together may make four times as many");
    ssh.logins_window_s = reader.integer("ssh_logins_window_s", ssh.logins_window_s, 1, 86400,
                                         "length in seconds of the window in which logins are counted");
    ssh.sessions_max =
        reader.integer("ssh_sessions_max", ssh.sessions_max, 1, 64, "concurrent ssh sessions per facility");
}

void read_limits(service::SettingsReader& reader, Settings& settings) {
    settings.workers = reader.integer("workers", settings.workers, 1, 256,
                                      "task steps this process runs at once, not counting slow ones such as transfers");
    settings.facility_steps_max =
        reader.integer("facility_steps_max", settings.facility_steps_max, 1, 256,
                       "task steps run at once at one facility by all dispatch processes together");
    settings.operator_active_max = reader.integer("operator_active_max", settings.operator_active_max, 1, 1'000'000,
                                                  "unfinished jobs and preparations allowed per operator, including "
                                                  "those still being cleaned up; admins have no limit");
    settings.lease_s = reader.integer("lease_s", settings.lease_s, 1, 3600,
                                      "seconds until another worker takes over the task of a worker that died");
    settings.keep.events_days = reader.integer("keep_events_days", settings.keep.events_days, 1, kKeepDaysMax,
                                               "days to keep a job's events after it ends");
    settings.keep.jobs_days = reader.integer("keep_jobs_days", settings.keep.jobs_days, 0, kKeepDaysMax,
                                             "days to keep jobs and preparations after they end; 0: forever");
}

void read_polls(service::SettingsReader& reader, Settings& settings) {
    constexpr std::int64_t kHour_ms = 3'600'000;
    const std::int64_t local = reader.integer("poll_interval_ms", 500, 10, kHour_ms,
                                              "milliseconds between status checks of a task at a local facility");
    const std::int64_t ssh =
        reader.integer("ssh_poll_interval_ms", 2000, 10, kHour_ms,
                       "shortest interval between status checks of a task at a facility reached by ssh");
    const std::int64_t ssh_max =
        reader.integer("ssh_poll_interval_max_ms", 60000, 10, kHour_ms,
                       "longest interval, and so the greatest age of what is shown of a task; between the two, a third "
                       "of the time that the attempt has waited or run");
    const std::int64_t ssh_retry =
        reader.integer("ssh_retry_interval_ms", 2000, 10, 600'000,
                       "first pause after a failed connection to a facility; doubles each time, up to ten minutes");
    const std::int64_t batch = reader.integer(
        "batch_poll_interval_ms", 5000, 10, kHour_ms,
        "shortest interval between queries to a batch system; the longest is twice that between status checks");
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
    return service::read_object(own, "dispatch", read_settings);
}

}  // namespace atl::dispatch
