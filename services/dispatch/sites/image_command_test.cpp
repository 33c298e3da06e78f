#include "services/dispatch/sites/image_command.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <thread>

#include "services/dispatch/sites/script_site.h"
#include "shared/base/file.h"
#include "shared/base/subprocess.h"

namespace atl::dispatch {
namespace {

// Shows what a container would be started with.
constexpr const char* kRuntime = R"sh(#!/bin/sh
for word; do echo "$word"; done
env | grep '^[A-Z]*ENV_' | sort
)sh";

class ImageCommandTest : public testing::Test {
  protected:
    ImageCommandTest() {
        facility_.work_dir = path("work");
        facility_.image = ImageSpec{path("trainer.sif"), "", "", "none", {}, {}};
        std::filesystem::create_directories(path("work/tasks"));
        EXPECT_TRUE(write_file_atomic(path("trainer.sif"), "an image").ok());
        add_runtime("apptainer");
    }
    std::string path(const std::string& name) const { return directory_.path() / name; }
    void add_runtime(const std::string& name) const {
        std::filesystem::create_directories(path("bin"));
        EXPECT_TRUE(write_file_atomic(path("bin/" + name), kRuntime, 0755).ok());
    }
    CommandResult run(const std::string& text, const std::vector<std::string>& words,
                      const std::vector<std::string>& variables = {}) const {
        std::vector<std::string> argv = {"env", "-i", "PATH=" + path("bin") + ":/usr/bin:/bin"};
        argv.insert(argv.end(), variables.begin(), variables.end());
        argv.insert(argv.end(), {"sh", "-c", "cd \"$0\" && exec sh -c \"$@\"", path("work/tasks"), text, "sh"});
        argv.insert(argv.end(), words.begin(), words.end());
        return run_command(argv).value();
    }

