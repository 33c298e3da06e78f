// What people read: every reading command of `atoll` and every GET of the OpenAPI documents, with every kind of record
// and state, as text on a terminal, in a pipe and as JSON. A command, a GET or a state that is new fails until it has a
// place here or in ReadableRecords.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <mutex>
#include <regex>
#include <set>
#include <sstream>

#include "shared/base/parallel.h"
#include "shared/base/text.h"
#include "shared/service/testing/response_check.h"
#include "tests/contract/readable_records.h"
#include "tests/contract/running_stack.h"
#include "tests/contract/seen_words.h"
#include "tests/contract/typed_command.h"

namespace atl::contract {
namespace {

using http::Method;
using json::Json;
using Words = std::vector<std::string>;

constexpr int kAtOnce = 3;  // commands; most of their time they wait

// What changes something, or runs at a site: not looked at here.
const std::set<std::string> kNotReading = {
    "up",          "down",           "gateway",        "credentials",      "aggregate",       "stage",
    "seal",        "push",           "ping",           "facility add",     "facility set",    "facility put-image",
    "facility rm", "facility login", "facility trust", "dataset register", "dataset prepare", "dataset adopt",
    "dataset rm",  "model import",   "model push",     "model tag",        "model untag",     "model rm",
    "model prune", "job submit",     "job pause",      "job resume",       "job readmit",     "job cancel",
    "job rm",      "job prune",      "events replay",  "token issue",      "token revoke",    "token rotate-key"};

// GETs whose records may answer otherwise than 200: what is at a site that does not answer, a round that is not closed.
const std::set<std::string> kMayRefuse = {"dispatch /v1/facilities/{name}/check-jobs/{id}",
                                          "dispatch /v1/jobs/{id}/rounds/{round}/updates",
                                          "dispatch /v1/jobs/{id}/tasks/{task}/script"};

// Words of the documents that no record here has, and why.
const std::set<std::string> kUnseenWords = {
    // A job of a check and what its ranks found: only a site that runs one has it.
    "dispatch #/components/schemas/CheckJob/state: queued", "dispatch #/components/schemas/CheckJob/state: running",
    "dispatch #/components/schemas/CheckJob/state: ended", "dispatch #/components/schemas/CheckRow/state: ok",
    "dispatch #/components/schemas/CheckRow/state: warn", "dispatch #/components/schemas/CheckRow/state: fail",
    "dispatch #/components/schemas/CheckRow/state: skipped",
    // Constants of a manifest and an image's record that no GET repeats.
    "store #/components/schemas/Manifest/schema: 1", "dispatch #/components/schemas/Image/gpu: none"};

// A command as it is typed, and what must be in its answer.
struct Typed {
    std::string command;  // "job show"
    Words arguments = {};
    Words named = {};
    std::set<int> codes = {0};
    enum class Json { kOne, kLines, kRefused } json = Json::kOne;  // kRefused: it has a form of its own
    bool goes_on = false;                                          // until Ctrl-C
    Words said = {};                                               // what must be in its answer for people, in a pipe
    bool is_document = false;  // for a file or a program, with lines as long as they are
};

// Columns of the widest line that a terminal has shown. Not folded are an error, and a command that is to be copied.
std::size_t widest_line(const std::string& shown) {
    static const std::regex kControl("\x1b\\[[0-9;]*[A-Za-z]");
    const std::string text = std::regex_replace(shown.substr(0, shown.find("error: ")), kControl, "");
    std::size_t widest = 0;
    for (const std::string_view line : split(text, '\n')) {
        const std::string_view said = trim(line);
        if (said.starts_with("→ atoll ") || said.starts_with("atoll ")) continue;
        for (const std::string_view part : split(line, '\r'))
            widest = std::max(widest, static_cast<std::size_t>(std::count_if(part.begin(), part.end(), [](char c) {
                                  return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
                              })));
    }
    return widest;
}

// Leaves of the command tree, by --help.
void walk_commands(const std::string& command, std::set<std::string>& leaves) {
    Words argv = {ATOLL_PROGRAM};
    std::istringstream words(command);
    for (std::string word; words >> word;) argv.push_back(word);
    argv.emplace_back("--help");
    const Answer help = type(argv, Output::kPipe);
    ASSERT_EQ(help.exit_code, 0) << command << help.err;
    const auto at = help.out.find("Subcommands:\n");
    if (at == std::string::npos) {
        leaves.insert(command);
        return;
    }
    std::istringstream lines(help.out.substr(at));
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line) && line.starts_with("  "))
        if (line[2] != ' ')
            walk_commands(command + (command.empty() ? "" : " ") + line.substr(2, line.find(' ', 2) - 2), leaves);
}

