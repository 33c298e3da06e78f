#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <random>
#include <stop_token>
#include <string>
#include <vector>

#include "shared/http/client/client.h"
#include "shared/json/json.h"

namespace atl::fault {

// Whether a job in this state has ended.
bool is_final(const std::string& state);

// Keeps a coordinator busy: submits jobs of different kinds, cancels and pauses some, and watches them. A request whose
// answer is lost is sent again under its key for as long as it takes, so that no job is submitted twice. run() in one
// thread, the rest from any.
class JobLoad {
  public:
    // Jobs like `spec`; what was asked for is kept in `record`: [{"name", "key", "id", "cancelled", "short_deadline"}].
    JobLoad(http::ClientOptions coordinator, json::Json spec, std::filesystem::path record, std::uint64_t seed);

    // Submits until asked to stop.
    void run(const std::stop_token& stop);
    // Waits for the end of all jobs; false: some go on.
    bool await_end(std::chrono::seconds patience);
    std::map<std::string, int> count_by_state() const;

  private:
    struct Job {
        std::string name;
        std::string key;
        std::string id;
        json::Json spec;
        std::string state = "submitting";
        int looks = 0;
        int cancel_at = 0;  // after so many looks; 0: never
        int pause_at = 0;
        bool cancelled = false;
        bool short_deadline = false;
    };
    Job make_job();
    void submit(Job& job);
    void look(Job& job);
    bool ask(const Job& job, const char* verb);  // false: no answer
    void look_at_all();
    int count_unfinished() const;
    void keep_record() const;

    http::Client client_;
    json::Json spec_;
    std::filesystem::path record_;
    std::mt19937_64 random_;
    mutable std::mutex mutex_;
    std::vector<Job> jobs_;
};

}  // namespace atl::fault
