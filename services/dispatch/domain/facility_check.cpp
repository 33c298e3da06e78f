#include "services/dispatch/domain/facility_check.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "services/dispatch/domain/check_job.h"
#include "services/dispatch/domain/set_command.h"
#include "services/dispatch/domain/site_trouble.h"
#include "shared/base/shell.h"
#include "shared/base/text.h"
#include "shared/json/printable.h"

namespace atl::dispatch {
namespace {

constexpr std::size_t kSeenBytesMax = 600;
constexpr std::int64_t kSpaceWarnKib = 10LL << 20;  // some versions of a small model
constexpr std::int64_t kRoomKibMin = 1024;          // less is full
constexpr std::int64_t kFilesWarn = 10'000;
constexpr double kClockWarnS = 5;
constexpr double kClockFailS = 60;

const char* state_text(CheckState state) {
    switch (state) {
        case CheckState::kOk:
            return "ok";
        case CheckState::kWarn:
            return "warn";
        case CheckState::kFail:
            return "fail";
        case CheckState::kSkipped:
            break;
    }
    return "skipped";
}

// What a site says may be long and is somebody else's.
std::string seen_text(const std::string& text) {
    return shorten(json::printable(text), kSeenBytesMax);
}

// Of a queue in the record what sbatch's words are about.
std::string refused_member(const std::string& words) {
    for (const char* member : {"account", "qos", "reservation"})
        if (words.find(member) != std::string::npos) return member;
    return words.find("feature") != std::string::npos ? "constraint" : "partition";
}

class Judge {
  public:
    Judge(const SiteFacts& facts, const FoundLimits& limits, const Facility& facility, const CheckSetting& setting)
        : facts_(facts), limits_(limits), facility_(facility), setting_(setting) {}

    SiteJudgement judgement() && {
        judge_shell();
        judge_tools();
        abilities_of(facility_.batch.kind).has_queues ? judge_scheduler() : judge_machine();
        judge_launcher();
        judge_work_dir();
        facility_.image ? judge_image() : judge_programs();
        judge_store();
        judge_clock();
        add("compute", CheckState::kSkipped, "not tried: " + check_job() + " runs " + what_job_runs());
        return {std::move(rows_), std::move(no_batch_answer_)};
    }

  private:
    bool has(std::string_view key) const { return facts_.find(key) != facts_.end(); }
    std::string fact(std::string_view key) const {
        const auto found = facts_.find(key);
        return found == facts_.end() ? "" : found->second;
    }
    std::vector<std::string> all(std::string_view key) const {
        std::vector<std::string> values;
        const auto [begin, end] = facts_.equal_range(key);
        for (auto at = begin; at != end; ++at) values.push_back(at->second);
        return values;
    }
    std::optional<std::int64_t> number(std::string_view key) const { return to_number(fact(key)); }
    static std::optional<std::int64_t> to_number(const std::string& text) {
        std::int64_t value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (text.empty() || error != std::errc() || end != text.data() + text.size()) return {};
        return value;
    }

    void add(const std::string& name, CheckState state, const std::string& seen, const std::string& mend = "") {
        rows_.push_back({name, state, seen_text(seen), mend});
    }
    std::string set(const std::string& arguments) const { return set_command(facility_, arguments); }
    std::string set_field(const std::string& field, const std::string& value) const {
        return set_field_command(facility_, field, value);
    }
    std::string set_path(const std::string& directory) const {
        return set("--env " + shell_word("PATH=" + directory + ":" + fact("path")));
    }
    std::string check_job() const { return "atoll facility check " + facility_.name + " --job"; }
    std::string what_job_runs() const {
        if (!abilities_of(facility_.batch.kind).has_queues) return "two ranks for a moment";
        Facility found = facility_;
        for (const auto& [name, limits] : limits_)
            if (limits.ok()) found.batch.queues.at(name).found = *limits;
        const auto asked = parse_check_job(json::Json::object(), found);
        return asked.ok() && asked->nodes == 1 ? "a minute on one node" : "a minute on two nodes";
    }
    std::string other_work_dir() const {
        return "free some there: what waits for room goes on by itself; or take another: " +
               set("--work-dir DIRECTORY");
    }

