#pragma once

#include <memory>
#include <string>
#include <vector>

#include "services/dispatch/sites/site.h"
#include "services/dispatch/sites/transport/transport.h"

namespace atl::dispatch {

// A facility that is reached through a transport: each verb is a small POSIX script that runs there (scripts/).
// How much a site says that it has staged, "moved BYTES"; more than any model has counts as nothing.
std::int64_t read_moved(const std::string& out);

class ScriptSite : public Site {
  public:
    ScriptSite(Facility facility, std::shared_ptr<Transport> transport, std::string programs);

    Result<std::string> submit(const BatchJob& job) override;
    Status check_input(const std::vector<std::string>& command) override;
    Result<std::string> submit_script(const BatchJobRef& job, const std::string& script);
    Result<std::vector<BatchAnswer>> ask_batch(const std::vector<BatchJobRef>& jobs) override;
    Status ping_batch() override;
    Status cancel(const BatchJobRef& job) override;
    Status remove(const BatchJobRef& job) override;
    Result<StageAnswer> stage(const StageOrder& order) override;
    Status stop_staging(const StageOrder& order) override;
    Result<PushAnswer> push(const PushOrder& order) override;
    Result<std::vector<Look>> look(const std::vector<LookOrder>& orders) override;
    Result<LookAndQueue> look_and_ask(const std::vector<LookOrder>& orders,
                                      const std::vector<BatchJobRef>& jobs) override;
    Result<std::vector<std::string>> tails(const std::vector<std::string>& files, std::int64_t bytes) override;
    Result<std::string> read_file(const std::string& file, std::size_t bytes_max) override;
    Status publish(const std::string& prepared, const std::string& place) override;
    Move clean(const std::string& pin, const std::vector<std::string>& tasks) override;
    Move put_image(const ImagePart& part) override;
    SiteCheck check(const CheckOrder& order) override;

  protected:
    // What scripts that make the work directory are told of it.
    std::string work_dir_setting() const { return facility().has_work_dir ? "has_work_dir=yes\n" : "has_work_dir=\n"; }
    // A script that calls program().
    std::string with_programs(std::string_view script) const;
    // run() whatever the script's status is.
    Result<CommandResult> run_any(RemoteScript script);
    Result<CommandResult> run(RemoteScript script, const char* what);
    // run_any() with the functions of moving.sh in front and `mover`, which goes on by itself.
    Result<CommandResult> run_moving(RemoteScript script, std::string_view mover);
    Status check_exit(const CommandResult& result, const char* what) const;

  private:
    // With the batch system's functions in front of it.
    Result<CommandResult> run_batch(RemoteScript script);
    struct FoundImage {
        std::int64_t quiet_s = 0;  // nobody has written it for so long
        std::string sha256;        // empty: not known there yet
    };
    Result<FoundImage> find_image();
    // kInvalidArgument: it is another file than the record says; kUnavailable: is it still being copied?
    Status verify_image(const FoundImage& found) const;
    Error missing(const CommandResult& result, const char* what) const;
    // What a script that failed has said.
    Error to_error(const CommandResult& result, const char* what) const;

    std::shared_ptr<Transport> transport_;
    std::unique_ptr<BatchSystem> batch_;
};

}  // namespace atl::dispatch