    TemporaryDirectory directory_;
    Facility facility_;
};

TEST_F(ImageCommandTest, AContainerHasTheWorkDirectoryAndTheHostsSharedMemory) {
    facility_.image->gpu = "nv";
    facility_.image->binds = {"/project:/in:ro"};
    facility_.image->options = {"--unsquash"};
    const auto shown = run(render_image_runner(facility_), {"atoll-trainer", "train", "a b"});
    EXPECT_EQ(shown.out, "--quiet\nexec\n--no-home\n--cleanenv\n--bind\n" + path("work") + "\n--pwd\n" +
                             path("work/tasks") + "\n--bind\n/dev/shm\n--nv\n--bind\n/project:/in:ro\n--unsquash\n" +
                             path("trainer.sif") + "\natoll-trainer\ntrain\na b\n")
        << shown.err;
    facility_.image->gpu = "rocm";
    const std::string amd = run(render_image_runner(facility_), {"x"}).out;
    EXPECT_NE(amd.find("\n--rocm\n"), std::string::npos) << amd;
    facility_.image->gpu = "none";
    const std::string none = run(render_image_runner(facility_), {"x"}).out;
    EXPECT_EQ(none.find("--rocm"), std::string::npos) << none;
    EXPECT_EQ(none.find("--nv"), std::string::npos) << none;
}

// Each rank finds the GPU of its local rank by them.
TEST_F(ImageCommandTest, WhatTheBatchSystemSaysOfGpusGetsIntoTheContainer) {
    const auto shown = run(render_image_runner(facility_), {"report"},
                           {"CUDA_VISIBLE_DEVICES=2,3", "ROCR_VISIBLE_DEVICES=1", "HIP_VISIBLE_DEVICES=0",
                            "SLURM_LOCALID=1", "OMPI_COMM_WORLD_LOCAL_RANK=1"});
    for (const char* variable : {"CUDA_VISIBLE_DEVICES=2,3", "ROCR_VISIBLE_DEVICES=1", "HIP_VISIBLE_DEVICES=0",
                                 "SLURM_LOCALID=1", "OMPI_COMM_WORLD_LOCAL_RANK=1"})
        EXPECT_NE(shown.out.find("\nAPPTAINERENV_" + std::string(variable) + "\n"), std::string::npos) << shown.out;
}

TEST_F(ImageCommandTest, LaunchersAndTheRecordSayWhatVariablesACommandHas) {
    facility_.environment = {{"MY_DATA", "/x"}, {"PATH", "/other"}};
    std::filesystem::create_directories(path("pmix"));
    const auto shown = run(render_image_runner(facility_), {"report"},
                           {"PMIX_RANK=1", "OMPI_MCA_btl=self", "SLURM_PROCID=1", "MY_DATA=it's $HOME\ntwo lines",
                            "HOME=/root", "OPAL_PREFIX=/opt/openmpi", "LD_PRELOAD_NOT=x", "https_proxy=p",
                            "PMIX_SERVER_TMPDIR=" + path("pmix"), "TMPDIR=/tmp"});
    const std::size_t at = shown.out.find("APPTAINERENV_");
    ASSERT_NE(at, std::string::npos) << shown.out << shown.err;
    EXPECT_EQ(shown.out.substr(at),
              "APPTAINERENV_MY_DATA=it's $HOME\nAPPTAINERENV_OMPI_MCA_btl=self\nAPPTAINERENV_PMIX_RANK=1\n"
              "APPTAINERENV_PMIX_SERVER_TMPDIR=" +
                  path("pmix") +
                  "\nAPPTAINERENV_SLURM_PROCID=1\nAPPTAINERENV_TMPDIR=/tmp\nAPPTAINERENV_https_proxy=p\n");
    EXPECT_NE(shown.out.find("--bind\n" + path("pmix") + "\n"), std::string::npos) << shown.out;
}

TEST_F(ImageCommandTest, TheRuntimeIsTheRecordsOrWhicheverIsInPath) {
    const std::string any = render_image_runner(facility_);
    add_runtime("singularity");
    EXPECT_NE(run(any, {"x"}, {"PMIX_RANK=1"}).out.find("SINGULARITYENV_PMIX_RANK"), std::string::npos);
    facility_.image->runtime = "apptainer";
    EXPECT_NE(run(render_image_runner(facility_), {"x"}, {"PMIX_RANK=1"}).out.find("\nAPPTAINERENV_PMIX_RANK"),
              std::string::npos);
    std::filesystem::remove(path("bin/singularity"));
    std::filesystem::create_symlink("apptainer", path("bin/singularity"));  // as Apptainer's packages have it
    EXPECT_NE(run(any, {"x"}, {"PMIX_RANK=1"}).out.find("\nAPPTAINERENV_PMIX_RANK"), std::string::npos);
    facility_.image->runtime = "singularity-of-tomorrow";
    const auto none = run(render_image_runner(facility_), {"x"});
    EXPECT_EQ(none.exit_code, 75);
    EXPECT_NE(none.err.find("there is no singularity-of-tomorrow in PATH"), std::string::npos) << none.err;
}

TEST_F(ImageCommandTest, AnImageThatIsNotThereIsNamed) {
    std::filesystem::remove(path("trainer.sif"));
    const auto none = run(render_image_runner(facility_), {"x"});
    EXPECT_EQ(none.exit_code, 75);
    EXPECT_NE(none.err.find("there is no image " + path("trainer.sif")), std::string::npos) << none.err;
}

TEST_F(ImageCommandTest, ScriptsOnTheLoginNodeFindTheImagesProgramsInPath) {
    std::filesystem::remove_all(path("work"));
    std::filesystem::create_directories(path("work/tasks"));
    const auto shown =
        run(render_image_programs(facility_) + "cat; \"$1\" stage x; setsid -w atoll-trainer report", {"atoll"});
    EXPECT_NE(shown.out.find(path("trainer.sif") + "\natoll\nstage\nx\n"), std::string::npos) << shown.out << shown.err;
    EXPECT_NE(shown.out.find(path("trainer.sif") + "\natoll-trainer\nreport\n"), std::string::npos) << shown.out;
    facility_.image.reset();
    EXPECT_EQ(render_image_programs(facility_) + render_image_runner(facility_), "");
}

// At this machine, with an image of a SIF file's first bytes.
class ImageSiteTest : public ImageCommandTest {
  protected:
    ImageSiteTest() {
        facility_.name = "leonardo";
        facility_.batch.kind = BatchKind::kLocal;
        facility_.environment = {{"PATH", path("bin") + ":/usr/bin:/bin"}};
        put_image("02");
    }
    // Of the architecture that is coded so, and with what follows.
    void put_image(const std::string& code, const std::string& rest = "") const {
        const std::string launch = "#!/usr/bin/env run-singularity\n";
        std::string header = launch + std::string(1, '\0') + "SIF_MAGIC" + '\0' + "01" + '\0' + code + '\0';
        EXPECT_TRUE(write_file_atomic(path("trainer.sif"), header + rest).ok());
    }
    std::string digest() const { return run_command({"sha256sum", path("trainer.sif")})->out.substr(0, 64); }
    ScriptSite site() const { return ScriptSite(facility_, make_local_transport(), ""); }
    // As of a file that nobody has written for so long.
    void age(std::chrono::seconds quiet) const {
        const std::filesystem::path image = path("trainer.sif");
        std::filesystem::last_write_time(image, std::filesystem::file_time_type::clock::now() - quiet);
    }
    // What a batch job of the facility, which would make the file "trained", comes to.
    std::int64_t run_job(std::int64_t attempt) const {
        const BatchJob job{.ref = {"atoll-t-" + std::to_string(attempt), site().task_directory("t", attempt)},
                           .commands = {{"touch", "trained"}},
                           .image_check = render_image_check(facility_)};
        const auto id = site().submit(job);
        EXPECT_TRUE(id.ok()) << describe(id.error());
        if (!id.ok()) return -1;
        for (;; std::this_thread::sleep_for(std::chrono::milliseconds(20))) {
            const auto looks = site().look({{job.ref.directory, 0}});
            EXPECT_TRUE(looks.ok());
            if (!looks.ok() || looks->at(0).exit_code) return looks.ok() ? *looks->at(0).exit_code : -1;
        }
    }
    std::string said(std::int64_t attempt) const {
        return read_file(site().task_directory("t", attempt) + "/stderr.log").value();
    }
    // `name` of the site's PATH only notes that it was called.
    void watch_program(const std::string& name) const {
        const std::string text =
            "#!/bin/sh\necho \"$PPID\" >>" + path("calls-of-" + name) + "\nexec /usr/bin/" + name + "\n";
        EXPECT_TRUE(write_file_atomic(path("bin/" + name), text, 0755).ok());
    }
    int calls(const std::string& name) const {
        const auto text = read_file(path("calls-of-" + name));
        return text.ok() ? static_cast<int>(std::count(text->begin(), text->end(), '\n')) : 0;
    }
    CheckRow image_row() const {
        for (const CheckRow& row : site().check({"url"}).rows)
            if (row.name == "image") return row;
        return CheckRow();
    }
    Result<std::string> submit(std::int64_t attempt) const {
        return site().submit({.ref = {"atoll-t-" + std::to_string(attempt), site().task_directory("t", attempt)},
                              .commands = {{"true"}}});
    }
};

TEST_F(ImageSiteTest, AnImageIsReadByABatchJobOnceAndNeverByAStepOnTheLoginNode) {
    watch_program("sha256sum");
    facility_.image->sha256 = digest();
    age(std::chrono::hours(1));
    EXPECT_NE(image_row().state, CheckState::kFail);
    ASSERT_TRUE(site().submit({.ref = {"atoll-n-1", site().task_directory("n", 1)}, .commands = {{"true"}}}).ok());
    EXPECT_EQ(calls("sha256sum"), 0);
    EXPECT_EQ(run_job(1), 0) << said(1);
    EXPECT_EQ(run_job(2), 0) << said(2);
    EXPECT_EQ(calls("sha256sum"), 1);
    EXPECT_TRUE(std::filesystem::exists(site().task_directory("t", 2) + "/trained"));
    EXPECT_NE(image_row().seen.find(facility_.image->sha256.substr(0, 12)), std::string::npos) << image_row().seen;
}

TEST_F(ImageSiteTest, AnImageThatIsNotTheRecordsTrainsNothingAndIsRefusedForGood) {
    const std::string wanted(64, '0');
    facility_.image->sha256 = wanted;
    age(std::chrono::hours(1));
    EXPECT_EQ(run_job(1), 75) << "no failure of a training";
    EXPECT_EQ(said(1), path("trainer.sif") + " has the sha256 " + digest() + ", but the facility's record says " +
                           wanted + "\n");
    EXPECT_FALSE(std::filesystem::exists(site().task_directory("t", 1) + "/trained"));
    const auto refused = submit(2);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(refused.error().message.find(wanted), std::string::npos) << refused.error().message;
    EXPECT_NE(refused.error().message.find(digest()), std::string::npos) << refused.error().message;
    EXPECT_FALSE(std::filesystem::exists(site().task_directory("t", 2) + "/jobid"));
    EXPECT_EQ(image_row().state, CheckState::kFail);
    facility_.image->sha256 = digest();
    EXPECT_EQ(run_job(3), 0) << said(3);
}

TEST_F(ImageSiteTest, HowOldAnImageIsItsFileSystemSaysAndNoClockOfAMachine) {
    facility_.image->sha256 = std::string(64, '0');
    const std::string ahead =
        "#!/bin/sh\n[ \"$*\" = +%s ] || exec /bin/date \"$@\"\necho $(($(/bin/date +%s) + 7200))\n";
    ASSERT_TRUE(write_file_atomic(path("bin/date"), ahead, 0755).ok());
    const auto copied = submit(1);
    ASSERT_FALSE(copied.ok()) << "it has just been written";
    EXPECT_NE(copied.error().message.find("still being copied?"), std::string::npos) << copied.error().message;
    std::filesystem::remove(path("bin/date"));
}

TEST_F(ImageSiteTest, AnImageThatIsStillBeingCopiedIsWaitedFor) {
    const std::string half = digest();
    facility_.image->sha256 = std::string(64, '0');
    const auto unread = submit(1);
    ASSERT_FALSE(unread.ok()) << "it has just been written";
    EXPECT_EQ(unread.error().code, ErrorCode::kUnavailable);
    EXPECT_NE(unread.error().message.find("still being copied?"), std::string::npos) << unread.error().message;
    age(std::chrono::minutes(2));  // the copy has stopped for a while
    EXPECT_EQ(run_job(1), 75);
    const auto other = submit(2);
    ASSERT_FALSE(other.ok());
    EXPECT_EQ(other.error().code, ErrorCode::kUnavailable) << other.error().message;
    EXPECT_NE(other.error().message.find(half), std::string::npos) << other.error().message;
    put_image("02", "the rest");
    facility_.image->sha256 = digest();
    age(std::chrono::minutes(2));
    EXPECT_EQ(run_job(2), 0) << said(2);
    ASSERT_TRUE(write_file_atomic(path("trainer.sif"), "").ok());
    EXPECT_EQ(submit(3).error().code, ErrorCode::kUnavailable) << "its first byte has not come";
    age(std::chrono::hours(1));
    EXPECT_EQ(submit(3).error().code, ErrorCode::kInvalidArgument);
}

// An image on its way to the site: the facility's record has its digest.
class PutImageTest : public ImageSiteTest {
  protected:
    PutImageTest() {
        bytes_ = read_file(path("trainer.sif")).value();
        for (std::uint64_t i = 0; bytes_.size() < 300'000; ++i) bytes_ += static_cast<char>('a' + i * i % 26);
        EXPECT_TRUE(write_file_atomic(path("here.sif"), bytes_).ok());
        facility_.image->path = path("place/atoll.sif");
        facility_.image->sha256 = run_command({"sha256sum", path("here.sif")})->out.substr(0, 64);
    }
    std::string putting() const {
        return path("place/.atoll.sif." + facility_.image->sha256.substr(0, 16) + ".partial");
    }
    std::string partial() const { return putting() + "/image"; }
    Site::Move put(std::int64_t offset, std::size_t count) const {
        const auto total = static_cast<std::int64_t>(bytes_.size());
        return site().put_image({total, offset, bytes_.substr(static_cast<std::size_t>(offset), count)});
    }
    // As `atoll facility put-image` from where it is; `parts`: at most so many.
    Site::Move send(int parts = 1000) const {
        auto move = put(0, 0);
        for (; move.ok() && *move && parts > 0; --parts) move = put((*move)->bytes_done, 70'000);
        return move;
    }
    void expect_in_place(const Site::Move& move) const {
        ASSERT_TRUE(move.ok()) << describe(move.error());
        EXPECT_FALSE(*move) << (*move)->bytes_done;
        EXPECT_EQ(read_file(facility_.image->path).value(), bytes_);
        EXPECT_FALSE(std::filesystem::exists(putting()));
    }

    std::string bytes_;
};

TEST_F(PutImageTest, AnImageGoesOnAtTheByteWhereItWasAndHasItsNameWhenItIsWhole) {
    ASSERT_TRUE(send(2).ok());
    EXPECT_FALSE(std::filesystem::exists(facility_.image->path)) << "no half of a file has its name";
    std::filesystem::resize_file(partial(), 100'001);  // the connection broke within a part
    EXPECT_EQ((*put(0, 0))->bytes_done, 100'001);
    EXPECT_EQ((*put(250'000, 50'000))->bytes_done, 100'001) << "no hole is left";
    EXPECT_EQ((*put(60'000, 70'000))->bytes_done, 130'000);
    expect_in_place(send());
    watch_program("sha256sum");
    expect_in_place(send());
    EXPECT_EQ(run_job(1), 0) << said(1);
    EXPECT_EQ(calls("sha256sum"), 0) << "what was read when it came is not read again";
}

// In a directory where others may write, somebody has made what is to come a link to a file of ours.
TEST_F(PutImageTest, WhatSomebodyElseHasPutInItsWayIsNotFollowed) {
    const std::string precious = path("precious");
    ASSERT_TRUE(write_file_atomic(precious, "precious").ok());
    std::filesystem::create_directories(path("place"));
    std::filesystem::create_symlink(precious, putting());
    const auto refused = send();
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(describe(refused.error()).find("is a link"), std::string::npos) << describe(refused.error());
    std::filesystem::remove(putting());
    std::filesystem::create_directories(path("elsewhere"));
    std::filesystem::create_directory_symlink(path("elsewhere"), putting());
    EXPECT_FALSE(send().ok());
    EXPECT_TRUE(std::filesystem::is_empty(path("elsewhere")));
    EXPECT_EQ(read_file(precious).value(), "precious");
    std::filesystem::remove(putting());
    ASSERT_TRUE(send(1).ok());
    EXPECT_EQ(std::filesystem::status(putting()).permissions(), std::filesystem::perms::owner_all);
    expect_in_place(send());
}

TEST_F(PutImageTest, WhatComesWithAnotherDigestIsRemovedAndBegunAnew) {
    ASSERT_TRUE(send(2).ok());
    std::string spoilt = read_file(partial()).value();
    spoilt[1000] = '\0';
    ASSERT_TRUE(write_file_atomic(partial(), spoilt).ok());
    const auto wrong = send();
    ASSERT_FALSE(wrong.ok());
    EXPECT_EQ(wrong.error().code, ErrorCode::kInvalidArgument) << describe(wrong.error());
    EXPECT_NE(describe(wrong.error()).find("not " + facility_.image->sha256), std::string::npos);
    EXPECT_FALSE(std::filesystem::exists(facility_.image->path));
    EXPECT_EQ((*put(0, 0))->bytes_done, 0);
    expect_in_place(send());
}

TEST_F(PutImageTest, WhoeverIsKilledAroundTheRenamingLeavesTheImageOrWhatHasCome) {
    const std::string mv =
        "#!/bin/sh\n[ \"$1\" = -fT ] || exec /usr/bin/mv \"$@\"\n"
        "if mkdir " +
        path("before") +
        "; then kill -9 0; fi\n/usr/bin/mv \"$@\"\n"
        "if mkdir " +
        path("after") + "; then kill -9 0; fi\n";
    ASSERT_TRUE(write_file_atomic(path("bin/mv"), mv, 0755).ok());
    auto move = send();
    for (int asked = 0; asked < 100 && (!move.ok() || *move); ++asked) move = put(0, 0);
    EXPECT_TRUE(std::filesystem::exists(path("before")) && std::filesystem::exists(path("after")));
    expect_in_place(move);
}

TEST_F(PutImageTest, AFullDiskSaysSoAndLeavesWhatHasCome) {
    ASSERT_TRUE(send(2).ok());
    const std::string dd =
        "#!/bin/sh\ncase \"$*\" in *oflag*) echo \"dd: error writing 'x': No space left on device\" "
        ">&2; exit 1 ;; esac\nexec /usr/bin/dd \"$@\"\n";
    ASSERT_TRUE(write_file_atomic(path("bin/dd"), dd, 0755).ok());
    const auto full = send();
    ASSERT_FALSE(full.ok());
    EXPECT_EQ(full.error().code, ErrorCode::kInsufficientStorage);
    EXPECT_NE(full.error().message.find(facility_.image->path), std::string::npos) << full.error().message;
    std::filesystem::remove(path("bin/dd"));
    EXPECT_EQ((*put(0, 0))->bytes_done, 140'000);
    expect_in_place(send());
}

TEST_F(ImageSiteTest, AnImageWhoseFileSystemIsAwayIsWaitedFor) {
    facility_.image->sha256 = digest();
    std::filesystem::remove(path("trainer.sif"));
    EXPECT_EQ(submit(1).error().code, ErrorCode::kUnavailable);
}

TEST_F(ImageSiteTest, ADigestIsKeptUntilSizeOrTimeOfTheFileChange) {
    facility_.image->sha256 = digest();
    age(std::chrono::hours(1));
    EXPECT_NE(image_row().state, CheckState::kFail);
    EXPECT_NE(image_row().seen.find("sha256 not known yet"), std::string::npos) << image_row().seen;
    ASSERT_EQ(run_job(1), 0);
    EXPECT_NE(image_row().seen.find("sha256 " + digest().substr(0, 12)), std::string::npos) << image_row().seen;
    put_image("02", "more");
    age(std::chrono::hours(1));
    EXPECT_EQ(image_row().state, CheckState::kWarn) << image_row().seen;
}

// Exchanged for another of the same size and times.
TEST_F(ImageSiteTest, AnImageOfTheSameSizeAndTimeIsAnotherOne) {
    put_image("02", "good");
    facility_.image->sha256 = digest();
    age(std::chrono::hours(1));
    ASSERT_EQ(run_job(1), 0);
    const auto written = std::filesystem::last_write_time(path("trainer.sif"));
    put_image("02", "evil");
    std::filesystem::last_write_time(path("trainer.sif"), written);
    EXPECT_EQ(run_job(2), 75) << said(2);
    EXPECT_FALSE(std::filesystem::exists(site().task_directory("t", 2) + "/trained"));
}

TEST_F(ImageSiteTest, NothingOfAnImageRunsOnALoginNodeBeforeItIsKnownToBeTheRecords) {
    const std::string as_login = render_image_programs(facility_) + "atoll stage";
    EXPECT_EQ(run(as_login, {}).exit_code, 0) << "whatever lies there, as nothing is pinned";
    put_image("02", "good");
    facility_.image->sha256 = digest();
    age(std::chrono::hours(1));
    const auto try_it = [&] { return run(render_image_programs(facility_) + "atoll stage", {}); };
    const auto unknown = try_it();
    EXPECT_EQ(unknown.exit_code, 75);
    EXPECT_EQ(unknown.out, "");
    EXPECT_NE(unknown.err.find("is not known to have the sha256"), std::string::npos) << unknown.err;
    EXPECT_EQ(image_row().state, CheckState::kWarn) << "the check runs nothing of it either";
    ASSERT_EQ(run_job(1), 0);
    EXPECT_EQ(try_it().exit_code, 0);
    const auto written = std::filesystem::last_write_time(path("trainer.sif"));
    put_image("02", "evil");
    std::filesystem::last_write_time(path("trainer.sif"), written);
    EXPECT_EQ(try_it().exit_code, 75);
    EXPECT_EQ(try_it().out, "");
}

// What a staging comes to; the runtime notes each start.
TEST_F(ImageSiteTest, AStagingReadsTheImageFirstAndRunsOnlyTheRecords) {
    const std::string noting = "#!/bin/sh\necho x >>" + path("started") + "\nexit 1\n";
    ASSERT_TRUE(write_file_atomic(path("bin/apptainer"), noting, 0755).ok());
    const auto stage = [&] {
        const StageOrder order{{std::string(64, 'a')}, "job", "attempt", "http://127.0.0.1:1", "token"};
        auto move = site().stage(order);
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        while (move.ok() && move->moving && std::chrono::steady_clock::now() < deadline) move = site().stage(order);
        return move;
    };
    const auto was_started = [&] { return std::filesystem::exists(path("started")); };
    facility_.image->sha256 = std::string(64, '0');
    EXPECT_EQ(stage().error().code, ErrorCode::kUnavailable) << "it may still be on its way";
    age(std::chrono::hours(1));
    const auto other = stage();
    ASSERT_FALSE(other.ok());
    EXPECT_EQ(other.error().code, ErrorCode::kInvalidArgument) << describe(other.error());
    EXPECT_NE(other.error().message.find("has the sha256 " + digest()), std::string::npos) << other.error().message;
    EXPECT_FALSE(was_started());
    facility_.image->sha256 = digest();
    EXPECT_FALSE(stage().ok()) << "it runs, and its program fails";
    EXPECT_TRUE(was_started());
}

TEST_F(ImageSiteTest, AnImageIsForTheComputeNodesWhateverTheLoginNodeIs) {
    put_image("04");
    facility_.batch = {BatchKind::kSlurm, 1, {{"gpu", {.partition = "gpu"}}}, "gpu"};
    const CheckRow unknown = image_row();
    EXPECT_EQ(unknown.state, CheckState::kWarn) << "scontrol is not there";
    EXPECT_NE(unknown.seen.find("but the login node is x86_64"), std::string::npos) << unknown.seen;
    const std::string scontrol =
        "#!/bin/sh\necho 'NodeName=c1 Arch=x86_64 CPUTot=4 Partitions=cpu,all BootTime=None'\n"
        "echo 'NodeName=g1 Arch=aarch64 CPUTot=4 Partitions=all,gpu BootTime=None'\n"
        "echo 'NodeName=g2 CPUTot=4 State=DOWN Partitions=gpu'\n";
    ASSERT_TRUE(write_file_atomic(path("bin/scontrol"), scontrol, 0755).ok());
    EXPECT_NE(image_row().state, CheckState::kFail) << image_row().seen;
    facility_.batch.queues.begin()->second.partition = "cpu";
    EXPECT_EQ(image_row().seen, path("trainer.sif") + " is for aarch64 machines, but the compute nodes are x86_64");
    EXPECT_EQ(image_row().state, CheckState::kFail);
    facility_.batch.queues.begin()->second.partition = "";
    EXPECT_NE(image_row().state, CheckState::kFail) << "some of the nodes that the default partition may have";
}

TEST_F(ImageSiteTest, TheCheckTellsAnotherArchitectureAndWhatIsNoImage) {
    put_image("04");
    EXPECT_EQ(image_row().state, CheckState::kFail);
    EXPECT_EQ(image_row().seen, path("trainer.sif") + " is for aarch64 machines, but the compute nodes are x86_64");
    ASSERT_TRUE(write_file_atomic(path("trainer.sif"), "no image").ok());
    EXPECT_EQ(image_row().state, CheckState::kFail);
    EXPECT_NE(image_row().seen.find("is no SIF file"), std::string::npos) << image_row().seen;
    put_image("02");
    ASSERT_TRUE(write_file_atomic(path("bin/apptainer"), "#!/bin/sh\necho cannot mount >&2\nexit 1\n", 0755).ok());
    EXPECT_EQ(image_row().state, CheckState::kFail);
    EXPECT_NE(image_row().seen.find("cannot mount"), std::string::npos) << image_row().seen;
}

}  // namespace
}  // namespace atl::dispatch