    void judge_shell() {
        const std::string shell = fact("shell");
        std::string seen = shell.substr(shell.rfind('/') + 1) + " of " + fact("user") + ", " + fact("machine");
        std::vector<std::string> limits;
        if (const auto cpu = number("cpu_s")) limits.push_back(std::to_string(*cpu) + " s CPU");
        if (const auto memory = number("memory_kib"))
            limits.push_back(human_bytes(static_cast<std::uint64_t>(*memory) * 1024));
        if (!limits.empty()) seen += "; limits: " + join(limits) + " (kept from jobs)";
        add("shell", CheckState::kOk, seen);
    }

    void judge_tools() {
        const auto missing = all("missing");
        if (missing.empty()) return add("programs", CheckState::kOk, "what the scripts need is there");
        add("programs", CheckState::kFail, "not in PATH, which is " + fact("path") + ": " + join(missing),
            set_path("DIRECTORY-OF-THEM"));
    }

    void judge_machine() {
        const auto found = limits_.find(kMachine);
        if (found == limits_.end()) return add("machine", CheckState::kSkipped, "not known: " + fact("no_limits"));
        add("machine", CheckState::kOk,
            std::to_string(found->second->cores_max) + (found->second->cores_max == 1 ? " core" : " cores") + " and " +
                human_bytes(static_cast<std::uint64_t>(found->second->memory_mib_max) << 20) + " of memory");
    }

    void judge_scheduler() {
        const auto missing = all("no_slurm");
        if (!missing.empty()) {
            const std::string elsewhere = fact("login_shell_has");
            const bool is_found = elsewhere.starts_with('/');
            const std::string directory = elsewhere.substr(0, is_found ? elsewhere.rfind('/') : 0);
            add("scheduler", CheckState::kFail,
                "not in PATH: " + join(missing) + (is_found ? "; a login shell has them in " + directory : ""),
                set_path(is_found ? directory : "DIRECTORY-OF-SBATCH"));
            return skip_queues("the scheduler's commands are missing");
        }
        if (has("no_queue")) {
            const std::string said = join(all("no_queue"), "\n");
            add("scheduler", CheckState::kFail, "Slurm does not answer: " + silence_text(said),
                std::string(is_munge_away(said) ? kMungeMend : "ask the site whether slurmctld is up") +
                    "; `squeue --me` there by hand says the same");
            no_batch_answer_ = rows_.back().seen;
            return skip_queues("the scheduler does not answer");
        }
        if (has("odd_queue")) {
            add("scheduler", CheckState::kFail, fact("odd_queue"),
                "try `squeue --me` there by hand: a wrapper or an alias of the site may stand in its place");
            no_batch_answer_ = rows_.back().seen;
            return skip_queues("squeue cannot be used");
        }
        no_batch_answer_ = "";
        if (const auto unread = unread_limits()) {
            add("scheduler", CheckState::kFail, *unread,
                "look at what `sinfo` prints there by hand: a wrapper or an alias of the site may stand in its place");
            return skip_queues("what sinfo printed cannot be read");
        }
        const bool is_silent = fact("accounting") == "silent";
        const std::string accounting = is_silent           ? "; sacct gave no answer within 5 s"
                                       : has("accounting") ? "; sacct answers"
                                                           : "; no accounting (sacct)";
        if (is_silent)
            add("scheduler", CheckState::kWarn, fact("slurm") + " answers" + accounting,
                "ask the site whether slurmdbd is up: each look at what runs waits for it, and who cancelled a job is "
                "not known");
        else if (!fact("slurm").empty())
            add("scheduler", CheckState::kOk, fact("slurm") + " answers" + accounting);
        else
            add("scheduler", CheckState::kWarn,
                "squeue answers, but `sbatch --version` printed nothing within 5 s" + accounting,
                "run `sbatch --version` there by hand: a wrapper of the site may be slow or unreliable");
        if (has("no_limits")) {
            rows_.back().state = CheckState::kWarn;
            rows_.back().mend = "try `sinfo` there by hand: what its partitions give is not known";
            return skip_queues(fact("no_limits"));
        }
        for (const auto& [name, found] : limits_) judge_queue(name, found);
    }