// Commands that change something, in an order in which they can, and how they may end.
struct Changing {
    std::string command;
    Words arguments = {};
    std::set<int> codes = {0};
};

class ReadingTest : public testing::Test {
  protected:
    static void SetUpTestSuite() {
        records_ = std::make_unique<ReadableRecords>(shared_stack());
        const Status made = records_->make();
        ASSERT_TRUE(made.ok()) << describe(made.error());
    }
    static void TearDownTestSuite() { records_.reset(); }

    static std::vector<Typed> typed();
    static Words paths_of(const std::string& service, const std::string& path);
    static void look(const std::string& service);
    static std::string fault_of(const Typed& typed, int way, const std::filesystem::path& out);
    static std::vector<Changing> changing(const std::filesystem::path& out);

    static std::unique_ptr<ReadableRecords> records_;
};

std::unique_ptr<ReadableRecords> ReadingTest::records_;

void add_facilities(const ReadableRecords& all, std::vector<Typed>& rows) {
    for (const std::string& name : all.facilities) {
        rows.push_back({.command = "facility show", .arguments = {name}, .named = {name}, .is_document = true});
        rows.push_back({"facility check",
                        {name},
                        {name == "here" || name == "full" || name == "unowned" ? "work_dir" : "connection"},
                        {0, 1},
                        Typed::Json::kOne,
                        false,
                        {"3 of 20 documents have no end token"}});
    }
    rows.push_back({.command = "facility show",
                    .arguments = {"cluster"},
                    .said = {"replaced in the template by what a job says: #SBATCH --nodes=2"},
                    .is_document = true});
}

// What must be in a round's text.
Words said_of_round(const std::string& job) {
    if (job == "paused") return {"its aggregation waits since", "Kafka does not take the events of this job"};
    if (job == "completed")
        return {"attempt 1 ended: its node failed (NODE_FAIL)",
                "12.5 %",
                "3.25",
                "-0.75",
                "5.75",
                "37.5 %",
                " evaluations failed: no tokenizer"};
    return {};
}

