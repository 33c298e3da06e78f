#include "services/dispatch/domain/check_job.h"

#include <algorithm>
#include <set>

#include "services/dispatch/domain/set_command.h"
#include "services/dispatch/domain/site_trouble.h"
#include "shared/base/text.h"
#include "shared/digest/digest.h"
#include "shared/json/printable.h"
#include "shared/site/exit_status.h"

namespace atl::dispatch {
namespace {

using json::Json;

constexpr std::int64_t kTimeS = 300;
constexpr std::int64_t kGpusMax = 64;
constexpr std::size_t kSaidBytesMax = 800;

std::string text_of(const Json& object, const char* key) {
    if (!object.is_object() || !object.contains(key)) return "";
    const Json& value = object.at(key);
    return json::printable(value.is_string() ? value.get<std::string>() : value.dump());
}

std::string one_line(std::string text) {
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text;
}

// The digest that the job has computed of its image.
CheckRow judge_digest(const std::string& digest, const Facility& facility) {
    const ImageSpec& image = *facility.image;
    const std::string pin = set_field_command(facility, "image.sha256", digest);
    if (!digest::is_sha256(digest))  // a site may print what it likes, and this goes into a command
        return {"image", CheckState::kFail, image.path + " could not be hashed",
                "it has to be a file that the compute nodes can read, with sha256sum beside it: `ls -l " + image.path +
                    "` in a job there shows it"};
    if (image.sha256.empty())
        return {"image", CheckState::kOk, "sha256 " + digest + ", which the record does not pin", pin};
    if (image.sha256 == digest) return {"image", CheckState::kOk, "sha256 " + digest + ", as the record says", ""};
    return {"image", CheckState::kFail, image.path + " has the sha256 " + digest + ", the record says " + image.sha256,
            "atoll facility put-image " + facility.name + " FILE brings the record's; if this one is right: " + pin};
}

// "GPU 1 (NVIDIA H200, sm_90, 0000:1B:00.0), which other ranks take too"; or the trainer's own word.
std::string device_text(const Json& rank) {
    const Json device = rank.is_object() && rank.contains("device") ? rank.at("device") : Json();
    if (!device.is_object() || !device.contains("gpu")) return text_of(rank, "device");
    const std::string card = text_of(device, "card");
    return "GPU " + text_of(device, "gpu") + (card.empty() ? "" : " (" + card + ")") +
           (text_of(device, "shared") == "true" ? ", which other ranks take too," : "");
}

std::string rank_text(const Json& rank) {
    std::string text = text_of(rank, "host") + ", local rank " + text_of(rank, "local_rank") + " of " +
                       text_of(rank, "ranks_on_node") + ", " + text_of(rank, "visible_gpus") + " GPUs, computes on " +
                       device_text(rank) + " with " + text_of(rank, "threads") +
                       (text_of(rank, "threads") == "1" ? " thread" : " threads");
    if (rank.contains("launcher_says")) text += "; the launcher says otherwise: " + text_of(rank, "launcher_says");
    return text;
}

std::string other_launcher(const Facility& facility) {
    return set_command(facility, "--launcher 'srun --mpi=KIND'") +
           ", of those that `srun --mpi=list` says there; or an image with another MPI";
}

// `asked`: how many ranks the job asked for; 0: it has not said.
std::vector<CheckRow> judge_ranks(const std::vector<Json>& reports, std::int64_t asked, const Facility& facility) {
    if (reports.size() > 1)
        return {{"launcher", CheckState::kFail,
                 "its " + std::to_string(reports.size()) +
                     " processes are no ranks of one another: launcher and MPI do not find each other",
                 other_launcher(facility)},
                {"compute", CheckState::kSkipped, "not looked at: there are no ranks", ""}};
    const Json& report = reports.front();
    const Json ranks = report.contains("ranks") && report.at("ranks").is_array() ? report.at("ranks") : Json::array();
    std::set<std::string> hosts;
    for (const Json& rank : ranks) hosts.insert(text_of(rank, "host"));
    CheckRow launcher = {"launcher", CheckState::kOk,
                         std::to_string(ranks.size()) + " ranks found one another by " + text_of(report, "mpi"), ""};
    if (static_cast<std::int64_t>(ranks.size()) < asked)
        launcher = {"launcher", CheckState::kFail,
                    std::to_string(ranks.size()) + " of the " + std::to_string(asked) +
                        " ranks that were asked for have started",
                    "take numbers of tasks and nodes out of the facility's launcher and out of srun in its template"};
    std::vector<CheckRow> rows = {
        launcher,
        {"compute", CheckState::kOk,
         join(hosts) + ": " + (report.contains("cpu") ? text_of(report.at("cpu"), "model") : "") + ", atoll-trainer " +
             text_of(report, "version"),
         ""}};
    for (const Json& rank : ranks) {
        const bool is_odd =
            rank.contains("launcher_says") || text_of(rank, "device").find("error") != std::string::npos;
        rows.push_back({"rank " + text_of(rank, "rank"), is_odd ? CheckState::kWarn : CheckState::kOk, rank_text(rank),
                        is_odd ? "look at the queue's gpu_request and the launcher's binding" : ""});
    }
    return rows;
}

// The value that the trainer names for MPI's variable; empty: it has named none, or one that a shell would read
// otherwise: it goes into a command that people copy.
std::string named_interfaces(const std::string& said) {
    constexpr std::string_view kVariable = "OMPI_MCA_btl_tcp_if_include=";
    const auto at = said.find(kVariable);
    if (at == std::string::npos) return "";
    std::string named = said.substr(at, said.find_first_of(" ;)", at) - at);
    const auto is_plain = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               std::string_view("=,./:_-").find(c) != std::string_view::npos;
    };
    return std::ranges::all_of(named, is_plain) ? std::move(named) : std::string();
}

CheckRow judge_failure(std::optional<std::int64_t> exit_code, const std::string& said, const Facility& facility) {
    if (!exit_code)
        return {
            "queue", CheckState::kFail, "the job never began: " + said,
            "look at it there (`squeue --me`, `sacct`); its directory must be on the compute nodes too; another queue: "
            "`atoll facility check " +
                facility.name + " --job --queue NAME`"};
    const bool is_container = facility.image && is_container_not_started(*exit_code, said);
    if (is_container || *exit_code == site::kExitTryLater)
        return {"node", CheckState::kFail, "the job could do nothing on its node: " + said,
                facility.image ? "the runtime and " + facility.image->path +
                                     " have to be there on the compute nodes; a node that mounts no image takes `" +
                                     set_command(facility, "--set image.options=[--unsquash]") + "`"
                               : "the work directory and the programs have to be there on the compute nodes"};
    if (!rank_that_waits(said).empty()) {
        const std::string named = named_interfaces(said);
        return {"network", CheckState::kFail, "the ranks have started and do not reach one another: " + said,
                set_command(facility, "--env " + (named.empty() ? "NAME=INTERFACE" : named)) +
                    ", with the interface that joins the compute nodes"};
    }
    return {"launcher", CheckState::kFail,
            "the ranks did not start (exit status " + std::to_string(*exit_code) + "): " + said,
            other_launcher(facility)};
}

}  // namespace

