#pragma once

#include <memory>
#include <string>
#include <vector>

#include "services/dispatch/sites/site.h"
#include "services/dispatch/sites/transport/transport.h"

namespace atl::dispatch {

// A facility that is reached through a transport: each verb is a small POSIX script that runs there (scripts/).
class ScriptSite : public Site {
  public:
    ScriptSite(Facility facility, std::shared_ptr<Transport> transport, std::string programs);

    Result<std::string> submit(const BatchJob& job) override;
    Result<std::string> submit_script(const BatchJobRef& job, const std::string& script);
    Result<std::vector<BatchAnswer>> ask_batch(const std::vector<BatchJobRef>& jobs) override;
    Status cancel(const BatchJobRef& job) override;
    Status stage(const StageOrder& order) override;
    Result<PushAnswer> push(const PushOrder& order) override;
    Result<std::vector<Look>> look(const std::vector<LookOrder>& orders) override;
    Result<std::string> tail(const std::string& file, std::int64_t bytes) override;
    Result<std::string> read_file(const std::string& file, std::size_t bytes_max) override;
    Status publish(const std::string& prepared, const std::string& place) override;
    Status clean(const std::string& pin, const std::vector<std::string>& tasks) override;
    Result<std::vector<SiteCheck>> check(const std::string& store_url) override;

  private:
    // With the batch system's functions in front of it.
    Result<CommandResult> run_batch(RemoteScript script);
    // run() whatever the script's status is.
    Result<CommandResult> run_any(RemoteScript script);
    Result<CommandResult> run(RemoteScript script, const char* what);
    Status check_exit(const CommandResult& result, const char* what) const;
    Error missing(const CommandResult& result, const char* what) const;

    std::shared_ptr<Transport> transport_;
    std::unique_ptr<BatchSystem> batch_;
};

}  // namespace atl::dispatch