std::vector<Typed> ReadingTest::typed() {
    const ReadableRecords& all = *records_;
    std::vector<Typed> rows = {
        {.command = "facility list", .arguments = {}, .named = all.facilities, .said = {"Connection refused"}},
        {"dataset list", {}, all.datasets},
        {.command = "dataset show",
         .arguments = {"diaries-it", "--croissant"},
         .named = {"diaries-it"},
         .is_document = true},
        {"dataset preparations", {}, all.preparations},
        {"dataset preparations", {"nothing-yet"}, {}},
        {"model list", {}, all.models},
        {"model show", {"diaries"}, {}},
        {"model verify", {"llama@is-base"}, {"ok"}},
        {"model damaged", {}, {all.blobs.front().substr(0, 16)}},
        {.command = "round verify", .arguments = {"completed", "1"}, .codes = {2}, .json = Typed::Json::kRefused},
        {.command = "job init", .named = {"participants"}, .is_document = true},
        {"events list", {}, all.dead_letters},
        {"strategy list",
         {},
         {"fedavg", "trimmed_mean", "median", "product", "max_share", "row_weights", "control_variate"}},
        {"token list", {}, all.token_ids},
        {"token show", {}, {"admin"}},
        {.command = "doctor", .codes = {0, 1}, .said = {"wrong"}},
        {"status", {}, {"dispatch", "gateway"}}};
    Typed versions = {"model show", {"llama"}, {}};
    for (const std::string& digest : all.digests) versions.named.push_back(digest.substr(0, 16));
    rows.push_back(versions);
    for (const std::string& version : all.version_names) {
        rows.push_back({"model show", {"llama@" + version}, {"llama"}});
        rows.push_back({"model pull", {"llama@" + version, "--out", version}, {}});
    }
    for (const std::string& name : all.datasets) rows.push_back({"dataset show", {name}, {name}});
    add_facilities(all, rows);
    rows.push_back({.command = "dataset show",
                    .arguments = {"diaries-it"},
                    .said = {"removed-site (no such facility)", "version 2: 3 of 20 documents have no end token",
                             "2        llama@" + all.digests.front().substr(0, 8)}});
    Typed jobs = {.command = "job list", .said = {"away: ssh: connect to host"}};
    for (const auto& [name, id] : all.jobs) {
        jobs.named.push_back(name);
        jobs.named.push_back(id);
        const bool goes_on = name == "running" || name == "paused";
        rows.push_back({"job list", {"--only", name}, {id}});
        rows.push_back({.command = "job show", .arguments = {name}, .named = {name, id}, .is_document = true});
        rows.push_back({"job watch",
                        {id},
                        {},
                        {goes_on               ? 130
                         : name == "completed" ? 0
                                               : 1},
                        Typed::Json::kLines,
                        goes_on,
                        name == "paused"
                            ? Words{"aggregation  waits since", "Kafka does not take the events of this job"}
                            : Words()});
        for (const Words& form : {Words{name}, {name, "--openmetrics"}, {name, "--csv"}})
            rows.push_back({.command = "job metrics",
                            .arguments = form,
                            .json = form.size() > 1 ? Typed::Json::kRefused : Typed::Json::kOne,
                            .is_document = form.size() > 1});
        rows.push_back({.command = "job logs", .arguments = {name}, .is_document = true});
        rows.push_back(
            {.command = "job script", .arguments = {name, "--facility", "here"}, .named = {"#!"}, .is_document = true});
        rows.push_back(
            {.command = "round show", .arguments = {name}, .named = all.facilities, .said = said_of_round(name)});
        rows.push_back({"round show", {name, "1"}, all.facilities});
    }
    rows.push_back(jobs);
    return rows;
}

// Empty: as it should be. The ways: 0 a terminal, 1 a pipe, 2 JSON.
std::string ReadingTest::fault_of(const Typed& typed, int way, const std::filesystem::path& out) {
    Words argv = {ATOLL_PROGRAM};
    std::istringstream words(typed.command);
    for (std::string word; words >> word;) argv.push_back(word);
    for (const std::string& argument : typed.arguments) argv.push_back(argument);
    if (typed.command == "model pull") argv.back() = out / std::to_string(way) / argv.back();
    argv.insert(argv.end(), {"--state", shared_stack().state()});
    if (way == 2) argv.emplace_back("--json");
    const Output to = way == 0 ? Output::kTerminal : Output::kPipe;
    const Answer answer =
        typed.goes_on ? type_and_interrupt(argv, to, way == 1 ? typed.said : Words()) : type(argv, to);
    const std::string shown = answer.out + answer.err;
    std::string fault;
    if (answer.is_late) fault += "does not end; ";
    const bool is_refused = way == 2 && typed.json == Typed::Json::kRefused;
    if (is_refused ? answer.exit_code != 2 : !typed.codes.contains(answer.exit_code))
        fault += "exit status " + std::to_string(answer.exit_code) + "; ";
    for (const std::string& name : typed.named)
        if (answer.out.find(name) == std::string::npos) fault += "lacks " + name + "; ";
    for (const std::string& said : typed.said)
        if (way == 1 && answer.out.find(said) == std::string::npos) fault += "does not say " + said + "; ";
    for (const char* broken : {"Sanitizer", "json.exception", "terminate called"})
        if (shown.find(broken) != std::string::npos) fault += std::string(broken) + "; ";
    // Of what others wrote: a control of the window, a bell, an eight-bit control, text from right to left.
    for (const char* steering : {"\x1b]", "\a", "\xc2\x9b", "\xe2\x80\xae"})
        if (shown.find(steering) != std::string::npos) fault += "steers the terminal; ";
    if (const std::size_t widest = widest_line(answer.out); way == 0 && !typed.is_document && widest > 80)
        fault += "a line of " + std::to_string(widest) + " columns; ";
    if (way == 1 && answer.out.find('\x1b') != std::string::npos) fault += "control sequences in a pipe; ";
    const auto is_json = [](const std::string& text) { return Json::accept(text); };
    std::istringstream lines(answer.out);
    for (std::string line; way == 2 && typed.json == Typed::Json::kLines && std::getline(lines, line);)
        if (!is_json(line)) fault += "not JSON: " + line + "; ";
    if (way == 2 && typed.json == Typed::Json::kOne && !is_json(answer.out)) fault += "not JSON; ";
    if (fault.empty()) return {};
    return join(argv, " ") + (way == 0 ? " (on a terminal): " : ": ") + fault + "\n" + shorten(shown, 4000) + "\n";
}

