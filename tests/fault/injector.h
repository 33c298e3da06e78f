#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "shared/json/json.h"
#include "tests/fault/event_repeater.h"
#include "tests/fault/fault_plan.h"
#include "tests/fault/shim.h"
#include "tests/fault/supervisor.h"

namespace atl::fault {

// Does what a plan says to a stack and to its sites, and takes it back when its time is over. One thread.
class Injector {
  public:
    // `directory`: below it lie the stack's state and the sites; no process and no file of others is ever touched.
    // `stack`: its stack.json.
    Injector(std::filesystem::path directory, const json::Json& stack, Supervisor& supervisor);

    void inject(const Fault& fault);
    void mend_due();
    void mend_all();
    // By name, those that hit something.
    const std::map<std::string, int>& counts() const { return counts_; }

    // To be in the environment of a stack from its start: lets its clocks be set and its disk be full.
    static void prepare_shim(const std::filesystem::path& directory);

  private:
    using Clock = std::chrono::steady_clock;

    bool kill(const Fault& fault);
    bool freeze(const Fault& fault);
    bool cut(const Fault& fault);
    bool cut_files(const Fault& fault);
    bool break_store(const Fault& fault);
    bool fill_store(const Fault& fault);
    bool set_clock(const Fault& fault);

    // The processes that a fault is meant for; none where the target does not run just now.
    std::vector<Process> find_targets(const std::string& target) const;
    // Moves a file or directory away for a while. What has taken its place by then stays or goes.
    enum class Successor { kStays, kGoes };
    bool move_away(const std::filesystem::path& path, std::chrono::milliseconds time, Successor successor);
    void write_shim(const std::string& program, const ShimState& state) const;
    void later(std::chrono::milliseconds after, std::function<void()> mend);

    std::filesystem::path directory_;
    std::map<std::string, std::filesystem::path> sockets_;  // by component
    Supervisor& supervisor_;
    EventRepeater repeater_;
    std::map<std::string, int> counts_;
    std::multimap<Clock::time_point, std::function<void()>> mends_;
};

}  // namespace atl::fault