Result<Resources> parse_check_job(const Json& value, const Facility& facility) {
    json::ObjectReader reader(value);
    Resources resources;
    resources.queue = reader.string_or("queue", "");
    resources.gpus_per_node = reader.integer_or("gpus_per_node", 0, 0, kGpusMax);
    ATOLL_RETURN_IF_ERROR(reader.finish());
    const bool has_queues = abilities_of(facility.batch.kind).has_queues;
    const Queue& queue = queue_of(facility.batch, resources);
    const std::int64_t most = queue.found.nodes_max > 0 ? queue.found.nodes_max : queue.nodes_max;
    resources.nodes = 2;
    if (!has_queues || most == 1 || !check_resources(resources, facility, "").ok()) resources.nodes = 1;
    resources.tasks_per_node = resources.nodes == 1 ? 2 : 1;
    if (has_queues) resources.time_s = kTimeS;
    if (const std::int64_t limit = queue.found.time_max_s; limit > 0) resources.time_s = std::min(kTimeS, limit);
    ATOLL_RETURN_IF_ERROR(check_resources(resources, facility, ""));
    return resources;
}

std::vector<CheckRow> judge_check_job(const std::vector<std::string>& lines, std::optional<std::int64_t> exit_code,
                                      const std::string& said, const Facility& facility) {
    std::vector<CheckRow> rows;
    std::vector<Json> reports;
    std::int64_t asked = 0;
    for (const std::string& line : lines) {
        const auto value = json::parse(line);
        if (!value.ok() || !value->is_object()) continue;
        if (value->contains("image_sha256") && facility.image && rows.empty())  // the script's, before any program's
            rows.push_back(judge_digest(text_of(*value, "image_sha256"), facility));
        if (value->contains("ranks")) reports.push_back(*value);
        if (value->contains("asked_ranks") && value->at("asked_ranks").is_number_integer())
            asked = value->at("asked_ranks").get<std::int64_t>();
    }
    if (!reports.empty() && exit_code == 0) {
        const auto found = judge_ranks(reports, asked, facility);
        rows.insert(rows.end(), found.begin(), found.end());
        return rows;
    }
    rows.push_back(judge_failure(exit_code, shorten(one_line(json::printable(said)), kSaidBytesMax), facility));
    rows.push_back({"compute", CheckState::kSkipped, "not looked at: no rank started", ""});
    return rows;
}

}  // namespace atl::dispatch