    // That sinfo answered, and what came was no partitions.
    std::optional<std::string> unread_limits() const {
        if (has("no_limits")) return {};
        for (const auto& [name, found] : limits_)
            if (!found.ok() && found.error().code == ErrorCode::kUnavailable) {
                const std::string said = fact("queue");
                return found.error().message + (said.empty() ? "" : "; it begins: " + said);
            }
        return {};
    }

    void skip_queues(const std::string& why) {
        for (const auto& [name, queue] : facility_.batch.queues)
            add("queue " + name, CheckState::kSkipped, "not looked at: " + why);
    }

    void judge_queue(const std::string& name, const Result<QueueLimits>& found) {
        const std::string row = "queue " + name;
        const std::string field = "batch.queues." + name;
        if (!found.ok())
            return add(row, CheckState::kFail, found.error().message, set_field(field + ".partition", "PARTITION"));
        if (const auto away = judge_nodes(*found); away.state == CheckState::kFail)
            return add(row, away.state, away.seen, away.mend);
        const Queue& queue = facility_.batch.queues.at(name);
        const std::string time = time_text(found->time_max_s);
        if (found->time_max_s > 0 && queue.time_max_s > found->time_max_s)
            return add(row, CheckState::kFail,
                       "the record says " + time_text(queue.time_max_s) + " at most, Slurm gives " + time,
                       set_field(field + ".time_max", time));
        if (found->nodes_max > 0 && queue.nodes_max > found->nodes_max)
            return add(row, CheckState::kFail,
                       "the record says " + std::to_string(queue.nodes_max) + " nodes, Slurm gives " +
                           std::to_string(found->nodes_max),
                       set_field(field + ".nodes_max", std::to_string(found->nodes_max)));
        for (const auto& [member, asked] :
             {std::pair{"evaluation", &facility_.evaluation}, {"preparation", &facility_.preparation}}) {
            const std::string& asks_for = asked->queue.empty() ? facility_.batch.default_queue : asked->queue;
            if (asks_for != name) continue;
            if (found->time_max_s > 0 && asked->time_s > found->time_max_s)
                return add(row, CheckState::kFail,
                           std::string(member) + "s ask for " + time_text(asked->time_s) + ", Slurm gives " + time,
                           set_field(std::string(member) + ".time", time));
        }
        if (const std::string refused = refused_for(name); !refused.empty())
            return add(row, CheckState::kFail, "Slurm takes no job there: " + refused,
                       set_field(field + "." + refused_member(refused), "NAME"));
        const CheckRow nodes = judge_nodes(*found);
        add(row, nodes.state,
            (queue.partition.empty() ? "" : queue.partition + ": ") + to_text(*found) +
                (nodes.seen.empty() ? "" : "; " + nodes.seen),
            nodes.mend);
    }

    // Why what the record says of a queue is refused; empty: it is not, or nobody knows.
    std::string refused_for(const std::string& queue) const {
        for (const std::string& line : all("refused"))
            if (line.starts_with(queue + " ")) return line.substr(queue.size() + 1);
        return "";
    }

    // Whether a job in the queue could start now. Large machines always have a few nodes that are being mended.
    static CheckRow judge_nodes(const QueueLimits& found) {
        CheckRow row{"", CheckState::kOk, nodes_away_text(found), ""};
        if (!found.state.empty())
            return {"", CheckState::kFail, "Slurm says that " + queue_trouble(found),
                    "ask the site when it is up again, or for another partition"};
        const std::int64_t away = count_away(found);
        if (away == 0) return row;
        if (away == found.nodes) row.state = CheckState::kFail;
        if (away < found.nodes && 2 * away >= found.nodes) row.state = CheckState::kWarn;
        if (row.state != CheckState::kOk) row.mend = "ask the site; `sinfo -R` there says why";
        return row;
    }

    // "MPI plugin types are…", its names, "specific pmix plugin versions available: pmix_v4".
    std::vector<std::string> mpi_kinds() const {
        std::vector<std::string> kinds;
        for (const std::string& line : all("mpi")) {
            if (line.starts_with("srun: error") || line.starts_with("srun: fatal")) return {};
            if (line.ends_with("are...")) continue;
            for (std::string_view word : split(std::string_view(line).substr(line.find(':') + 1), ' ')) {
                if (word.ends_with(',')) word.remove_suffix(1);
                if (!word.empty()) kinds.emplace_back(word);
            }
        }
        return kinds;
    }

