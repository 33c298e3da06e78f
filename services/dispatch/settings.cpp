#include "services/dispatch/settings.h"

#include <unistd.h>

#include <algorithm>

#include "shared/service/names.h"

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

Result<Settings> parse_settings(const json::Json& own) {
    json::ObjectReader reader(own, "dispatch");
    Settings settings;
    settings.private_key_file = reader.required_string("private_key_file");
    settings.registry_url = service::required_web_address(reader, "registry_url");
    settings.store_url = service::required_web_address(reader, "store_url");
    settings.store_url_for_sites = reader.string_or("store_url_for_sites", settings.store_url);
    if (!settings.store_url_for_sites.empty() && !service::is_web_address(settings.store_url_for_sites))
        reader.fail("store_url_for_sites", "must be an address such as https://host:7443/store, or empty for none");
    settings.aggregation_url = reader.string_or("aggregation_url", "");
    if (!settings.aggregation_url.empty() && !service::is_web_address(settings.aggregation_url))
        reader.fail("aggregation_url", "must be an address such as https://host:7443/aggregation");
    std::error_code ignored;
    const auto this_program = std::filesystem::read_symlink("/proc/self/exe", ignored);
    settings.programs = reader.string_or("programs", this_program.parent_path().string());
    settings.topic_prefix = reader.string_or("topic_prefix", "");
    const auto control = std::filesystem::temp_directory_path(ignored) / ("atoll-ssh-" + std::to_string(::getuid()));
    settings.ssh.control_directory = reader.string_or("control_directory", control.string());
    if (settings.ssh.control_directory.string().size() > kControlPathMax)
        reader.fail("control_directory", "has more than " + std::to_string(kControlPathMax) +
                                             " bytes, too many for the paths of sockets: name a shorter one");
    settings.ssh.logins_max = reader.integer_or("ssh_logins_max", settings.ssh.logins_max, 1, 1000);
    settings.ssh.logins_window_s = reader.integer_or("ssh_logins_window_s", settings.ssh.logins_window_s, 1, 86400);
    settings.ssh.sessions_max = reader.integer_or("ssh_sessions_max", settings.ssh.sessions_max, 1, 64);
    settings.workers = reader.integer_or("workers", 4, 1, 256);
    settings.facility_steps_max = reader.integer_or("facility_steps_max", 2, 1, 256);
    settings.operator_active_max = reader.integer_or("operator_active_max", settings.operator_active_max, 1, 1'000'000);
    settings.lease_s = reader.integer_or("lease_s", 15, 1, 3600);
    settings.keep.events_days = reader.integer_or("keep_events_days", settings.keep.events_days, 1, kKeepDaysMax);
    settings.keep.jobs_days = reader.integer_or("keep_jobs_days", settings.keep.jobs_days, 0, kKeepDaysMax);
    const std::int64_t local = reader.integer_or("poll_interval_ms", 500, 10, 3600000);
    const std::int64_t ssh = reader.integer_or("ssh_poll_interval_ms", 2000, 10, 3600000);
    const std::int64_t ssh_max = reader.integer_or("ssh_poll_interval_max_ms", 60000, 10, 3600000);
    const std::int64_t ssh_retry = reader.integer_or("ssh_retry_interval_ms", 2000, 10, 600000);
    const std::int64_t batch = reader.integer_or("batch_poll_interval_ms", 5000, 10, 3600000);
    ATOLL_RETURN_IF_ERROR(reader.finish());
    settings.local_poll_policy = poll_policy(local, local, std::max(local, batch));
    settings.ssh_poll_policy = poll_policy(ssh, std::max(ssh, ssh_max), std::max(ssh, batch));
    settings.ssh_poll_policy.retry_ms = ssh_retry;
    return settings;
}

}  // namespace atl::dispatch
