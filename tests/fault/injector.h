#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/fault/fault_plan.h"
#include "tests/fault/supervisor.h"

namespace atl::fault {

// Does what a plan says to a stack and to its sites, and takes it back when its time is over. One thread.
class Injector {
  public:
    // `directory`: below it lie the stack's state and the sites; nothing else is ever touched.
    Injector(std::filesystem::path directory, Supervisor& supervisor);

    void inject(const Fault& fault);
    void mend_due();
    void mend_all();
    // By name, those that hit something.
    const std::map<std::string, int>& counts() const { return counts_; }

  private:
    using Clock = std::chrono::steady_clock;

    bool kill(const Fault& fault);
    // The processes that a fault is meant for; none where the target does not run just now.
    std::vector<Process> find_targets(const std::string& target) const;
    void later(std::chrono::milliseconds after, std::function<void()> mend);

    std::filesystem::path directory_;
    Supervisor& supervisor_;
    std::map<std::string, int> counts_;
    std::multimap<Clock::time_point, std::function<void()>> mends_;
};

}  // namespace atl::fault
