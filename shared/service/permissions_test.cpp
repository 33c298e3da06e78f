#include "shared/service/permissions.h"

#include <gtest/gtest.h>

#include <set>

namespace atl::service {
namespace {

using auth::Role;
using http::Method;

TEST(PermissionsTest, EachOperationHasOneRow) {
    std::set<std::string> seen;
    for (const Permission& row : permissions()) {
        const std::string name = std::string(row.service) + " " + http::to_string(row.method) + " " + row.path.data();
        EXPECT_TRUE(seen.insert(name).second) << name;
        EXPECT_EQ(row.operators == May::kOwn, !row.owned.empty()) << name << " says what must be owned";
    }
}

TEST(PermissionsTest, AnOperationIsFoundByItsPatternInEitherForm) {
    const Permission* found = find_permission("dispatch", Method::kPost, "/v1/jobs/:id/cancel");
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found, find_permission("dispatch", Method::kPost, "/v1/jobs/{id}/cancel"));
    EXPECT_EQ(find_permission("store", Method::kPost, "/v1/jobs/:id/cancel"), nullptr);
    EXPECT_EQ(find_permission("dispatch", Method::kDelete, "/v1/jobs/:id/cancel"), nullptr);
    EXPECT_NE(find_permission("store", Method::kGet, "/v1/token"), nullptr) << "of every service";
}

TEST(PermissionsTest, WhatOnlyAServiceMayDoIsRefusedToOtherOperators) {
    const Permission* copies =
        find_permission("registry", Method::kPut, "/v1/datasets/:name/versions/:version/copies/:facility");
    ASSERT_NE(copies, nullptr);
    const auto may = [&](const char* subject, Role role) {
        return check_caller(*copies, {.subject = subject, .role = role}).ok();
    };
    EXPECT_TRUE(may("dispatch", Role::kOperator));
    EXPECT_TRUE(may("ada", Role::kAdmin));
    EXPECT_FALSE(may("ada", Role::kOperator));
    EXPECT_FALSE(may("aggregation", Role::kOperator));
    EXPECT_EQ(describe_roles(*copies), "admin, dispatch");
}

TEST(PermissionsTest, ATokenForMetricsOpensMetricsAlone) {
    const unsigned of_metrics = http::Access::roles({Role::kMetrics}).role_bits;
    for (const Permission& row : permissions())
        EXPECT_EQ((access_of(row).role_bits & of_metrics) != 0, row.path == "/v1/metrics") << row.path;
    const Permission* metrics = find_permission("store", Method::kGet, "/v1/metrics");
    ASSERT_NE(metrics, nullptr);
    EXPECT_EQ(describe_roles(*metrics), "admin, operator, viewer, metrics");
}

}  // namespace
}  // namespace atl::service
