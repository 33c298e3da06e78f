#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "services/dispatch/testing/dispatch_fixture.h"

namespace atl::dispatch {

// Base of tests that follow jobs and preparations to their end.
class JobLifecycleTest : public DispatchTest {
  protected:
    void set(const std::string& file, const std::string& text = "") { std::ofstream(fake(file)) << text; }
    std::vector<std::string> event_types(const std::string& job) {
        std::vector<std::string> types;
        const json::Json page = get("/v1/jobs/" + job + "/events?limit=1000");
        for (const auto& event : page.at("items")) types.push_back(event.at("type"));
        return types;
    }
    // Of all trainings of the job, as its events tell them: an event may hold the points of many steps.
    std::size_t count_steps(const std::string& job) {
        std::size_t steps = 0;
        const json::Json page = get("/v1/jobs/" + job + "/events?limit=1000");
        for (const auto& event : page.at("items")) {
            if (event.at("type") != "atoll.task.progress.v1") continue;
            const json::Json& data = event.at("data");
            steps += data.contains("points") ? data.at("points").at("step").size() : 1;
        }
        return steps;
    }
    static std::size_t count(const std::vector<std::string>& list, const std::string& item) {
        return static_cast<std::size_t>(std::count(list.begin(), list.end(), item));
    }
    // True when so many facilities have been cleaned up.
    bool are_cleaned(int count) {
        auto connection = connect();
        return eventually([&] {
            return connection.query("SELECT 1 FROM tasks WHERE kind = 'clean' AND state = 'done'")->size() == count;
        });
    }
    // Prepares "it" at karolina; the path of the preparation, which has come to that state.
    std::string prepare(const std::string& state = "done", const json::Json& validation = {{"validation_percent", 5}}) {
        json::Json asked = {{"facility", "karolina"},
                            {"dataset", "it"},
                            {"tokenizer", {{"model", "tiny"}, {"version", "base"}}},
                            {"input", "raw/it.jsonl"},
                            {"seq_len", 128}};
        asked.update(validation);
        const json::Json made = client().post_json("/v1/preparations", asked).value();
        const std::string path = "/v1/preparations/" + made.at("id").get<std::string>();
        EXPECT_TRUE(eventually([&] { return get(path).at("state") == state; })) << get(path).dump(2);
        return path;
    }
    // How often each name's trainer was started.
    std::map<std::string, int> trainings() const {
        std::map<std::string, int> starts;
        for (const auto& line : lines("runs"))
            if (line.find(" train ") != std::string::npos) ++starts[line.substr(0, line.find(' '))];
        return starts;
    }
};

}  // namespace atl::dispatch