TEST_F(ReadingTest, EveryCommandThatReadsShowsEveryRecord) {
    const TemporaryDirectory out;
    for (const char* way : {"0", "1", "2"}) std::filesystem::create_directories(out.path() / way);
    const std::vector<Typed> rows = typed();
    std::mutex mutex;
    std::string faults;
    const Status done = for_each_parallel(3 * rows.size(), kAtOnce, [&](std::size_t i, int) -> Status {
        const std::string fault = fault_of(rows[i / 3], static_cast<int>(i % 3), out.path());
        const std::lock_guard lock(mutex);
        faults += fault;
        return {};
    });
    EXPECT_TRUE(done.ok());
    EXPECT_EQ(faults, "");
}

TEST_F(ReadingTest, EveryCommandHasItsPlaceInTheTable) {
    std::set<std::string> known = kNotReading;
    for (const Typed& row : typed()) known.insert(row.command);
    std::set<std::string> commands;
    walk_commands("", commands);
    EXPECT_EQ(commands, known) << "a command that reads stands in typed(), another in kNotReading";
}

// What stands for the parameters of a described path.
Words ReadingTest::paths_of(const std::string& service, const std::string& path) {
    const ReadableRecords& all = *records_;
    Words jobs;
    for (const auto& [name, id] : all.jobs) jobs.push_back(id);
    Words paths;
    if (path == "/v1/jobs/{id}/tasks/{task}/script") {
        for (const auto& [job, tasks] : all.tasks)
            for (const std::string& task : tasks) paths.push_back("/v1/jobs/" + job + "/tasks/" + task + "/script");
        return paths;
    }
    Words rounds;
    for (const auto& [job, round] : all.aggregations) rounds.push_back(round);
    const bool is_of_model = path.starts_with("/v1/models/");
    const std::map<std::string, Words> values = {
        {"name", service == "registry" ? Words{"diaries-it"} : all.facilities},
        {"version", {"1", "2"}},
        {"sha256", all.blobs},
        {"model", is_of_model && path.ends_with("{reference}") ? Words{"llama"} : all.models},
        {"reference", all.version_names},
        {"digest", all.digests},
        {"task", {all.upload_task}},
        {"attempt", {"1"}},
        {"id", path.starts_with("/v1/jobs/")           ? jobs
               : path.starts_with("/v1/preparations/") ? all.preparations
                                                       : Words{"0123456789abcdef"}},
        {"job", {"made"}},
        {"round", service == "aggregation" ? rounds : Words{"1"}}};
    paths = {""};
    for (std::size_t at = 0; at < path.size();) {
        const auto open = std::min(path.find('{', at), path.size());
        const auto close = std::min(path.find('}', open), path.size());
        const std::string parameter = open == path.size() ? "" : path.substr(open + 1, close - open - 1);
        Words longer;
        for (const std::string& begun : paths) {
            const std::string fixed = begun + path.substr(at, open - at);
            if (parameter.empty()) longer.push_back(fixed);
            const auto known = values.find(parameter);
            if (known == values.end()) continue;
            for (const std::string& value : known->second) longer.push_back(fixed + value);
        }
        paths = longer;
        at = close == path.size() ? close : close + 1;
    }
    if (path.ends_with("/logs"))
        for (std::size_t i = 0, count = paths.size(); i < count; ++i) paths.push_back(paths[i] + "?format=json");
    return paths;
}