    void judge_launcher() {
        const std::string& launcher = setting_.launcher;
        if (launcher.starts_with("srun")) return judge_srun(launcher);
        if (launcher != "mpirun")
            return add("launcher", CheckState::kOk,
                       launcher + (launcher == kMpirunInImage ? "" : ", as the record says"));
        if (has("mpirun")) return add("launcher", CheckState::kOk, fact("mpirun"));
        add("launcher", CheckState::kWarn, "there is no mpirun in PATH: jobs of several ranks need it",
            set("--launcher '/DIRECTORY/mpirun -n {ranks}'"));
    }

    void judge_srun(const std::string& launcher) {
        const auto kinds = mpi_kinds();
        if (kinds.empty())
            return add("launcher", CheckState::kSkipped, "not looked at: `srun --mpi=list` says nothing");
        const std::string flag = "--mpi=";
        const auto at = launcher.find(flag);
        if (at == std::string::npos)
            return add("launcher", CheckState::kOk, launcher + ", with the site's default; srun has " + join(kinds));
        const std::string asked = launcher.substr(at + flag.size(), launcher.find(' ', at) - at - flag.size());
        if (std::find(kinds.begin(), kinds.end(), asked) != kinds.end())
            return add("launcher", CheckState::kOk, flag + asked + " is among srun's: " + join(kinds));
        std::string newest;
        for (const std::string& kind : kinds)
            if (kind.starts_with("pmix")) newest = std::max(newest, kind);
        std::string mended = launcher;
        mended.replace(at + flag.size(), asked.size(), newest.empty() ? "KIND" : newest);
        add("launcher", CheckState::kFail, flag + asked + " is asked for, srun has " + join(kinds),
            set("--launcher " + shell_word(mended)));
    }

    static bool is_permission(const std::string& said) { return said.find("ermission denied") != std::string::npos; }
    std::string missing_work_dir(const std::string& said) const {
        if (facility_.has_work_dir) return "have it mounted; if it is gone for good `mkdir` it there";
        if (is_read_only(said)) return kReadOnlyMend;
        return is_permission(said) ? "make it and give it to " + fact("user") + " there" : "make what it lies in";
    }
    std::string mend_writing(const std::string& said) const {
        const std::string other = ", or take another: " + set("--work-dir DIRECTORY");
        if (is_read_only(said)) return kReadOnlyMend + other;
        return is_permission(said) ? "give it to " + fact("user") + " there" + other : other_work_dir();
    }
    void judge_work_dir() {
        const std::string& place = facility_.work_dir;
        is_work_dir_good_ = false;
        if (has("no_work_dir"))
            return add("work_dir", CheckState::kFail, place + " is not there: " + fact("no_work_dir"),
                       missing_work_dir(fact("no_work_dir")) + ", or take another: " + set("--work-dir DIRECTORY"));
        if (is_out_of_space(fact("no_write")))
            return add("work_dir", CheckState::kFail, place + " is full: " + fact("no_write"), other_work_dir());
        if (has("no_write"))
            return add("work_dir", CheckState::kFail, "nothing can be written in " + place + ": " + fact("no_write"),
                       mend_writing(fact("no_write")));
        const auto space = number("space_kib");
        const auto files = number("files_free");
        const std::string seen = place + ": " + space_text(space, files);
        const std::string quota = quota_text();
        if (has("noexec"))
            return add("work_dir", facility_.image ? CheckState::kFail : CheckState::kWarn,
                       seen + "; mounted noexec: no program in it can be run", set("--work-dir DIRECTORY"));
        is_work_dir_good_ = true;
        if ((space && *space < kRoomKibMin) || (files && *files == 0))
            return add("work_dir", CheckState::kFail, seen + quota + ": it is full", other_work_dir());
        const bool is_short = (space && *space < kSpaceWarnKib) || (files && *files < kFilesWarn) || is_quota_short_;
        add("work_dir", is_short ? CheckState::kWarn : CheckState::kOk,
            seen + quota +
                (is_short ? ": that is short, less than " + human_bytes(kSpaceWarnKib * 1024) + " or " +
                                std::to_string(kFilesWarn) + " files"
                          : ""),
            is_short ? other_work_dir() : "");
    }

