// A coordinator whose disk is filled through its own store.
#include <gtest/gtest.h>

#include <vector>

#include "shared/base/file.h"
#include "shared/base/subprocess.h"
#include "shared/digest/digest.h"
#include "tests/contract/running_stack.h"
#include "tests/integration/small_disk.h"

namespace atl::contract {
namespace {

using http::Method;
using json::Json;

// The status of an upload of 8 MiB that nobody has sent before.
int upload(const RunningStack& stack, int number) {
    const std::string body = std::to_string(number) + std::string(8U << 20, 'x');
    return stack.call("store", Method::kPut, "/v1/blobs/" + digest::sha256(body), stack.token(auth::Role::kAdmin), body)
        .status;
}

int add_facility(const RunningStack& stack, const std::string& name) {
    const Json facility = {{"name", name},
                           {"transport", {{"kind", "local"}}},
                           {"batch", {{"kind", "local"}, {"slots", 1}}},
                           {"work_dir", stack.state() / name}};
    return stack.call("dispatch", Method::kPost, "/v1/facilities", stack.token(auth::Role::kAdmin), facility.dump())
        .status;
}

std::string status_of(const RunningStack& stack) {
    const auto shown = run_command({ATOLL_PROGRAM, "status", "--state", stack.state()});
    return shown.ok() ? shown->out + shown->err : describe(shown.error());
}

// What `atoll status` says of a component.
std::string state_of(const RunningStack& stack, const std::string& component) {
    const auto shown = run_command({ATOLL_PROGRAM, "status", "--json", "--state", stack.state()});
    const auto list = json::parse(shown.ok() ? shown->out : "");
    for (const Json& one : list.ok() ? *list : Json::array())
        if (one.at("name") == component) return one.at("state");
    return "unknown";
}

TEST(FullDiskTest, WhatFillsTheDiskIsRefusedAndAllElseGoesOnAlsoAfterARestart) {
    const SmallDisk disk;
    if (!disk.is_mounted()) GTEST_SKIP() << "only root can mount a small file system";
    constexpr std::uint64_t kReserve = 100U << 20;  // the store's own, of a disk of a gigabyte
    RunningStack stack;
    const Status started = stack.start();
    ASSERT_TRUE(started.ok()) << started.error().message;
    int number = 0;
    int status = 201;
    while (status == 201 && number < 200) status = upload(stack, number++);
    EXPECT_EQ(status, 507);
    EXPECT_GT(number, 10);
    EXPECT_GT(disk.free_bytes(), kReserve - (20U << 20)) << "Postgres, Kafka and logs go on writing";
    EXPECT_EQ(add_facility(stack, "before"), 201);
    for (int i = 0; i < 20; ++i) EXPECT_EQ(upload(stack, 1000 + i), 507);
    const std::string log = read_file(stack.state() / "logs/store.log").value();
    EXPECT_NE(log.find("uploads are refused"), std::string::npos) << "an operator is told before: " << log;
    EXPECT_NE(status_of(stack).find(" free; uploads "), std::string::npos) << status_of(stack);

    const Status ended = stack.run({"down"});
    ASSERT_TRUE(ended.ok()) << ended.error().message;
    const Status again = stack.start();
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(upload(stack, 2000), 507);
    EXPECT_EQ(add_facility(stack, "after"), 201);
    EXPECT_EQ(stack.call("dispatch", Method::kGet, "/v1/facilities/before", stack.token(auth::Role::kAdmin)).status,
              200);

    const Status pruned = stack.run({"model", "prune", "--unused-hours", "0"});
    ASSERT_TRUE(pruned.ok()) << pruned.error().message;
    EXPECT_EQ(upload(stack, 3000), 201);

    ASSERT_TRUE(write_file_atomic(stack.state() / "settings.yaml", "store:\n  free_bytes_min: 1000000000\n").ok());
    ASSERT_TRUE(stack.run({"down"}).ok());
    ASSERT_TRUE(stack.start().ok());
    EXPECT_EQ(upload(stack, 4000), 507) << "of this disk, too much is to stay free";
}

TEST(FullDiskTest, WithoutAByteLeftReadingGoesOnUpNamesTheDiskAndWithRoomAllOfItComesBack) {
    const SmallDisk disk;
    if (!disk.is_mounted()) GTEST_SKIP() << "only root can mount a small file system";
    RunningStack stack;
    const Status started = stack.start();
    ASSERT_TRUE(started.ok()) << started.error().message;
    std::vector<std::string> added = {"before"};
    ASSERT_EQ(add_facility(stack, "before"), 201);
    disk.fill();
    const std::string admin = stack.token(auth::Role::kAdmin);
    int number = 0;
    // Kafka ends at its first write; jobs write events all the time.
    ASSERT_TRUE(eventually([&] {
        const std::string name = "meanwhile-" + std::to_string(number++);
        if (number < 50 && add_facility(stack, name) == 201) added.push_back(name);
        disk.fill();
        return state_of(stack, "kafka") == "stopped";
    })) << status_of(stack);
    for (const char* service : {"registry", "store", "dispatch", "aggregation"}) {
        const int status = stack.call(service, Method::kGet, "/readyz", "").status;
        EXPECT_TRUE(status == 200 || status == 503) << service << ": " << status;
    }
    EXPECT_EQ(stack.call("dispatch", Method::kGet, "/v1/facilities/before", admin).status, 200);
    EXPECT_NE(status_of(stack).find("the store's disk has 0 "), std::string::npos) << status_of(stack);
    const Status refused = stack.run({"up"});
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("the disk of " + stack.state().string() + " is full"), std::string::npos)
        << refused.error().message;

    disk.make_room();
    const Status again = stack.run({"up"});
    ASSERT_TRUE(again.ok()) << again.error().message;
    for (const std::string& name : added)
        EXPECT_EQ(stack.call("dispatch", Method::kGet, "/v1/facilities/" + name, admin).status, 200) << name;
    EXPECT_EQ(add_facility(stack, "after"), 201);
    EXPECT_TRUE(eventually([&] {
        const auto metrics = stack.call_directly("dispatch", Method::kGet, "/metrics").body;
        return metrics.find("\natoll_outbox_waiting 0\n") != std::string::npos;
    })) << "its events are sent";
}

}  // namespace
}  // namespace atl::contract
