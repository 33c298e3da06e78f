#include "services/dispatch/sites/script_site.h"

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "services/dispatch/domain/site_output.h"
#include "services/dispatch/embedded.h"
#include "shared/base/text.h"
#include "shared/json/printable.h"
#include "shared/log/log.h"

namespace atl::dispatch {
namespace {

using json::printable;

constexpr std::chrono::minutes kTransferTimeMax{60};
constexpr std::chrono::seconds kLookTimeMax{30};
constexpr std::size_t kLogBytesMax = 256 << 10;      // of one attempt,
constexpr std::size_t kLogBytesTotalMax = 2U << 20;  // and of all that one script looks at
constexpr std::size_t kErrorBytesMax = 1000;
constexpr std::size_t kNameBytesMax = 100;
constexpr int kExitUnknown = 75;    // EX_TEMPFAIL: the script could not find out
constexpr int kExitAbsent = 66;     // EX_NOINPUT
constexpr int kExitBadInput = 65;   // EX_DATAERR: a program of ours calls its input wrong
constexpr int kExitNoProgram = 72;  // EX_OSFILE: one is not there; its name is printed

std::string last_bytes(const std::string& text, std::size_t count) {
    return text.size() > count ? text.substr(text.size() - count) : text;
}

Error to_error(const CommandResult& result, const char* what) {
    const std::string text = printable(last_bytes(result.err.empty() ? result.out : result.err, kErrorBytesMax));
    const std::string message =
        std::string(what) + ": exit status " + std::to_string(result.exit_code) + ": " + log::redact(text);
    if (result.exit_code == kExitUnknown) return unavailable(message);
    if (result.exit_code == kExitAbsent) return not_found(message, what);
    if (result.exit_code == kExitBadInput) return invalid_argument(what, message);
    return internal_error(message);
}

Look read_log(std::string_view log, std::int64_t offset, std::size_t bytes_max) {
    Look look;
    look.log_begin = offset;
    // Whole lines only: the last one may still be on its way.
    const std::size_t whole = log.rfind('\n') + 1;  // npos + 1 is 0
    for (std::size_t begin = 0; begin < whole;) {
        const std::size_t newline = log.find('\n', begin);
        look.lines.emplace_back(log.substr(begin, newline - begin));
        begin = newline + 1;
    }
    // A line longer than one look is no line of the trainer's: it is passed over.
    const bool is_endless = whole == 0 && log.size() >= bytes_max;
    look.log_offset = offset + static_cast<std::int64_t>(is_endless ? log.size() : whole);
    look.log_is_drained = log.size() < bytes_max;
    return look;
}

// What look.sh printed of one attempt, which is taken off the front of `out`.
Result<Look> take_look(std::string_view& out, std::int64_t offset, std::size_t bytes_max) {
    const Error incomplete = unavailable("the look at an attempt gave an incomplete answer");
    const std::size_t header = out.find('\n');
    if (header == std::string_view::npos) return incomplete;
    int started = 0;
    std::size_t end_bytes = 0;
    std::size_t log_bytes = 0;
    if (std::sscanf(std::string(out.substr(0, header)).c_str(), "%d %zu %zu", &started, &end_bytes, &log_bytes) != 3 ||
        end_bytes > kEndRecordBytesMax + 1 || log_bytes > bytes_max || out.size() < header + 1 + end_bytes + log_bytes)
        return incomplete;
    Look look = read_log(out.substr(header + 1 + end_bytes, log_bytes), offset, bytes_max);
    look.started = started != 0;
    if (end_bytes > 0) look.exit_code = read_exit_code(out.substr(header + 1, end_bytes));
    out.remove_prefix(header + 1 + end_bytes + log_bytes);
    return look;
}

}  // namespace

ScriptSite::ScriptSite(Facility facility, std::shared_ptr<Transport> transport, std::string programs)
    : Site(std::move(facility), std::move(programs)),
      transport_(std::move(transport)),
      batch_(make_batch_system(Site::facility())) {}

// A directory that was given wrongly, mostly: whoever sees this can mend it.
Error ScriptSite::missing(const CommandResult& result, const char* what) const {
    const std::string name = shorten(printable(result.out.substr(0, result.out.find('\n'))), kNameBytesMax);
    const std::string where = programs().empty() ? "PATH" : programs();
    return internal_error(std::string(what) + ": there is no " + name + " in " + where + " at " + facility().name +
                          ", or it cannot be run: `atoll facility check " + facility().name + "` tries what is there");
}

// With the facility's environment: a gateway may ask the site's programs for a certificate.
Result<CommandResult> ScriptSite::run_any(RemoteScript script) {
    script.text.insert(0, render_exports(facility().environment));
    return transport_->run(script);
}

Result<CommandResult> ScriptSite::run(RemoteScript script, const char* what) {
    ATOLL_TRY(CommandResult result, run_any(std::move(script)));
    ATOLL_RETURN_IF_ERROR(check_exit(result, what));
    return result;
}

Status ScriptSite::check_exit(const CommandResult& result, const char* what) const {
    if (result.exit_code == kExitNoProgram && !result.out.empty()) return missing(result, what);
    if (result.exit_code != 0) return to_error(result, what);
    return {};
}

Result<CommandResult> ScriptSite::run_batch(RemoteScript script) {
    script.text.insert(0, batch_->functions());
    return run(std::move(script), "the batch system");
}

Result<std::string> ScriptSite::submit(const BatchJob& job) {
    return submit_script(job.ref, render_job_script(job, *batch_));
}

Result<std::string> ScriptSite::submit_script(const BatchJobRef& job, const std::string& script) {
    ATOLL_TRY(const CommandResult result, run_batch({std::string(kSitesBatchScriptsSubmitSh),
                                                     {job.directory, job.name, std::to_string(script.size())},
                                                     script}));
    std::string id = printable(result.out.substr(0, result.out.find_first_of(" \n")).substr(0, kNameBytesMax));
    if (id == "cancelled") return conflict(job.name + " was cancelled before it was submitted");
    if (id.empty()) return unavailable("the batch system gave no job id");
    return id;
}

Result<std::vector<BatchAnswer>> ScriptSite::ask_batch(const std::vector<BatchJobRef>& jobs) {
    RemoteScript script{"queue_ask \"$@\"", {}, {}};
    for (const auto& job : jobs) script.arguments.insert(script.arguments.end(), {job.name, job.directory});
    ATOLL_TRY(const CommandResult result, run_batch(std::move(script)));
    return batch_->parse(result.out, jobs);
}

Status ScriptSite::cancel(const BatchJobRef& job) {
    ATOLL_RETURN_IF_ERROR(run_batch({std::string(kSitesBatchScriptsCancelSh), {job.directory, job.name}, {}}));
    return {};
}

Status ScriptSite::stage(const StageOrder& order) {
    RemoteScript script{std::string(kSitesScriptsStageSh),
                        {program("atoll"), program("atoll-trainer"), order.store_url, facility().work_dir, order.pin},
                        order.token + "\n",
                        kTransferTimeMax,
                        /*is_transfer=*/true};
    script.arguments.insert(script.arguments.end(), order.digests.begin(), order.digests.end());
    ATOLL_RETURN_IF_ERROR(run(script, "staging models"));
    return {};
}

Result<PushAnswer> ScriptSite::push(const PushOrder& order) {
    constexpr const char* kWhat = "pushing the update";
    const std::string meta = order.meta.dump();
    ATOLL_TRY(const CommandResult result,
              run_any({std::string(kSitesScriptsPushSh),
                       {program("atoll"), order.store_url, order.model, order.directory, std::to_string(meta.size())},
                       order.token + "\n" + meta,
                       kTransferTimeMax,
                       /*is_transfer=*/true}));
    const auto answer = read_push_answer(result.out);
    if (answer && (answer->error || result.exit_code == 0)) return *answer;
    if (result.exit_code == kExitAbsent)
        return PushAnswer{{}, conflict("what was trained is not there any more: " + order.directory), true};
    ATOLL_RETURN_IF_ERROR(check_exit(result, kWhat));
    return internal_error("atoll push did not print a digest: " + printable(last_bytes(result.out, 200)));
}

Result<std::vector<Look>> ScriptSite::look(const std::vector<LookOrder>& orders) {
    atl::check(!orders.empty() && orders.size() <= kLooksMax, "look() takes 1 to kLooksMax orders");
    const std::size_t bytes_max = std::min(kLogBytesMax, kLogBytesTotalMax / orders.size());
    RemoteScript script{std::string(kSitesScriptsLookSh),
                        {std::to_string(bytes_max), std::to_string(kEndRecordBytesMax + 1)},
                        {},
                        kLookTimeMax};
    for (const LookOrder& order : orders)
        script.arguments.insert(script.arguments.end(), {order.directory, std::to_string(order.log_offset)});
    ATOLL_TRY(const CommandResult result, run(std::move(script), "looking at attempts"));
    std::vector<Look> looks;
    std::string_view out = result.out;
    for (const LookOrder& order : orders) {
        ATOLL_TRY(Look look, take_look(out, order.log_offset, bytes_max));
        looks.push_back(std::move(look));
    }
    if (!out.empty()) return unavailable("the look at attempts gave more than was asked for");
    return looks;
}

Result<std::string> ScriptSite::tail(const std::string& file, std::int64_t bytes) {
    ATOLL_TRY(
        const CommandResult result,
        run({std::string(kSitesScriptsTailSh), {file, std::to_string(bytes)}, {}, kLookTimeMax}, "reading a log"));
    return log::redact(printable(result.out));
}

Result<std::string> ScriptSite::read_file(const std::string& file, std::size_t bytes_max) {
    ATOLL_TRY(CommandResult result,
              run({std::string(kSitesScriptsReadFileSh), {file, std::to_string(bytes_max + 1)}, {}, kLookTimeMax},
                  "reading a file"));
    if (result.out.size() > bytes_max)
        return Error{ErrorCode::kTooLarge, "has more than " + std::to_string(bytes_max) + " bytes", file};
    return std::move(result.out);
}

Status ScriptSite::publish(const std::string& prepared, const std::string& place) {
    ATOLL_RETURN_IF_ERROR(run({std::string(kSitesScriptsPublishSh), {prepared, place}, {}, kLookTimeMax},
                              "moving prepared data into place"));
    return {};
}

Status ScriptSite::clean(const std::string& pin, const std::vector<std::string>& tasks) {
    RemoteScript script{std::string(kSitesScriptsCleanSh), {facility().work_dir, pin}, {}, kTransferTimeMax};
    script.arguments.insert(script.arguments.end(), tasks.begin(), tasks.end());
    ATOLL_RETURN_IF_ERROR(run(script, "cleaning up"));
    return {};
}

Result<std::vector<SiteCheck>> ScriptSite::check(const std::string& store_url) {
    ATOLL_TRY(const CommandResult result,
              run({std::string(kSitesScriptsCheckSh),
                   {facility().work_dir, program("atoll"), program("atoll-trainer"), store_url, facility().batch.kind},
                   {},
                   kLookTimeMax},
                  "checking the facility"));
    std::vector<SiteCheck> checks;
    std::istringstream lines(printable(result.out));
    for (std::string ok, name, detail;
         std::getline(lines, ok, '\t') && std::getline(lines, name, '\t') && std::getline(lines, detail);)
        checks.push_back({name, ok == "ok", detail});
    return checks;
}

}  // namespace atl::dispatch