    std::string space_text(std::optional<std::int64_t> space, std::optional<std::int64_t> files) const {
        std::string text;
        if (space) text += human_bytes(static_cast<std::uint64_t>(*space) * 1024);
        if (files) text += (text.empty() ? "" : " and ") + std::to_string(*files) + " files";
        if (!text.empty()) text += " free";
        if (const std::string kind = fact("file_system"); !kind.empty()) text += (text.empty() ? "" : ", ") + kind;
        return text;
    }

    // Of four numbers: kilobytes used and allowed, files used and allowed; 0: any.
    std::string quota_text() {
        std::vector<std::int64_t> numbers;
        const std::string quota = fact("quota");
        for (const std::string_view word : split(quota, ' '))
            if (const auto one = to_number(std::string(word))) numbers.push_back(*one);
        if (numbers.size() != 4) return "";
        std::vector<std::string> parts;
        if (numbers[1] > 0) {
            is_quota_short_ = numbers[1] - numbers[0] < kSpaceWarnKib;
            parts.push_back(human_bytes(static_cast<std::uint64_t>(numbers[0]) * 1024) + " of " +
                            human_bytes(static_cast<std::uint64_t>(numbers[1]) * 1024));
        }
        if (numbers[3] > 0) {
            is_quota_short_ = is_quota_short_ || numbers[3] - numbers[2] < kFilesWarn;
            parts.push_back(std::to_string(numbers[2]) + " of " + std::to_string(numbers[3]) + " files");
        }
        return parts.empty() ? "" : "; " + join(parts) + " by quota";
    }

    // Of the header of a SIF file, and of an ELF file.
    std::string machine_of(const std::string& code) const {
        static const std::map<std::string, std::string> kMachines = {
            {"01", "i686"}, {"02", "x86_64"}, {"04", "aarch64"},  {"06", "ppc64le"}, {"12", "riscv64"},
            {"3", "i686"},  {"62", "x86_64"}, {"183", "aarch64"}, {"21", "ppc64le"}, {"243", "riscv64"}};
        const auto found = kMachines.find(code);
        return found == kMachines.end() ? "other" : found->second;
    }

    std::string other_machine(const std::string& machine) const {
        return "is for " + machine + " machines, but the login node is " + fact("machine");
    }

    void judge_programs() {
        for (const std::string& code : all("elf"))
            if (!code.empty() && machine_of(code) != fact("machine"))
                return add("atoll", CheckState::kFail, "the program " + other_machine(machine_of(code)),
                           "bring those built for " + fact("machine") + ", then " + set("--programs DIRECTORY"));
        const auto missing = all("no_program");
        if (!missing.empty())
            return add("atoll", CheckState::kFail, "not there, or cannot be run: " + join(missing),
                       "with an image: `atoll facility put-image " + facility_.name + " FILE.sif`; else " +
                           set("--programs DIRECTORY-OF-THEM"));
        judge_version("atoll", join(all("program")), "bring those of this release: " + set("--programs DIRECTORY"));
    }

    void judge_version(const std::string& row, const std::string& place, const std::string& mend) {
        if (has("version_error")) return add(row, CheckState::kFail, place + ": " + fact("version_error"), mend);
        if (!has("version")) return add(row, CheckState::kFail, place + ": the program does not answer", mend);
        std::string seen = place + ", " + fact("version");
        if (has("devices")) seen += ", computes on " + fact("devices");
        const bool is_other = fact("version") != "atoll " + setting_.version;
        if (is_other) seen += " (here " + setting_.version + ")";
        add(row, is_other ? CheckState::kWarn : CheckState::kOk, seen, is_other ? mend : "");
    }

