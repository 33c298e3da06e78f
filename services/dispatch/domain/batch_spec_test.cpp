#include "services/dispatch/domain/batch_spec.h"

#include <gtest/gtest.h>

namespace atl::dispatch {
namespace {

using json::Json;

const Json kSlurmRecord = {
    {"kind", "slurm"},
    {"queues",
     {{"gpu",
       {{"partition", "boost"}, {"qos", "normal"}, {"card", "a100-64"}, {"nodes_max", 4}, {"time_max", "1-00:00:00"}}},
      {"cpu", {{"partition", "serial"}, {"gpu_request", "--gres=gpu:{gpus}"}, {"extra", {"--mail-type=NONE"}}}}}},
    {"default_queue", "gpu"},
    {"template", "#!/bin/bash -l\n#SBATCH --mail-type=NONE\nmodule load openmpi\n{{ command }}\n"}};

std::string wrong_batch_field(const Json& value) {
    const auto result = parse_batch_spec(value, "batch");
    return result.ok() ? "nothing" : result.error().field;
}

TEST(BatchSpecTest, ComesBackAsItWasSaid) {
    const auto batch = parse_batch_spec(kSlurmRecord, "batch");
    ASSERT_TRUE(batch.ok()) << describe(batch.error());
    EXPECT_EQ(to_json(*batch), kSlurmRecord);
    EXPECT_EQ(batch->queues.at("gpu").time_max_s, 86400);
    EXPECT_EQ(batch->queues.at("gpu").card, "a100-64");
    EXPECT_EQ(parse_batch_spec({{"kind", "slurm"}, {"queues", {{"all", Json::object()}}}}, "batch")->default_queue,
              "all");
}

TEST(BatchSpecTest, EachWrongMemberIsNamed) {
    const std::vector<std::pair<std::string, Json>> patches = {
        {"batch.kind", {{"kind", "condor"}}},
        {"batch.slots", {{"slots", 2}}},
        {"batch.queues", {{"queues", nullptr}}},
        {"batch.queues", {{"queues", {{"gpu", nullptr}, {"cpu", nullptr}}}}},
        {"batch.queues.gpu.nodes_max", {{"queues", {{"gpu", {{"nodes_max", 0}}}}}}},
        {"batch.queues.gpu.time_max", {{"queues", {{"gpu", {{"time_max", "soon"}}}}}}},
        {"batch.queues.gpu.gpu_request", {{"queues", {{"gpu", {{"gpu_request", "--gpus=4"}}}}}}},
        {"batch.queues.gpu.card", {{"queues", {{"gpu", {{"card", "a100"}}}}}}},
        {"batch.queues.gpu.extra", {{"queues", {{"gpu", {{"extra", {"exclusive"}}}}}}}},
        {"batch.queues.gpu.gpus", {{"queues", {{"gpu", {{"gpus", 4}}}}}}},
        {"batch.default_queue", {{"default_queue", "fast"}}},
        {"batch.default_queue", {{"default_queue", nullptr}}},
    };
    for (const auto& [field, patch] : patches) {
        Json value = kSlurmRecord;
        value.merge_patch(patch);
        EXPECT_EQ(wrong_batch_field(value), field) << value.dump();
    }
}

// A record's words end up in lines of a batch script.
TEST(BatchSpecTest, NoWordOfAQueueCanEndALine) {
    for (const char* word : {"a b", "a\nb", "\x1b", "è"}) {
        const auto with = [](const char* name, const Json& queue) {
            return Json{{"kind", "slurm"}, {"queues", {{name, queue}}}};
        };
        EXPECT_EQ(wrong_batch_field(with("gpu", {{"partition", word}})), "batch.queues.gpu.partition");
        EXPECT_EQ(wrong_batch_field(with("gpu", {{"extra", {"-" + std::string(word)}}})), "batch.queues.gpu.extra");
        EXPECT_EQ(wrong_batch_field(with(word, Json::object())), "batch.queues");
    }
}

TEST(BatchSpecTest, BatchSystemsOfLaterAreRefusedByName) {
    for (const char* kind : {"pbs", "flux", "hyperqueue", "hq"}) {
        const auto result = parse_batch_spec({{"kind", kind}}, "batch");
        EXPECT_EQ(result.error().field, "batch.kind");
        EXPECT_NE(result.error().message.find(kind), std::string::npos) << result.error().message;
    }
}

TEST(BatchSpecTest, ATemplateHasOneLineForTheCommandAndNothingElseToFillIn) {
    const auto refusal = [](const std::string& text) {
        Json value = kSlurmRecord;
        value["template"] = text;
        const auto result = parse_batch_spec(value, "batch");
        EXPECT_EQ(result.ok() ? "" : result.error().field, result.ok() ? "" : "batch.template");
        return result.ok() ? "" : result.error().message;
    };
    EXPECT_EQ(refusal("#!/bin/sh\necho \"${HOME}\" {1..3}\n  {{ command }}\n# the end\n\n"), "");
    for (const auto& [text, word] :
         std::map<std::string, std::string>{{"#!/bin/sh\n", "has 0"},
                                            {"#!/bin/sh\n{{ command }}\n{{ command }}\n", "has 2"},
                                            {"#!/bin/sh\n{{ command }}\n{{ streamflow_command }}\n", "has 2"},
                                            {"#!/bin/sh\n{{ command }}\n# {{ nodes }}\n", "{{ nodes }}"},
                                            {"#!/bin/sh\n{{ command \n", "{{ command"},
                                            {"#!/bin/sh\nsrun bash -c \"{{ command }}\"\n", "line of its own"},
                                            {"#!/bin/sh\n{{ command }}\nrm -r tmp\n", "rm -r tmp"},
                                            {"#SBATCH --exclusive\n{{ command }}\n", "interpreter"},
                                            {"#!/bin/sh\r\n{{ command }}\r\n", "Windows"}})
        EXPECT_NE(refusal(text).find(word), std::string::npos) << text << refusal(text);
}

TEST(BatchSpecTest, AQueueIsOneOfTheFacilitysAndItsLimitsAreKept) {
    const BatchSpec batch = parse_batch_spec(kSlurmRecord, "batch").value();
    const auto field = [&](const Resources& resources) {
        const Status status = check_resources(resources, batch, "resources");
        return status.ok() ? "" : status.error().field;
    };
    EXPECT_EQ(field({.queue = "gpu", .nodes = 4, .time_s = 86400}), "");
    EXPECT_EQ(field({.queue = "cpu", .nodes = 40, .time_s = 864000}), "") << "nothing is known of its limits";
    EXPECT_EQ(field({.nodes = 4}), "") << "the default queue";
    EXPECT_EQ(field({.queue = "gpu", .nodes = 5}), "resources.nodes");
    EXPECT_EQ(field({.nodes = 5}), "resources.nodes");
    EXPECT_EQ(field({.queue = "gpu", .time_s = 86401}), "resources.time");
    EXPECT_EQ(field({.queue = "fast"}), "resources.queue");
    EXPECT_EQ(queue_of(batch, {}).partition, "boost");
    EXPECT_EQ(queue_of(batch, {.queue = "fast"}), Queue());
}

TEST(BatchSpecTest, WhatTheSchedulerSaysOfAQueueIsALimitToo) {
    BatchSpec batch = {BatchKind::kSlurm, 1, {{"gpu", {.found = {2, 3600, 600, 4, 4000}}}}, "gpu"};
    EXPECT_EQ(batch_time_s(batch, {}), 600);
    EXPECT_EQ(batch_time_s(batch, {.time_s = 1200}), 1200);
    EXPECT_TRUE(
        check_resources({.nodes = 2, .tasks_per_node = 2, .cores_per_task = 2, .memory_mib = 4000, .time_s = 3600},
                        batch, "resources")
            .ok());
    const auto refusal = [&](const Resources& resources) {
        return describe(check_resources(resources, batch, "resources", "alfa").error());
    };
    batch.queues["gpu"].found.found_at = "2026-03-01T12:00:00Z";
    const std::string found =
        " at most, as the facility's check of 2026-03-01T12:00:00Z found; if that has changed: `atoll facility check "
        "alfa` reads the limits again";
    EXPECT_EQ(refusal({.nodes = 3}), "resources.nodes: the queue gpu gives 2" + found);
    EXPECT_EQ(refusal({.time_s = 3601}), "resources.time: the queue gpu gives 1:00:00" + found);
    EXPECT_EQ(refusal({.tasks_per_node = 5}), "resources.tasks_per_node: the queue gpu gives 4 cores a node" + found);
    EXPECT_EQ(refusal({.tasks_per_node = 2, .cores_per_task = 3}),
              "resources.cores_per_task: the queue gpu gives 4 cores a node" + found);
    EXPECT_EQ(refusal({.memory_mib = 4001}), "resources.memory: the queue gpu gives 4000MiB a node" + found);
    EXPECT_EQ(parse_queue_limits(to_json(batch.queues["gpu"].found), "limits").value(), batch.queues["gpu"].found);
    batch.queues["gpu"].nodes_max = 1;
    EXPECT_EQ(refusal({.nodes = 2}), "resources.nodes: the queue gpu gives 1 at most") << "by its record";
    batch.queues["gpu"].found.time_default_s = 0;
    EXPECT_EQ(batch_time_s(batch, {}), 3600);
    batch.script_template = "#!/bin/sh\n#SBATCH --time=2:00:00\n{{ command }}\n";
    EXPECT_EQ(batch_time_s(batch, {}), 3600) << "Slurm would take 2 hours and never start the job";
    EXPECT_EQ(batch_time_s(batch, {.time_s = 1200}), 1200);
    batch.queues["gpu"].time_max_s = 1800;
    EXPECT_EQ(batch_time_s(batch, {}), 1800);
    batch.queues["gpu"] = {};
    EXPECT_EQ(batch_time_s(batch, {}), 7200);
    batch.queues["gpu"].found = {2, 3600, 600, 4, 4000};
    batch.queues["gpu"].found.nodes = 4;
    batch.queues["gpu"].found.nodes_away = {{"down", 1}, {"drained", 2}};
    batch.queues["gpu"].found.state = "drain";
    EXPECT_EQ(parse_queue_limits(to_json(batch.queues["gpu"].found), "limits").value(), batch.queues["gpu"].found);
}

TEST(BatchSpecTest, TheLocalBatchSystemMeasuresNothingOut) {
    const BatchSpec batch = parse_batch_spec({{"kind", "local"}, {"slots", 2}}, "batch").value();
    EXPECT_EQ(to_json(batch), (Json{{"kind", "local"}, {"slots", 2}}));
    EXPECT_TRUE(check_resources({.tasks_per_node = 8000}, batch, "r").ok()) << "nothing is known of the machine";
    for (const auto& [field, resources] : std::map<std::string, Resources>{{"r.queue", {.queue = "gpu"}},
                                                                           {"r.nodes", {.nodes = 2}},
                                                                           {"r.cores_per_task", {.cores_per_task = 2}},
                                                                           {"r.gpus_per_node", {.gpus_per_node = 2}},
                                                                           {"r.memory", {.memory_mib = 1024}},
                                                                           {"r.time", {.time_s = 60}}})
        EXPECT_EQ(check_resources(resources, batch, "r").error().field, field);
}

TEST(BatchSpecTest, AMachineTakesSoManyRanksACore) {
    BatchSpec batch;
    batch.machine.found.cores_max = 2;
    EXPECT_TRUE(check_resources({.tasks_per_node = 32}, batch, "r").ok());
    EXPECT_EQ(describe(check_resources({.tasks_per_node = 33}, batch, "r").error()),
              "r.tasks_per_node: the facility's machine takes 32 ranks at most, 16 a core");
    EXPECT_EQ(queue_of(batch, {}).found.cores_max, 2);
}

}  // namespace
}  // namespace atl::dispatch
