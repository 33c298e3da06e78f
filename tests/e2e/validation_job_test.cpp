#include <gtest/gtest.h>

#include <chrono>
#include <map>

#include "tests/e2e/small_federation.h"

namespace atl {
namespace {

using json::Json;

// The losses on validation rows that a job's events tell of its trainings: by facility and step.
class ToldValidations {
  public:
    void apply(const Json& event) {
        if (event.at("type") != "atoll.task.progress.v1") return;
        const Json& data = event.at("data");
        std::map<std::int64_t, double>& losses = losses_[data.at("facility")];
        if (data.contains("val_loss")) losses[data.at("step")] = data.at("val_loss");
        const Json points = data.value("points", Json::object());
        const Json of_points = points.value("val_loss", Json::array());
        for (std::size_t i = 0; i < of_points.size(); ++i)
            if (!of_points[i].is_null()) losses[points.at("step")[i]] = of_points[i];
    }
    const std::map<std::int64_t, double>& of(const std::string& facility) { return losses_[facility]; }

  private:
    std::map<std::string, std::map<std::int64_t, double>> losses_;
};

// The trainer itself at real local facilities.
TEST(ValidationJobTest, WhileARoundTrainsItsLossesOnValidationRowsArrive) {
    e2e::SmallFederation federation;
    const Status ready = federation.set_up();
    ASSERT_TRUE(ready.ok()) << ready.error().message;
    Json spec = federation.job_spec("validated", 1);
    spec["training"]["eval_every"] = 2;
    spec["participants"][1]["training"] = {{"steps", 0}, {"epochs", 2}, {"batch_size", 64}, {"eval_every", "epoch"}};
    spec["evaluation"] = {{"models", "all"}};
    const auto id = federation.coordinator().submit(spec);
    ASSERT_TRUE(id.ok()) << id.error().message;
    ToldValidations told;
    const auto state =
        federation.coordinator().follow(*id, std::chrono::seconds(300), [&](const Json& event) { told.apply(event); });
    ASSERT_TRUE(state.ok() && *state == "completed");
    const Json round = federation.coordinator().rounds(*id).value()["items"].back();
    int updates = 0;
    for (const Json& one : round.at("evaluations")) {
        if (one.at("facility") != one.at("which")) continue;  // each site's update on the rows that it validated on
        ++updates;
        const auto& losses = told.of(one.at("facility"));
        ASSERT_EQ(losses.size(), 2U) << one;
        EXPECT_GT(losses.begin()->second, losses.rbegin()->second) << "it learns";
        EXPECT_NEAR(losses.rbegin()->second, one.at("loss").get<double>(), 1e-2) << "the update is of fp16";
        EXPECT_TRUE(one.at("which") != "a" || (losses.contains(2) && losses.contains(4))) << one;
    }
    EXPECT_EQ(updates, 2);
    for (const Json& task : round.at("tasks")) {
        if (task.at("kind") != "train") continue;
        EXPECT_EQ(task.at("progress").value("val_loss", 0.0), told.of(task.at("facility")).rbegin()->second) << task;
    }
}

}  // namespace
}  // namespace atl
