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
    EXPECT_EQ(settings.lease_s, 15);
    EXPECT_EQ(settings.keep.events_days, 90);
    EXPECT_EQ(settings.keep.jobs_days, 0) << "for good";
    EXPECT_EQ(settings.local_poll_policy.poll_ms, 500);
    EXPECT_EQ(settings.ssh_poll_policy.poll_ms, 2000);
}

TEST(DispatchSettingsTest, EachWrongKeyIsNamedInFull) {
    service::expect_wrong_keys_are_named(parse_settings, "dispatch", kLeast,
                                         {{"private_key_file", nullptr},
                                          {"registry_url", "registry:7401"},
                                          {"store_url", ""},
                                          {"store_url_for_sites", "gateway"},
                                          {"programs", 1},
                                          {"control_directory", 1},
                                          {"workers", 0},
                                          {"lease_s", 0},
                                          {"keep_events_days", 0},
                                          {"keep_jobs_days", -1},
                                          {"poll_interval_ms", 1},
                                          {"ssh_poll_interval_ms", "1s"},
                                          {"batch_poll_interval_ms", 1},
                                          {"topic_prefix", 1},
                                          {"no_such_key", 3}});
}

}  // namespace
}  // namespace atl::dispatch
