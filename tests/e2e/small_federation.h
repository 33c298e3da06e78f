#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/subprocess.h"
#include "tests/e2e/demo/federation.h"

namespace atl::e2e {

struct FederationOptions {
    std::filesystem::path directory = {};  // where everything is made and stays; empty: one that disappears
    std::vector<std::string> facilities = {"a", "b"};
    std::map<std::string, std::string> templates = {};  // of their data sets, where it is another than "{{text}}"
    std::filesystem::path site_programs = {};  // the facilities' atoll and atoll-trainer; empty: dispatch's own
    std::filesystem::path programs = {};       // those of the stack; empty: those of this build
};

// A whole stack of its own, local facilities with a few dozen made-up documents each, and a model that trains in
// milliseconds: what tests of the running system need. Everything ends with the object.
class SmallFederation {
  public:
    explicit SmallFederation(FederationOptions options = {});
    ~SmallFederation();

    // Starts the stack, makes and pushes the base model, registers the facilities and a data set "text-NAME" each.
    Status set_up();

    demo::Coordinator& coordinator() { return *coordinator_; }
    const demo::StackAddress& address() const { return address_; }
    std::filesystem::path path(const std::string& name) const { return directory_ / name; }

    // Of all facilities.
    json::Json job_spec(const std::string& name, int rounds) const;
    // Starts what does not run, as an operator would after a crash.
    Status up();
    // SIGKILL to one component, by the process id that the stack recorded.
    Status kill_component(const std::string& component);
    // What `atoll ARGUMENTS` answers, typed by the stack's admin.
    CommandResult run_atoll(std::vector<std::string> arguments) const;
    // The versions of a model that have this kind.
    Result<int> count_versions(const std::string& model, const std::string& kind);

    static std::string program(const std::string& name);

  private:
    Status make_base();
    Status register_site(const std::string& facility);

    FederationOptions options_;
    std::optional<TemporaryDirectory> temporary_;
    std::filesystem::path directory_;
    demo::StackAddress address_;
    std::optional<demo::Coordinator> coordinator_;
    bool is_up_ = false;
};

}  // namespace atl::e2e