    void judge_image() {
        const ImageSpec& image = *facility_.image;
        const std::string put = "atoll facility put-image " + facility_.name + " FILE";
        if (has("no_image")) return add("image", CheckState::kFail, image.path + " " + fact("no_image"), put);
        const std::string machine = machine_of(fact("image_machine"));
        const auto machines = all("node_machine");
        const bool is_of_nodes = std::find(machines.begin(), machines.end(), machine) != machines.end();
        if (!machines.empty() && !is_of_nodes)
            return add("image", CheckState::kFail,
                       image.path + " is for " + machine + " machines, but the compute nodes are " + join(machines),
                       "build it for " + join(machines) + ", then " + put);
        if (fact("runtime").empty())
            return add(
                "image", CheckState::kFail,
                "there is no " + (image.runtime.empty() ? "singularity or apptainer" : image.runtime) + " in PATH",
                set_path("DIRECTORY-OF-IT"));
        const std::string digest = fact("image_sha256");
        const bool is_known = !digest.empty() && !has("image_changed");
        if (is_known && !image.sha256.empty() && digest != image.sha256)
            return add("image", CheckState::kFail,
                       image.path + " has the sha256 " + digest + ", the record says " + image.sha256,
                       put + " brings the record's; if this one is right: " + set_field("image.sha256", digest));
        if (!is_work_dir_good_)
            return add("image", CheckState::kSkipped, "not looked into: that needs a work directory to write in");
        const std::string place = machine + ", " + fact("runtime") + ", " +
                                  (is_known ? "sha256 " + digest.substr(0, 12) + "…" : "sha256 not known yet");
        if (has("image_changed"))
            return add("image", CheckState::kWarn, image.path + " is another file than the one that was hashed",
                       check_job() + " computes its sha256");
        if (!is_known && !image.sha256.empty())
            return add("image", CheckState::kWarn, place + ": nothing of it is run there before",
                       check_job() + " computes it, and so does the first staging");
        if (machine != fact("machine"))
            return add("image", is_of_nodes ? CheckState::kOk : CheckState::kWarn,
                       place + ", not tried: it " + other_machine(machine),
                       is_of_nodes ? "" : check_job() + " tries it");
        const std::string option = missing_gpu_option();
        if (!option.empty())
            return add("image", CheckState::kWarn,
                       place + ", computes on " + fact("devices") +
                           ", but its containers get none of the host's GPUs: the record has gpu: " + image.gpu,
                       set_field("image.gpu", option));
        judge_version("image", place, "bring one of this release: " + put);
    }

    // What the record's image.gpu must be for a trainer that computes on GPUs; empty: it is so, or there is no need.
    std::string missing_gpu_option() const {
        for (const auto& [device, option] : {std::pair("cuda", "nv"), std::pair("hip", "rocm")})
            if (fact("devices").find(device) != std::string::npos && facility_.image->gpu != option) return option;
        return "";
    }

    void judge_store() {
        const bool is_local = facility_.transport.kind == TransportKind::kLocal;  // its data has no other way
        if (setting_.is_through_ssh) return add("store", CheckState::kOk, "not needed: data goes through ssh");
        if (setting_.store_url.empty())
            return add("store", CheckState::kFail, "the coordinator has no public URL",
                       "set one (with Compose: compose/init --public-url URL)" +
                           (is_local ? "" : ", or " + set_field("transport.data", "ssh")));
        if (has("store")) return add("store", CheckState::kOk, setting_.store_url + " answers");
        if (!has("no_store"))
            return add("store", CheckState::kSkipped,
                       "not looked at: neither atoll nor another program there that could ask " + setting_.store_url +
                           " runs");
        const std::string said = fact("no_store");
        const bool is_certificate = said.find("certificate") != std::string::npos;
        add("store", CheckState::kFail, setting_.store_url + " is not reached: " + said,
            is_certificate ? "copy the authority's file there, then " + set("--env ATOLL_CA_FILE=FILE")
            : is_local     ? "`atoll doctor` looks at the coordinator"
                           : set_field("transport.data", "ssh"));
    }

