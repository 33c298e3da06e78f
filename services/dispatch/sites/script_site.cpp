#include "services/dispatch/sites/script_site.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <iterator>
#include <sstream>

#include "services/dispatch/domain/attempt_end.h"
#include "services/dispatch/domain/set_command.h"
#include "services/dispatch/domain/site_output.h"
#include "services/dispatch/domain/site_trouble.h"
#include "services/dispatch/embedded.h"
#include "services/dispatch/sites/image_command.h"
#include "services/dispatch/sites/transport/frame.h"
#include "shared/base/text.h"
#include "shared/json/printable.h"
#include "shared/log/log.h"
#include "shared/run_settings/exit_codes.h"
#include "shared/site/exit_status.h"

namespace atl::dispatch {
namespace {

using json::printable;

constexpr std::chrono::seconds kMoveTimeMax{40};  // far more than a look at what moves takes
constexpr std::chrono::seconds kLookTimeMax{20};  // a step of a task has up to three of them
// An image that was written less long ago may still be on its way: one that nobody has read yet, and another one than
// the record says.
constexpr std::int64_t kUnreadImageQuiet_s = 60;
constexpr std::int64_t kOtherImageQuiet_s = 600;
constexpr std::size_t kLogBytesMax = 256 << 10;      // of one attempt,
constexpr std::size_t kLogBytesTotalMax = 2U << 20;  // and of all that one script looks at
constexpr std::size_t kErrorBytesMax = 1000;
constexpr const char* kLooking = "looking at attempts";
constexpr const char* kBatch = "the batch system";
constexpr std::size_t kNameBytesMax = 100;

std::string last_bytes(const std::string& text, std::size_t count) {
    return text.size() > count ? text.substr(text.size() - count) : text;
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
    if (const std::string_view line = out.substr(0, header); line.starts_with("unknown ")) {
        Look look;
        look.log_begin = look.log_offset = offset;
        look.unknown = shorten(printable(std::string(line.substr(8))), kErrorBytesMax);
        out.remove_prefix(header + 1);
        return look;
    }
    int started = 0;
    std::size_t end_bytes = 0;
    std::size_t log_bytes = 0;
    long long free_kib = -1;
    if (std::sscanf(std::string(out.substr(0, header)).c_str(), "%d %zu %zu %lld", &started, &end_bytes, &log_bytes,
                    &free_kib) != 4 ||
        end_bytes > kEndRecordBytesMax + 1 || log_bytes > bytes_max || out.size() < header + 1 + end_bytes + log_bytes)
        return incomplete;
    Look look = read_log(out.substr(header + 1 + end_bytes, log_bytes), offset, bytes_max);
    look.started = started != 0;
    look.free_kib = free_kib;
    if (end_bytes > 0) look.exit_code = read_exit_code(out.substr(header + 1, end_bytes));
    out.remove_prefix(header + 1 + end_bytes + log_bytes);
    return look;
}

std::size_t log_bytes_max(const std::vector<LookOrder>& orders) {
    return std::min(kLogBytesMax, kLogBytesTotalMax / orders.size());
}

RemoteScript look_script(const std::vector<LookOrder>& orders) {
    atl::check(!orders.empty() && orders.size() <= kLooksMax, "a look takes 1 to kLooksMax orders");
    RemoteScript script{
        std::string(kSitesScriptsLookSh),
        {std::to_string(log_bytes_max(orders)), std::to_string(kEndRecordBytesMax + 1), std::to_string(orders.size())},
        {},
        kLookTimeMax};
    for (const LookOrder& order : orders)
        script.arguments.insert(script.arguments.end(), {order.directory, std::to_string(order.log_offset)});
    return script;
}

// What look.sh printed of attempts, which is taken off the front of `out`.
Result<std::vector<Look>> take_looks(std::string_view& out, const std::vector<LookOrder>& orders) {
    std::vector<Look> looks;
    for (const LookOrder& order : orders) {
        ATOLL_TRY(Look look, take_look(out, order.log_offset, log_bytes_max(orders)));
        looks.push_back(std::move(look));
    }
    return looks;
}

// What queue_ask is asked.
void add_jobs(RemoteScript& script, const std::vector<BatchJobRef>& jobs) {
    for (const auto& job : jobs) script.arguments.insert(script.arguments.end(), {job.name, job.directory});
}

constexpr long long kBytesMax = 1LL << 45;  // no model has so many: a site may write what it likes

// "moving DONE TOTAL".
Moving read_moving(const std::string& out) {
    long long done = 0;
    long long total = 0;
    if (std::sscanf(out.c_str(), "moving %lld %lld", &done, &total) != 2 || done < 0 || total < done) return {};
    if (total > kBytesMax) return {};
    return {done, total};
}

// What its owner or the site can mend while the job waits.
Error no_queue(const Facility& facility, const Resources& resources, const std::string& said) {
    const std::string& name = resources.queue.empty() ? facility.batch.default_queue : resources.queue;
    const auto says = [&](const char* words) { return said.find(words) != std::string::npos; };
    if (says("time limit is invalid") || says("count specification invalid"))
        return with_cause(not_found("Slurm at " + facility.name + " gives less in the queue " + in_quotes(name) +
                                    " by now than this job asks for (" + said +
                                    "); have the site raise its limits again, or cancel the job and submit one with a "
                                    "lower `time` or fewer `nodes` of its resources"),
                          Cause::kSite);
    const bool is_partition = said.find("Invalid partition name") != std::string::npos;
    const std::string& partition = queue_of(facility.batch, resources).partition;
    const std::string what = is_partition
                                 ? "the partition " + (partition.empty() ? "" : in_quotes(partition) + " ") +
                                       "of queue " + in_quotes(name) + " does not exist at " + facility.name
                                 : "Slurm at " + facility.name + " rejects the settings of queue " + in_quotes(name);
    const std::string field = "batch.queues." + name + (is_partition ? ".partition" : ".MEMBER");
    return with_cause(not_found(what + " (" + said + "); change it with `" +
                                set_field_command(facility, field, is_partition ? "PARTITION" : "VALUE") + "`" +
                                (facility.batch.script_template.empty() ? "" : ", or its template") +
                                ", or have the site bring it back"),
                      Cause::kSite);
}

}  // namespace

std::int64_t read_moved(const std::string& out) {
    long long bytes = 0;
    return std::sscanf(out.c_str(), "moved %lld", &bytes) == 1 && bytes > 0 && bytes <= kBytesMax ? bytes : 0;
}

ScriptSite::ScriptSite(Facility facility, std::shared_ptr<Transport> transport, std::string programs)
    : Site(std::move(facility), std::move(programs)),
      transport_(std::move(transport)),
      batch_(make_batch_system(Site::facility())) {}

Error ScriptSite::to_error(const CommandResult& result, const char* what) const {
    const std::string said =
        log::redact(printable(trim(last_bytes(result.err.empty() ? result.out : result.err, kErrorBytesMax))));
    if (result.exit_code == site::kExitNoWorkDir) return no_work_dir(facility(), said);
    if (result.exit_code == site::kExitNoBatchAnswer) return no_batch_answer(facility(), said);
    std::string message = std::string(what) + ": ";
    if (result.exit_code == site::kExitAbsent) return with_cause(not_found(message + said), Cause::kSite);
    if (result.exit_code == site::kExitNoQueue) return with_cause(not_found(message + said), Cause::kSite);
    if (result.exit_code == site::kExitBadInput) return with_cause(invalid_argument({}, message + said), Cause::kSite);
    const std::string doing = std::string_view(what) == kBatch ? "" : message;  // no batch system was reached
    if (is_read_only(said)) return unavailable(doing + facility().work_dir + ": " + kReadOnlyMend + " (" + said + ")");
    if (is_out_of_space(said))
        return unavailable(doing + "no space or quota is left in " + facility().work_dir + " (" + said + ")");
    if (said.empty() || result.exit_code != site::kExitTryLater)
        message += "exit status " + std::to_string(result.exit_code) + (said.empty() ? "" : ": ");
    if (result.exit_code == site::kExitTryLater) return unavailable(message + said);
    return internal_error(message + said);
}

// A directory that was given wrongly, mostly: whoever sees this can mend it.
Error ScriptSite::missing(const CommandResult& result, const char* what) const {
    const std::string name = shorten(printable(result.out.substr(0, result.out.find('\n'))), kNameBytesMax);
    const std::string where = programs().empty() ? "PATH" : programs();
    return internal_error(std::string(what) + ": there is no " + name + " in " + where + " at " + facility().name +
                          ", or it cannot be run: `atoll facility check " + facility().name + "` tries what is there");
}

std::string ScriptSite::with_programs(std::string_view script) const {
    return render_image_programs(facility()) + std::string(script);
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
    if (result.exit_code == site::kExitNoProgram && !result.out.empty()) return missing(result, what);
    if (result.exit_code != 0) return to_error(result, what);
    return {};
}

Result<CommandResult> ScriptSite::run_batch(RemoteScript script) {
    script.text.insert(0, batch_->functions());
    return run(std::move(script), kBatch);
}

Result<ScriptSite::FoundImage> ScriptSite::find_image() {
    ATOLL_TRY(const CommandResult result, run({render_image_digest(facility()) + std::string(kSitesScriptsImageSh),
                                               {std::to_string(kOtherImageQuiet_s)},
                                               {},
                                               kLookTimeMax},
                                              "the image"));
    FoundImage found;
    std::istringstream line(printable(result.out));
    if (!(line >> found.quiet_s >> found.sha256)) return unavailable("the look at the image gave an incomplete answer");
    if (found.sha256 == "-") found.sha256.clear();
    return found;
}

// A batch job looks at what is not known yet.
Status ScriptSite::verify_image(const FoundImage& found) const {
    const auto& image = facility().image;
    if (image->sha256.empty() || found.sha256 == image->sha256) return {};
    const std::string where = image->path + " at " + facility().name;
    const std::string age = std::to_string(found.quiet_s) + " seconds ago: is it still being copied?";
    if (found.sha256.empty())
        return found.quiet_s < kUnreadImageQuiet_s ? unavailable(where + " was written " + age) : Status();
    const std::string other = where + " has the sha256 " + shorten(found.sha256, kNameBytesMax) +
                              ", but the facility's record says " + image->sha256;
    if (found.quiet_s < kOtherImageQuiet_s) return unavailable(other + "; it was written " + age);
    return invalid_argument("image.sha256", other);
}

Result<CommandResult> ScriptSite::run_moving(RemoteScript script, std::string_view mover) {
    const std::string functions(kSitesScriptsMovingSh);
    script.text = functions + "mover=" + shell_quote(functions + std::string(mover)) + "\n" + script.text;
    script.timeout = kMoveTimeMax;
    return run_any(std::move(script));
}

Result<std::string> ScriptSite::submit(const BatchJob& job) {
    if (!job.is_check && facility().image && !facility().image->sha256.empty()) {
        ATOLL_TRY(const FoundImage found, find_image());
        ATOLL_RETURN_IF_ERROR(verify_image(found));
    }
    auto submitted = submit_script(job.ref, render_job_script(job, *batch_));
    if (submitted.ok() || job.is_check) return submitted;
    Error refused = submitted.error();
    if (is_absent(refused)) return no_queue(facility(), job.resources, refused.message);
    refused.message += limit_advice(refused.message);
    if (refused.code == ErrorCode::kUnavailable) return refused;
    if (refused.code != ErrorCode::kInvalidArgument) return submitted;
    const std::string& queue = job.resources.queue;
    refused.message += " (`atoll facility check " + facility().name + " --job" +
                       (queue.empty() ? "" : " --queue " + shell_quote(queue)) + "` tries the same queue)";
    return refused;
}

Status ScriptSite::check_input(const std::vector<std::string>& command) {
    RemoteScript script{with_programs(kSitesScriptsCheckInputSh), {facility().work_dir}, {}, kLookTimeMax};
    script.arguments.insert(script.arguments.end(), command.begin(), command.end());
    const auto result = run_any(std::move(script));
    if (!result.ok()) return {};
    const Status refusal = input_refusal(result->err, facility().work_dir);
    if (result->exit_code != run_settings::kExitBadInput || refusal.ok()) return {};
    const Error& error = refusal.error();
    if (facility().logs.give == LogsGiven::kNone) return invalid_argument(error.field, "the trainer cannot read it");
    return invalid_argument(error.field, printable(shorten(error.message, kErrorBytesMax)));
}

Result<std::string> ScriptSite::submit_script(const BatchJobRef& job, const std::string& script) {
    ATOLL_TRY(const CommandResult result, run_batch({std::string(kSitesBatchScriptsSubmitSh),
                                                     {job.directory, job.name, std::to_string(script.size())},
                                                     script}));
    std::string id = printable(result.out.substr(0, result.out.find_first_of(" \n")).substr(0, kNameBytesMax));
    if (id == "cancelled") return conflict(job.name + " was cancelled before it was submitted");
    if (id.empty()) return unavailable("the batch system gave no job id");
    // It stands in commands that people are advised to type.
    const auto is_plain = [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '-';
    };
    if (id.front() == '-' || !std::ranges::all_of(id, is_plain))
        return unavailable("the batch system gave " + in_quotes(id) + ", which is no job id");
    return id;
}

Result<std::vector<BatchAnswer>> ScriptSite::ask_batch(const std::vector<BatchJobRef>& jobs) {
    RemoteScript script{"queue_ask \"$@\"", {}, {}, kLookTimeMax};
    add_jobs(script, jobs);
    ATOLL_TRY(const CommandResult result, run_batch(std::move(script)));
    return batch_->parse(result.out, jobs);
}

Status ScriptSite::ping_batch() {
    ATOLL_RETURN_IF_ERROR(run_batch({"queue_find atoll-ping", {}, {}, kLookTimeMax}));
    return {};
}

Status ScriptSite::cancel(const BatchJobRef& job) {
    const std::string text = std::string(kSitesScriptsMovingSh) + std::string(kSitesBatchScriptsCancelSh);
    ATOLL_RETURN_IF_ERROR(run_batch({text + "drop push.moving\n", {job.directory, job.name}, {}}));
    return {};
}

Result<StageAnswer> ScriptSite::stage(const StageOrder& order) {
    RemoteScript script{
        with_programs(work_dir_setting() + render_know_image(facility()) + std::string(kSitesScriptsPrepareStageSh) +
                      std::string(kSitesScriptsStageSh)),
        {program("atoll"), program("atoll-trainer"), order.store_url, facility().work_dir, order.pin, order.attempt},
        order.token + "\n"};
    script.arguments.insert(script.arguments.end(), order.digests.begin(), order.digests.end());
    ATOLL_TRY(const CommandResult result, run_moving(std::move(script), kSitesScriptsStageMoverSh));
    if (result.exit_code == site::kExitMoving) return StageAnswer{read_moving(result.out)};
    ATOLL_RETURN_IF_ERROR(check_exit(result, "staging models"));
    return StageAnswer{{}, read_moved(result.out)};
}

Status ScriptSite::stop_staging(const StageOrder& order) {
    RemoteScript script{std::string(kSitesScriptsMovingSh) + std::string(kSitesScriptsStopStagingSh),
                        {facility().work_dir, order.attempt},
                        {},
                        kLookTimeMax};
    script.arguments.insert(script.arguments.end(), order.digests.begin(), order.digests.end());
    ATOLL_RETURN_IF_ERROR(run(std::move(script), "ending a staging"));
    return {};
}

Result<PushAnswer> ScriptSite::push(const PushOrder& order) {
    constexpr const char* kWhat = "pushing the update";
    const std::string meta = order.meta.dump();
    ATOLL_TRY(
        const CommandResult result,
        run_moving({with_programs(render_know_image(facility()) + std::string(kSitesScriptsPushSh)),
                    {program("atoll"), order.store_url, order.model, order.directory, std::to_string(meta.size())},
                    order.token + "\n" + meta},
                   kSitesScriptsPushMoverSh));
    if (result.exit_code == site::kExitMoving) return PushAnswer{{}, {}, false, read_moving(result.out)};
    const auto answer = read_push_answer(result.out);
    if (answer && (answer->error || result.exit_code == 0)) return *answer;
    if (result.exit_code == site::kExitAbsent)
        return PushAnswer{{}, conflict("what was trained is not there any more: " + order.directory), true};
    ATOLL_RETURN_IF_ERROR(check_exit(result, kWhat));
    return internal_error("atoll push did not print a digest: " + printable(last_bytes(result.out, 200)));
}

Result<std::vector<Look>> ScriptSite::look(const std::vector<LookOrder>& orders) {
    ATOLL_TRY(const CommandResult result, run(look_script(orders), kLooking));
    std::string_view out = result.out;
    ATOLL_TRY(auto looks, take_looks(out, orders));
    if (!out.empty()) return unavailable("the look at attempts gave more than was asked for");
    return looks;
}

Result<LookAndQueue> ScriptSite::look_and_ask(const std::vector<LookOrder>& orders,
                                              const std::vector<BatchJobRef>& jobs) {
    RemoteScript script = look_script(orders);
    add_jobs(script, jobs);
    script.text.insert(0, batch_->functions());
    ATOLL_TRY(const CommandResult result, run(std::move(script), kLooking));
    std::string_view out = result.out;
    LookAndQueue found;
    ATOLL_TRY(found.looks, take_looks(out, orders));
    const bool is_silent = out.empty() && abilities_of(facility().batch.kind).has_queues;
    found.queue = is_silent ? Result<std::vector<BatchAnswer>>(
                                  no_batch_answer(facility(), printable(trim(last_bytes(result.err, kErrorBytesMax)))))
                            : batch_->parse(out, jobs);
    return found;
}

Result<std::vector<std::string>> ScriptSite::tails(const std::vector<std::string>& files, std::int64_t bytes) {
    RemoteScript script{std::string(kSitesScriptsTailSh), {std::to_string(bytes)}, {}, kLookTimeMax};
    script.arguments.insert(script.arguments.end(), files.begin(), files.end());
    ATOLL_TRY(const CommandResult result, run(std::move(script), "reading a log"));
    std::vector<std::string> ends;
    std::string_view out = result.out;
    for (std::size_t i = 0; i < files.size(); ++i) {
        const std::size_t line = out.find('\n');
        std::size_t size = 0;
        if (line == std::string_view::npos ||
            std::sscanf(std::string(out.substr(0, line)).c_str(), "%zu", &size) != 1 || size > out.size() - line - 1)
            return unavailable("the look at a log gave an incomplete answer");
        ends.push_back(log::redact(printable(std::string(out.substr(line + 1, size)))));
        out.remove_prefix(line + 1 + size);
    }
    return ends;
}

Result<std::string> ScriptSite::read_file(const std::string& file, std::size_t bytes_max) {
    ATOLL_TRY(CommandResult result, run({std::string(kSitesScriptsReadFileSh),
                                         {file, std::to_string(bytes_max + 1), facility().work_dir},
                                         {},
                                         kLookTimeMax},
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

Site::Move ScriptSite::clean(const std::string& pin, const std::vector<std::string>& tasks) {
    RemoteScript script{std::string(kSitesScriptsCleanSh), {facility().work_dir, pin}, {}};
    script.arguments.insert(script.arguments.end(), tasks.begin(), tasks.end());
    ATOLL_TRY(const CommandResult result, run_moving(std::move(script), kSitesScriptsCleanMoverSh));
    if (result.exit_code == site::kExitMoving) return std::optional(read_moving(result.out));
    ATOLL_RETURN_IF_ERROR(check_exit(result, "cleaning up"));
    return std::optional<Moving>();
}

Site::Move ScriptSite::put_image(const ImagePart& part) {
    const std::filesystem::path image = facility().image->path;
    const std::string partial =
        "." + image.filename().string() + "." + facility().image->sha256.substr(0, 16) + ".partial/image";
    ATOLL_TRY(const CommandResult result,
              run_moving({work_dir_setting() + render_know_image(facility()) + "partial=" +
                              shell_quote(image.parent_path() / partial) + "\n" + std::string(kSitesScriptsPutImageSh),
                          {facility().work_dir, std::to_string(part.bytes_total),
                           part.bytes.empty() ? "" : std::to_string(part.offset)},
                          part.bytes},
                         std::string(kSitesScriptsImageDigestSh) + std::string(kSitesScriptsPutImageMoverSh)));
    if (result.exit_code == site::kExitMoving) return std::optional(read_moving(result.out));
    if (result.exit_code != 0 && is_out_of_space(result.err))
        return Error{ErrorCode::kInsufficientStorage,
                     "no space or quota is left for " + image.string() + " at " + facility().name, ""};
    ATOLL_RETURN_IF_ERROR(check_exit(result, "putting the image"));
    return std::optional<Moving>();
}

}  // namespace atl::dispatch
