// Everything that check_promises() looks for, planted into what a run has left behind.
#include "tests/fault/promises.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "shared/base/file.h"
#include "tests/fault/evidence.h"
#include "tests/fault/fault_plan.h"

namespace atl::fault {
namespace {

using json::Json;

struct Plant {
    const char* name;
    std::function<void(Json&)> plant;
    std::vector<std::string> lines;  // what must be told, a part of each line, and nothing else
};

// What a completed job is made of; each a reference into the evidence.
Json& completed_job(Json& evidence) {
    for (Json& job : evidence["dispatch"]["jobs"])
        if (job["state"] == "completed") return job;
    check(false, "no job of the run completed");
    return evidence;
}

Json& round_of(Json& evidence, int number) {
    const Json id = completed_job(evidence)["id"];
    for (Json& round : evidence["dispatch"]["rounds"])
        if (round["job_id"] == id && round["number"] == number) return round;
    check(false, "the job has no such round");
    return evidence;
}

Json& aggregation_of(Json& evidence, int number) {
    const Json id = completed_job(evidence)["id"];
    for (Json& one : evidence["aggregation"]["aggregations"])
        if (one["job"] == id && one["round"] == number) return one;
    check(false, "the round has no aggregation");
    return evidence;
}

Json& last_global(Json& evidence) {
    const Json job = completed_job(evidence);
    for (Json& version : evidence["store"]["versions"])
        if (version["job"] == job["id"] && version["kind"] == "global" && version["round"] == job["current_round"])
            return version;
    check(false, "the job has no global version");
    return evidence;
}

std::string first_blob(const Json& version) {
    return version.at("manifest").at("files").front().at("chunks").front().at("sha256");
}

Json& attempt_that_trained(Json& evidence) {
    const Json trained = evidence["sites"]["a"]["trained"].front();
    for (Json& attempt : evidence["dispatch"]["attempts"])
        if (attempt["task_id"] == trained["task"] && attempt["number"] == trained["attempt"]) return attempt;
    check(false, "the site trained for nobody");
    return evidence;
}

void PrintTo(const Plant& plant, std::ostream* out) {
    *out << plant.name;
}

class PromisesTest : public testing::TestWithParam<Plant> {
  protected:
    // Of the run that this test's fixture has made.
    static Json read_run() {
        const auto text = read_file(ATOLL_FAULT_EVIDENCE);
        check(text.ok(), text.ok() ? "" : "run the ctest case fault_run first: " + text.error().message);
        return json::parse(*text).value();
    }
};

TEST_F(PromisesTest, ARunThatKeptThemIsFoundWithout) {
    const Verdict verdict = check_promises(read_run());
    EXPECT_EQ(verdict.broken, std::vector<std::string>());
    EXPECT_GT(verdict.updates_accepted, 0);
}

TEST_P(PromisesTest, ABrokenOneIsToldInItsLine) {
    Json evidence = read_run();
    GetParam().plant(evidence);
    std::vector<std::string> broken = check_promises(evidence).broken;
    for (const std::string& part : GetParam().lines) {
        const auto line = std::find_if(broken.begin(), broken.end(),
                                       [&](const std::string& one) { return one.find(part) != std::string::npos; });
        if (line == broken.end())
            ADD_FAILURE() << "no line says: " << part;
        else
            broken.erase(line);
    }
    EXPECT_EQ(broken, std::vector<std::string>());
}

const Plant kPlants[] = {
    {"AJobThatIsStuck", [](Json& run) { completed_job(run)["state"] = "running"; }, {"is stuck: running"}},
    {"AJobThatFailedForNothing",
     [](Json& run) { completed_job(run)["state"] = "failed"; },
     {"failed without a reason", "its last event does not say"}},
    {"AJobSubmittedTwice",
     [](Json& run) {
         Json second = completed_job(run);
         second["id"] = "another";
         run["dispatch"]["jobs"].push_back(second);
     },
     {"is there 2 times", "events and has 0", "its last event", "is in round", "completed after -1 of"}},
    {"AJobLost",
     [](Json& run) { run["submitted"].push_back({{"name", "lost"}, {"id", "x"}, {"cancelled", false}}); },
     {"was accepted as x and is not there"}},
    {"ATaskThatIsStuck",
     [](Json& run) { run["dispatch"]["tasks"].front()["state"] = "pending"; },
     {"is stuck: pending"}},
    {"ARoundClosedTwice",
     [](Json& run) {
         const Json id = completed_job(run)["id"];
         Json* closing = nullptr;
         for (Json& event : run["dispatch"]["events"])
             if (event["job_id"] == id && event["type"] == "atoll.round.closed.v1") {
                 if (closing != nullptr) event["data"]["round"] = (*closing)["data"]["round"];
                 if (closing != nullptr) return;
                 closing = &event;
             }
     },
     {"atoll.round.closed.v1 of round 1 came 2 times", "is not in Kafka"}},
    {"AnEventMissingInTheDatabase",
     [](Json& run) {
         const Json id = completed_job(run)["id"];
         Json* last = nullptr;
         for (Json& event : run["dispatch"]["events"])
             if (event["job_id"] == id) last = &event;
         (*last)["number"] = 1000;
     },
     {"has the number 1000"}},
    {"AnEventMissingInKafka",
     [](Json& run) {
         const auto is_submission = [](const Json& event) { return event["type"] == "atoll.job.submitted.v1"; };
         const Json all = run["kafka"];
         const Json first = *std::find_if(all.begin(), all.end(), is_submission);
         run["kafka"] = Json::array();
         for (const Json& event : all)  // an event may have come more than once
             if (event["id"] != first["id"]) run["kafka"].push_back(event);
     },
     {"(atoll.job.submitted.v1) is not in Kafka"}},
    {"ARoundOnAnotherBase",
     [](Json& run) { round_of(run, 2)["base_digest"] = std::string(64, '0'); },
     {"does not go on from the version"}},
    {"ARoundThatIsNotThere",
     [](Json& run) {
         Json& rounds = run["dispatch"]["rounds"];
         rounds.erase(&round_of(run, 0) - &rounds[0]);
     },
     {"does not follow the one before"}},
    {"AnAggregationOfAnotherRefusal",
     [](Json& run) { aggregation_of(run, 1)["refused"].push_back({{"task", "x"}}); },
     {"refused different updates"}},
    {"AnAggregationWithoutAnUpdate",
     [](Json& run) { aggregation_of(run, 1)["updates"].erase(0); },
     {"updates are not those that were accepted"}},
    {"AnUpdateCountedTwice",
     [](Json& run) { aggregation_of(run, 2)["updates"].push_back(aggregation_of(run, 1)["updates"][0]); },
     {"is in 2 aggregations", "updates are not those that were accepted"}},
    {"AnAggregationOfAnotherUpdate",
     [](Json& run) { aggregation_of(run, 1)["updates"][0]["version"] = "x"; },
     {"has another update of task"}},
    {"AnAggregationLost",
     [](Json& run) { aggregation_of(run, 1)["state"] = "averaging"; },
     {"is closed and was not aggregated"}},
    {"AContributionTwice",
     [](Json& run) {
         Json& contributions = last_global(run)["contributions"];
         contributions.push_back(contributions[0]);
         contributions.back()["weight"] = 0;
     },
     {"the contributions are"}},
    {"AWeightTooMuch", [](Json& run) { last_global(run)["contributions"][0]["weight"] = 2; }, {"the weights sum to"}},
    {"AGlobalVersionLost",
     [](Json& run) {
         Json& versions = run["store"]["versions"];
         versions.erase(&last_global(run) - &versions[0]);
     },
     {"is not in the store"}},
    {"ABlobLost", [](Json& run) { run["blobs"].erase(first_blob(last_global(run))); }, {"is not there"}},
    {"ABlobDamaged", [](Json& run) { run["blobs"][first_blob(last_global(run))] = "damaged"; }, {"is damaged"}},
    {"AManifestChanged",
     [](Json& run) { last_global(run)["manifest"]["files"][0]["size"] = 1; },
     {"its manifest is another's"}},
    {"AParentLost",
     [](Json& run) { last_global(run)["parents"].push_back(std::string(64, 'f')); },
     {"its parent ffffffffffff is not there"}},
    {"ABatchJobTwice",
     [](Json& run) { run["sites"]["a"]["starts"].push_back(run["sites"]["a"]["starts"][0]); },
     {"ran 2 times"}},
    {"ABatchJobOfNobody",
     [](Json& run) { run["sites"]["a"]["starts"].push_back("atoll-x-1 train y"); },
     {"ran for no attempt that is known"}},
    {"ATrainingThrownAway",
     [](Json& run) { attempt_that_trained(run)["step"] = "failed"; },
     {"was trained and not handed in"}},
    {"AModelThatStaysAtASite",
     [](Json& run) { run["sites"]["b"]["left"].push_back("models/x"); },
     {"at b, models/x is left"}},
    {"AnEventThatWasNotSent",
     [](Json& run) { run["store"]["outbox"].push_back({{"id", "x"}}); },
     {"the outbox of store still holds x"}},
    {"ADeadLetter",
     [](Json& run) { run["dispatch"]["dead_letters"].push_back({{"event_id", "x"}, {"error", "y"}}); },
     {"has the dead letter x: y"}},
};

INSTANTIATE_TEST_SUITE_P(Planted, PromisesTest, testing::ValuesIn(kPlants),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(EvidenceTest, ABlobIsWholeDamagedOrNotThere) {
    const TemporaryDirectory root;
    const std::string whole = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";  // of "abc"
    const std::string damaged(64, '1');
    for (const auto& [name, bytes] : {std::pair(whole, "abc"), {damaged, "abd"}}) {
        const auto path = root.path() / name.substr(0, 2) / name.substr(2, 2);
        std::filesystem::create_directories(path);
        ASSERT_TRUE(write_file_atomic(path / name, bytes).ok());
    }
    const Json found = examine_blobs(root.path(), {whole, damaged, std::string(64, '2')});
    EXPECT_EQ(found, Json({{whole, "whole"}, {damaged, "damaged"}}));
}

TEST(FaultPlanTest, TheSameSeedGivesTheSameFaultsAndEachKindOnceBeforeAnyTwice) {
    const auto names = [](std::uint64_t seed) {
        std::vector<std::string> all;
        for (const Fault& fault : plan_faults(seed, std::chrono::minutes(3)))
            all.push_back(fault.name() + " at " + std::to_string(fault.at.count()) + " for " +
                          std::to_string(fault.lasts.count()) + " " + std::to_string(fault.choice));
        return all;
    };
    EXPECT_EQ(names(1), names(1));
    EXPECT_NE(names(1), names(2));
    const auto kinds = [](std::chrono::minutes duration) {
        std::set<std::string> all;
        for (const Fault& fault : plan_faults(1, duration)) all.insert(fault.name());
        return all;
    };
    EXPECT_EQ(kinds(std::chrono::minutes(3)), kinds(std::chrono::minutes(60)));
}

}  // namespace
}  // namespace atl::fault