void ReadingTest::look(const std::string& service) {
    const RunningStack& stack = shared_stack();
    const std::string document = stack.call(service, Method::kGet, "/openapi.json", "").body;
    service::ResponseCheck answers(document);
    SeenWords words(Json::parse(document));
    Words everybody;
    for (const auth::Role role :
         {auth::Role::kAdmin, auth::Role::kOperator, auth::Role::kViewer, auth::Role::kFacility})
        everybody.push_back(stack.token(role));
    for (const Operation& operation : stack.operations(service)) {
        if (operation.method != Method::kGet || operation.is_public) continue;
        const Words paths = paths_of(service, operation.path);
        EXPECT_FALSE(paths.empty()) << service << " " << operation.path
                                    << ": a parameter that paths_of() does not know";
        for (const std::string& path : paths)
            for (const std::string& token : operation.path == "/v1/token" ? everybody : Words{everybody.front()}) {
                const auto answer = stack.call(service, operation.method, path, token);
                for (const std::string& fault : answers.faults(operation.method, path, answer))
                    ADD_FAILURE() << service << ": " << fault;
                const bool may_refuse = kMayRefuse.contains(service + " " + operation.path);
                EXPECT_TRUE(answer.status == 200 || may_refuse) << path << ": " << answer.body;
                EXPECT_NE(answer.status, 500) << path << ": " << answer.body;
                const Json body = Json::parse(answer.body, nullptr, /*allow_exceptions=*/false);
                if (answer.status == 200 && !body.is_discarded()) words.look(operation.path, body);
            }
    }
    for (const std::string& word : words.unseen())
        EXPECT_TRUE(kUnseenWords.contains(service + " " + word)) << service << " " << word << ": no record has it";
}

TEST_F(ReadingTest, EveryGetShowsEveryRecordInEveryState) {
    for (const char* service : {"registry", "store", "dispatch", "aggregation"}) look(service);
}

std::vector<Changing> ReadingTest::changing(const std::filesystem::path& out) {
    const std::string model = out / "model",
                      store = "http://127.0.0.1:" + std::to_string(shared_stack().port()) + "/store";
    const Words gateway = {"--registry",    "a:1", "--store", "a:1", "--dispatch",  "a:1",
                           "--aggregation", "a:1", "--blobs", out,   "--directory", out};
    return {{"facility add", {"extra", "--local", "--work-dir", out / "extra"}},
            {"facility set", {"extra", "--slots", "3"}},
            {"facility trust", {"extra"}, {1}},
            {"facility login", {"extra"}, {1, 2}},
            {"facility put-image", {"extra", out / "job.json"}, {2}},
            {"facility rm", {"extra"}},
            {"dataset register", {"more", "--language", "it", "--license", "CC0-1.0", "--template", "{{text}}"}},
            {"dataset prepare",
             {"more", "--facility", "here", "--input", "x.jsonl", "--tokenizer", "llama@is-base", "--seq-len", "16",
              "--no-wait"}},
            {"dataset adopt", {"more", "--facility", "here", "--path", "prepared/more", "--data", out / "prepared"}},
            {"dataset rm", {"nothing-yet"}},
            {"model push", {"small", model, "--tag", "first"}},
            {"model import", {"imported", model}, {0, 2}},
            {"model tag", {"small@first", "second"}},
            {"model untag", {"small@second"}},
            {"model rm", {"small"}, {0, 1}},
            {"model prune", {"--dry-run"}},
            {"job submit", {out / "job.json"}},
            {"job pause", {"more"}},
            {"job resume", {"more"}},
            {"job readmit", {"more", "here"}},
            {"job cancel", {"more"}},
            {"job rm", {"more"}, {0, 1}},
            {"job prune", {"--dry-run"}},
            {"events replay", {"--all"}, {0, 1, 2}},
            {"token issue", {"eve"}},
            {"token revoke", {"0123456789abcdef0123456789"}},
            {"token rotate-key", {"--drop-old"}},
            {"credentials", {"--out", out / "credentials"}},
            {"aggregate", {"--out", out / "mean", model, model}},
            {"stage", {"--store", store, "--version", records_->digests.front(), "--out", out / "staged"}},
            {"seal", {"--dir", model, "--seal", out / "seal.json"}},
            {"push", {"--store", store, "--model", "small", "--dir", model}, {0, 1}},
            {"ping", {"--store", store}},
            {"gateway", gateway, {2}},
            {"up", {}},
            {"down", {"--state", out / "nothing"}}};
}

