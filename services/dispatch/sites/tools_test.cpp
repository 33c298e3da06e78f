#include <gtest/gtest.h>

#include <functional>
#include <sstream>
#include <thread>

#include "services/dispatch/sites/image_command.h"
#include "services/dispatch/sites/script_site.h"
#include "shared/base/file.h"
#include "shared/base/subprocess.h"

namespace atl::dispatch {
namespace {

constexpr const char* kAtoll = R"sh(#!/bin/sh
case $1 in
    stage) mkdir -p "$7" ;;
    push) printf '{"digest": "%064d"}\n' 7 ;;
    seal) : >seal.json ;;
    train) mkdir out ;;
esac
)sh";

// A site whose PATH has what tools.sh lists, and nothing else.
class ToolsTest : public testing::Test {
  protected:
    ToolsTest() {
        std::filesystem::create_directories(path("bin"));
        const auto file =
            std::filesystem::path(ATOLL_EXAMPLES).parent_path() / "services/dispatch/sites/scripts/tools.sh";
        std::istringstream words(run_command({"sh", "-c", ". \"$1\"; echo $tools", "sh", file})->out);
        for (std::string tool; words >> tool;) link(tool);
        link("flock");
        link("sh");
        for (const char* name : {"atoll", "atoll-trainer"})
            EXPECT_TRUE(write_file_atomic(path(name), kAtoll, 0755).ok());
        facility_.name = "leonardo";
        facility_.batch.kind = BatchKind::kLocal;
        facility_.work_dir = path("work");
        facility_.environment = {{"PATH", path("bin")}};
    }
    std::string path(const std::string& name) const { return directory_.path() / name; }
    void link(const std::string& tool) const {
        const auto found = run_command({"sh", "-c", "command -v \"$1\"", "sh", tool});
        ASSERT_EQ(found->exit_code, 0) << tool << " is not on this machine";
        std::filesystem::create_symlink(found->out.substr(0, found->out.size() - 1), path("bin/" + tool));
    }
    ScriptSite site() const { return ScriptSite(facility_, make_local_transport(), path("")); }
    static void expect_done(const std::function<Site::Move()>& verb) {
        for (;; std::this_thread::sleep_for(std::chrono::milliseconds(10))) {
            const auto move = verb();
            ASSERT_TRUE(move.ok()) << describe(move.error());
            if (!*move) return;
        }
    }

    TemporaryDirectory directory_;
    Facility facility_;
};

TEST_F(ToolsTest, WhatIsListedIsEnoughForEveryVerb) {
    expect_done([&]() -> Site::Move {
        ATOLL_TRY(auto staged, site().stage({{"v"}, "job", "atoll-t-2", "url", "token"}));
        return staged.moving;
    });
    const BatchJob job{.ref = {"atoll-t-2", site().task_directory("t", 2)},
                       .commands = {{path("atoll-trainer"), "train"}, {"cp", "run.json", "out/run.json"}},
                       .seal = {path("atoll"), "seal"},
                       .run_json = {{"lr", 0.5}},
                       .earlier_attempts = {site().task_directory("t", 1)}};
    ASSERT_TRUE(site().submit(job).ok());
    Look look;
    while (!look.exit_code) look = site().look({{job.ref.directory, 0}}).value().at(0);
    EXPECT_EQ(look.exit_code, 0) << site().tail(job.ref.directory + "/stderr.log", 1000).value();
    EXPECT_TRUE(std::filesystem::exists(job.ref.directory + "/seal.json"));
    EXPECT_TRUE(site().read_file(job.ref.directory + "/run.json", 1000).ok());
    EXPECT_TRUE(site().ask_batch({job.ref}).ok());
    Result<PushAnswer> pushed = PushAnswer{};
    do pushed = site().push({job.ref.directory, "m", "url", "token", json::Json::object()});
    while (pushed.ok() && pushed->moving);
    ASSERT_TRUE(pushed.ok()) << describe(pushed.error());
    EXPECT_EQ(pushed->digest, std::string(63, '0') + "7");
    EXPECT_TRUE(site().publish(job.ref.directory + "/out", path("work/datasets/d/1/x")).ok());
    EXPECT_TRUE(site().stop_staging({{"v"}, "job", "atoll-t-2", "url", "token"}).ok());
    EXPECT_TRUE(site().cancel(job.ref).ok());
    expect_done([&] { return site().clean("job", {"t"}); });
}

TEST_F(ToolsTest, WhatIsListedIsEnoughForAnImage) {
    const std::string bytes = std::string(32, 'x') + "SIF_MAGIC" + std::string(1, '\0') + "01" + '\0' + "02";
    ASSERT_TRUE(write_file_atomic(path("image"), bytes).ok());
    const std::string sha256 = run_command({"sha256sum", path("image")})->out.substr(0, 64);
    facility_.image = ImageSpec{path("work/x.sif"), sha256, "", "none", {}, {}};
    const auto total = static_cast<std::int64_t>(bytes.size());
    expect_done([&] { return site().put_image({total, 0, bytes}); });
    const std::string runtime = "#!/bin/sh\nwhile [ \"$1\" != train ]; do shift; done\n: >trained\n";
    ASSERT_TRUE(write_file_atomic(path("bin/apptainer"), runtime, 0755).ok());
    std::filesystem::remove_all(path("work/programs"));
    std::filesystem::last_write_time(path("work/x.sif"),
                                     std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
    const BatchJob job{.ref = {"atoll-t-1", site().task_directory("t", 1)},
                       .commands = {{"train"}},
                       .image_runner = render_image_runner(facility_),
                       .image_check = render_image_check(facility_)};
    const auto id = site().submit(job);
    ASSERT_TRUE(id.ok()) << describe(id.error());
    Look look;
    while (!look.exit_code) look = site().look({{job.ref.directory, 0}}).value().at(0);
    EXPECT_EQ(look.exit_code, 0) << site().tail(job.ref.directory + "/stderr.log", 1000).value();
    EXPECT_TRUE(std::filesystem::exists(job.ref.directory + "/trained"));
}

}  // namespace
}  // namespace atl::dispatch
