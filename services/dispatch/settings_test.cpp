#include "services/dispatch/settings.h"

#include <gtest/gtest.h>

#include "shared/service/testing/settings_check.h"

namespace atl::dispatch {
namespace {

using json::Json;

const Json kLeast = {{"private_key_file", "/k"},
                     {"registry_url", "http://127.0.0.1:7400/registry"},
                     {"store_url", "http://127.0.0.1:7400/store"}};

TEST(DispatchSettingsTest, WhatIsNotGivenHasItsDefault) {
    const Settings settings = parse_settings(kLeast).value();
    EXPECT_EQ(settings.store_url_for_sites, settings.store_url);
    EXPECT_EQ(settings.workers, 4);
    EXPECT_EQ(settings.facility_steps_max, 2);
    EXPECT_EQ(settings.operator_active_max, 32);
    EXPECT_EQ(settings.lease_s, 15);
    EXPECT_EQ(settings.keep.events_days, 90);
    EXPECT_EQ(settings.keep.jobs_days, 0) << "for good";
    EXPECT_EQ(settings.local_poll_policy.poll_ms, 500);
    EXPECT_EQ(settings.ssh_poll_policy.poll_ms, 2000);
    EXPECT_EQ(settings.ssh.sessions_max, 2);
    EXPECT_EQ(settings.ssh.logins_max, 4);
    EXPECT_EQ(settings.ssh.logins_window_s, 600);
    EXPECT_GE(backoff_ms(1, settings.ssh_poll_policy), 2000) << "a site counts its logins";
}

TEST(DispatchSettingsTest, EachWrongKeyIsNamedInFull) {
    service::expect_wrong_keys_are_named(parse_settings, "dispatch", kLeast,
                                         {{"private_key_file", nullptr},
                                          {"registry_url", "registry:7401"},
                                          {"store_url", ""},
                                          {"store_url_for_sites", "gateway"},
                                          {"programs", 1},
                                          {"control_directory", 1},
                                          {"control_directory", "/tmp/" + std::string(66, 'x')},
                                          {"ssh_sessions_max", 0},
                                          {"ssh_logins_max", 0},
                                          {"ssh_logins_window_s", 0},
                                          {"workers", 0},
                                          {"operator_active_max", 0},
                                          {"lease_s", 0},
                                          {"keep_events_days", 0},
                                          {"keep_jobs_days", -1},
                                          {"poll_interval_ms", 1},
                                          {"ssh_poll_interval_ms", "1s"},
                                          {"ssh_retry_interval_ms", 1},
                                          {"batch_poll_interval_ms", 1},
                                          {"topic_prefix", 1},
                                          {"no_such_key", 3}});
}

TEST(DispatchSettingsTest, TransfersOnThisMachineGoOurWayAndOthersByTheAddressForSites) {
    Json own = kLeast;
    own["store_url"] = "unix:/run/gateway.sock:/store";
    own["store_url_for_sites"] = "https://coordinator/store";
    const Settings settings = parse_settings(own).value();
    Facility facility;
    facility.transport.kind = TransportKind::kLocal;
    EXPECT_EQ(store_url_for(facility, settings), settings.store_url);
    facility.image = ImageSpec();
    EXPECT_EQ(store_url_for(facility, settings), settings.store_url_for_sites);
    facility.image.reset();
    facility.transport.kind = TransportKind::kSsh;
    EXPECT_EQ(store_url_for(facility, settings), settings.store_url_for_sites);
}

TEST(DispatchSettingsTest, WithoutAnAddressForSitesNoneThatNeedsItIsTaken) {
    Json own = kLeast;
    own["store_url_for_sites"] = "";
    const Settings settings = parse_settings(own).value();
    Facility facility;
    facility.transport.kind = TransportKind::kLocal;
    EXPECT_TRUE(require_store_url(facility, settings).ok());
    facility.image = ImageSpec();
    EXPECT_EQ(require_store_url(facility, settings).error().field, "image");
    facility.image.reset();
    facility.transport.kind = TransportKind::kSsh;
    const Status refused = require_store_url(facility, settings);
    EXPECT_EQ(refused.error().field, "transport.data");
    EXPECT_NE(refused.error().message.find("--public-url"), std::string::npos) << refused.error().message;
    facility.transport.data = DataPath::kSsh;
    EXPECT_TRUE(require_store_url(facility, settings).ok());
}

}  // namespace
}  // namespace atl::dispatch