    // The site's clock at the begin and at the end of the script, in whole seconds, bounds how far it is off whatever
    // the way there took.
    void judge_clock() {
        std::vector<std::int64_t> times;
        for (const std::string& text : all("clock"))
            if (const auto time = to_number(text)) times.push_back(*time);
        if (times.size() != 2) return add("clock", CheckState::kSkipped, "not looked at: date does not answer");
        const double ahead_min = static_cast<double>(times[1]) - setting_.answered_s;
        const double ahead_max = static_cast<double>(times[0]) + 1 - setting_.asked_s;
        const double ahead = ahead_min > 0 ? ahead_min : ahead_max < 0 ? ahead_max : 0;
        const double off = std::abs(ahead);
        const CheckState state = off >= kClockFailS   ? CheckState::kFail
                                 : off >= kClockWarnS ? CheckState::kWarn
                                                      : CheckState::kOk;
        const std::string text = human_seconds(off);
        add("clock", state,
            state == CheckState::kOk ? "as here, to a few seconds"
                                     : text + (ahead > 0 ? " ahead of" : " behind") + " the coordinator's",
            state == CheckState::kOk ? ""
                                     : "`timedatectl` here says whether this one is right; if it is, tell the site");
    }

    const SiteFacts& facts_;
    const FoundLimits& limits_;
    const Facility& facility_;
    const CheckSetting& setting_;
    std::vector<CheckRow> rows_;
    std::optional<std::string> no_batch_answer_;
    bool is_work_dir_good_ = true;
    bool is_quota_short_ = false;
};

}  // namespace

json::Json to_json(const CheckRow& row) {
    return {{"name", row.name}, {"state", state_text(row.state)}, {"seen", row.seen}, {"mend", row.mend}};
}

SiteFacts read_facts(std::string_view text) {
    SiteFacts facts;
    for (const std::string_view line : split(text, '\n')) {
        const auto tab = line.find('\t');
        if (tab == std::string_view::npos) continue;
        facts.emplace(line.substr(0, tab), json::printable(std::string(line.substr(tab + 1))));
    }
    return facts;
}

SiteJudgement judge_site(const SiteFacts& facts, const FoundLimits& limits, const Facility& facility,
                         const CheckSetting& setting) {
    return Judge(facts, limits, facility, setting).judgement();
}

std::optional<CheckRow> judge_leftovers(const Facility& facility, const Leftovers& leftovers) {
    constexpr std::size_t kShownMax = 3;
    std::vector<std::string> seen, places;
    const auto tell = [&](const std::vector<std::string>& names, const std::string& parent, const std::string& one,
                          const std::string& many) {
        if (names.empty()) return;
        const std::vector<std::string> shown(
            names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kShownMax)));
        const std::size_t more = names.size() - shown.size();
        seen.push_back(std::to_string(names.size()) + (names.size() == 1 ? one : many) + join(shown) +
                       (more > 0 ? " and " + std::to_string(more) + " more" : ""));
        for (const std::string& name : shown) places.push_back(parent + name);
    };
    tell(leftovers.tasks, "tasks/", " directory of a task that this coordinator does not know: ",
         " directories of tasks that this coordinator does not know: ");
    tell(leftovers.kept, "kept/", " state kept for a job that has ended or that this coordinator does not know: ",
         " states kept for jobs that have ended or that this coordinator does not know: ");
    if (seen.empty()) return {};
    const std::string remove = "cd " + shell_word(facility.work_dir) + " && rm -r -- " + join(places, " ");
    const bool is_far = facility.transport.kind == TransportKind::kSsh;
    return CheckRow{"leftovers", CheckState::kWarn, join(seen, "; "),
                    "if no other coordinator uses the work directory, and none of their batch jobs runs: `" +
                        (is_far ? "ssh " + facility.transport.host + " " + shell_word(remove) : remove) + "`"};
}

std::vector<CheckRow> skip_site(const Facility& facility, const std::string& why) {
    std::vector<std::string> names = {"shell", "programs"};
    if (abilities_of(facility.batch.kind).has_queues) {
        names.emplace_back("scheduler");
        for (const auto& [name, queue] : facility.batch.queues) names.push_back("queue " + name);
    }
    names.insert(names.end(),
                 {"launcher", "work_dir", facility.image ? "image" : "atoll", "store", "clock", "compute"});
    std::vector<CheckRow> rows;
    for (const std::string& name : names) rows.push_back({name, CheckState::kSkipped, "not looked at: " + why, ""});
    return rows;
}

}  // namespace atl::dispatch
