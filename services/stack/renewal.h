#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "services/stack/component.h"

// What a stack needs so that nothing of it expires while it runs: tokens renewed at half their life, and a gateway that
// takes a renewed certificate.
namespace atl::stack {

// Tells whether any of some files was replaced. One that is missing for a moment counts as unchanged.
class FileWatch {
  public:
    explicit FileWatch(std::vector<std::filesystem::path> files);
    // Since it was last asked, or made.
    bool has_changed();

  private:
    std::vector<std::filesystem::path> files_;
    std::map<std::filesystem::path, std::string> states_;
};

class Renewal {
  public:
    explicit Renewal(std::function<void(const std::string&)> report) : report_(std::move(report)) {}
    // To be called every second or so: does what is due of it.
    void look(const Stack& stack);

  private:
    void renew_tokens(const Layout& layout);
    void watch_certificate(const Stack& stack);

    using Clock = std::chrono::steady_clock;
    const std::function<void(const std::string&)> report_;
    Clock::time_point next_tokens_;
    std::vector<std::filesystem::path> watched_;
    FileWatch certificate_{{}};
};

}  // namespace atl::stack
