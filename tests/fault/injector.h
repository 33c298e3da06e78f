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
    // By name, those that hit something; and those whose target never was there, with how often they came.
    const std::map<std::string, int>& counts() const { return counts_; }
    std::map<std::string, int> missed() const;
    // Whether the stack's processes read what prepare_shim() has made, without which some faults are none.
    Status check_shim() const;

    // To be in the environment of a stack from its start: lets its clocks be set, its disk be full and its servers be
    // cut off.
    static void prepare_shim(const std::filesystem::path& directory);

  private:
    using Clock = std::chrono::steady_clock;

    bool kill(const Fault& fault);
    bool freeze(const Fault& fault);
    bool cut(const Fault& fault);
    bool cut_files(const Fault& fault);
    bool cut_from_kafka(const Fault& fault);
    bool break_store(const Fault& fault);
    bool fill_disk(const Fault& fault);
    bool set_clock(const Fault& fault);

    // The processes that a fault is meant for; none where the target does not run just now.
    std::vector<Process> find_targets(const std::string& target) const;
    // One of them; what runs at a site, for moments only, is waited for.
    Process choose_target(const Fault& fault) const;
    // Moves a file or directory away for a while. What has taken its place by then stays or goes.
    enum class Successor { kStays, kGoes };
    bool move_away(const std::filesystem::path& path, std::chrono::milliseconds time, Successor successor);
    // Sets the member for these programs and sets it back when the time is over.
    template <class Value>
    bool shim(const std::vector<std::string>& programs, Value ShimState::* member, const Value& value,
              std::chrono::milliseconds time);
    void write_shim(const std::string& program) const;
    void later(std::chrono::milliseconds after, std::function<void()> mend);

    std::filesystem::path directory_;
    std::map<std::string, std::filesystem::path> sockets_;  // by component
    std::int64_t kafka_port_ = 0;
    std::map<std::string, ShimState> shims_;  // by program, as their files say
    Supervisor& supervisor_;
    EventRepeater repeater_;
    std::map<std::string, int> counts_;
    std::map<std::string, int> tries_;
    std::multimap<Clock::time_point, std::function<void()>> mends_;
};

}  // namespace atl::fault
