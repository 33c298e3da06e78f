#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace atl::fault {

// Something that goes wrong, and for how long.
struct Fault {
    std::chrono::milliseconds at{};  // after the run's beginning
    std::string kind;                // "kill", "freeze", …
    std::string target;              // "dispatch", "site push", …
    std::chrono::milliseconds lasts{};
    std::uint64_t choice = 0;  // what chooses among several processes of the target

    std::string name() const { return kind + " " + target; }
};

// Depends on its arguments alone. Every kind and target comes once before any comes twice.
std::vector<Fault> plan_faults(std::uint64_t seed, std::chrono::milliseconds duration);

}  // namespace atl::fault