TEST_F(ReadingTest, WhoRegistersADatasetIsToldWhichFieldsItsRowsNeed) {
    const auto registered = [](const std::string& name, const std::string& text_template, const Words& more) {
        Words argv = {ATOLL_PROGRAM, "dataset",    "register", name,      "--language",
                      "it",          "--license",  "CC0-1.0",  "--state", shared_stack().state(),
                      "--template",  text_template};
        argv.insert(argv.end(), more.begin(), more.end());
        return type(argv, Output::kPipe).out;
    };
    const std::string said = registered("of-two-fields", "{{titolo}}: {{testo}}", {});
    EXPECT_NE(said.find("each row of its files at a site must have: titolo, testo\n"), std::string::npos) << said;
    const std::string chat = registered("of-messages", "chat:auto", {});
    EXPECT_NE(chat.find("must be a conversation: messages, conversations, or prompt and completion\n"),
              std::string::npos)
        << chat;
    EXPECT_EQ(Json::parse(registered("as-json", "{{testo}}", {"--json"})).at("fields"), Json::array({"testo"}));
}

// The reading ones are asked above.
TEST_F(ReadingTest, EveryCommandThatChangesSomethingAnswersInJsonOrRefusesTheFlag) {
    const TemporaryDirectory out;
    const std::string state = shared_stack().state();
    ASSERT_EQ(type({ATOLL_PROGRAM, "model", "pull", "llama@is-base", "--out", out.path() / "model", "--state", state},
                   Output::kPipe)
                  .exit_code,
              0);
    const Json job = {{"name", "more"},
                      {"model", {{"name", "llama"}, {"version", "is-base"}}},
                      {"rounds", 1},
                      {"participants", {{{"facility", "here"}, {"dataset", "diaries-it"}, {"dataset_version", 1}}}},
                      {"training", {{"steps", 4}, {"batch_size", 4}}}};
    ASSERT_TRUE(write_file_atomic(out.path() / "job.json", job.dump()).ok());
    for (const char* split : {"train", "validation"}) {
        const Json data = {{"tokenizer_sha256", std::string(64, '1')},
                           {"fingerprint", std::string(64, split == std::string("train") ? '2' : '3')},
                           {"seq_len", 16},
                           {"batching", "packing"},
                           {"documents", 4},
                           {"rows", 2},
                           {"tokens", 20}};
        std::filesystem::create_directories(out.path() / "prepared" / split);
        ASSERT_TRUE(write_file_atomic(out.path() / "prepared" / split / "data.json", data.dump()).ok());
    }
    std::set<std::string> asked;
    for (const Changing& row : changing(out.path())) {
        asked.insert(row.command);
        Words argv = {ATOLL_PROGRAM, "--json"};
        for (const std::string_view word : split(row.command, ' ')) argv.emplace_back(word);
        argv.insert(argv.end(), row.arguments.begin(), row.arguments.end());
        if (std::find(argv.begin(), argv.end(), "--state") == argv.end()) argv.insert(argv.end(), {"--state", state});
        const Answer answer = type(argv, Output::kPipe);
        EXPECT_TRUE(row.codes.contains(answer.exit_code)) << row.command << ": " << answer.exit_code << answer.err;
        const std::string& json = answer.exit_code == 0 ? answer.out : answer.err;
        EXPECT_TRUE(Json::accept(json)) << row.command << ": " << answer.out << answer.err;
        EXPECT_EQ(row.command == "gateway", answer.err.find("`atoll gateway` becomes nginx") != std::string::npos)
            << answer.err;
    }
    EXPECT_EQ(asked, kNotReading);
}

}  // namespace
}  // namespace atl::contract
