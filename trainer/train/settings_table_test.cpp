#include "trainer/train/settings_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "shared/base/file.h"
#include "shared/json/json.h"
#include "trainer/train/config.h"

namespace atl::train {
namespace {

using json::Json;

Status parse_and_plan(const Json& settings, int ranks) {
    const TemporaryDirectory directory;
    const auto file = directory.path() / "run.json";
    if (const Status status = write_file_atomic(file, settings.dump()); !status.ok()) return status;
    RunConfig config;
    if (const Status status = assign_file(config, file, kTrain); !status.ok()) return status;
    if (const Status status = check_needs(config, kTrain); !status.ok()) return status;
    if (const Status status = settle_offload_dir(config); !status.ok()) return status;
    const auto batch = plan_batch(config, ranks);
    if (!batch.ok()) return batch.error();
    if (const auto steps = plan_steps(config, 100, batch->global); !steps.ok()) return steps.error();
    const auto unit = plan_shard_group(config, ranks, ranks);
    return unit.ok() ? Status() : Status(unit.error());
}

// "--global-batch-size" and "steps (/tmp/x/run.json)" as keys.
std::string key_of(std::string field) {
    field = field.substr(0, field.find(" ("));
    if (!field.starts_with("--")) return field;
    std::ranges::replace(field, '-', '_');
    return field.substr(2);
}

TEST(SettingsTableTest, TheFileThatServicesReadIsTheTableOfOptions) {
    const std::string table = settings_table();
    if (std::getenv("ATOLL_WRITE_RUN_SETTINGS") != nullptr) {
        ASSERT_TRUE(write_file_atomic(ATOLL_RUN_SETTINGS, table).ok());
    }
    EXPECT_EQ(read_file(ATOLL_RUN_SETTINGS).value(), table)
        << "an option changed: run this test with ATOLL_WRITE_RUN_SETTINGS=1, which writes "
           "shared/run_settings/run_settings.json";
}

// The dispatch service walks the same cases: services/dispatch/domain/training_settings_test.cpp.
TEST(SettingsTableTest, TheTrainerAnswersTheSharedCasesAsTheyAreWritten) {
    const auto cases = json::parse(read_file(ATOLL_FIXTURES "/run_settings_cases.json").value()).value();
    for (const Json& one : cases) {
        const Status status = parse_and_plan(one.at("settings"), one.at("ranks"));
        const std::string refused = status.ok() ? "" : key_of(status.error().field);
        EXPECT_EQ(refused, one.value("refused", "")) << one;
    }
}

}  // namespace
}  // namespace atl::train
