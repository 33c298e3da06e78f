// docs/reference/metrics.md is made from the tables of the services.
#include <gtest/gtest.h>

#include "services/aggregation/service.h"
#include "services/dispatch/service.h"
#include "services/registry/service.h"
#include "services/store/service.h"
#include "shared/metrics/common.h"
#include "shared/metrics/reference.h"
#include "tests/reference/page.h"

namespace atl {
namespace {

std::vector<service::Definition> all_services() {
    return {registry::definition(), store::definition(), dispatch::definition(), aggregation::definition()};
}

std::string make_metrics_page() {
    std::string page =
        "# Metrics\n\n"
        "Each service serves them in Prometheus' text format: at `/metrics` inside the coordinator's network, and at\n"
        "`/SERVICE/v1/metrics` of the gateway with a token. No label holds an id. `atoll_job` is the name of a running "
        "job: "
        "its\n"
        "series end with it, and at most 500 trainings and 500 jobs have some at once. A token of the role `metrics` "
        "reads "
        "this\n"
        "and nothing else. This page is made from the services' tables: `tests/reference`.\n\n";
    page += metrics::describe_table("Every service", metrics::kCommon.rows);
    page += metrics::describe_table("Services that take events (dispatch, aggregation)", metrics::kInbox.rows);
    for (const auto& one : all_services())
        for (const auto& table : one.metrics)
            if (table.data() != metrics::kInbox.rows.data()) page += metrics::describe_table(one.name, table);
    page.pop_back();
    return page;
}

TEST(MetricsReferenceTest, ThePageIsAsTheTables) {
    reference::expect_page("metrics.md", make_metrics_page());
}

TEST(MetricsReferenceTest, TheTablesOfEachServiceFollowPrometheusConventions) {
    for (const auto& one : all_services()) {
        std::vector<metrics::Metric> rows;
        for (const auto& table : service::metric_tables(one)) rows.insert(rows.end(), table.begin(), table.end());
        EXPECT_GE(rows.size(), 20U) << one.name;
        for (const std::string& fault : metrics::table_faults(rows)) ADD_FAILURE() << one.name << ": " << fault;
    }
}

}  // namespace
}  // namespace atl
