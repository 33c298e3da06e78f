// A federation whose site is reached by ssh alone: its programs never get to the store.
#include <pwd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>

#include "services/dispatch/testing/ssh_fixture.h"
#include "tests/e2e/demo/setup.h"
#include "tests/e2e/small_federation.h"

namespace atl::e2e {
namespace {

namespace fs = std::filesystem;
using json::Json;

class SshStreamTest : public dispatch::SshTransportTest {
  protected:
    void SetUp() override {
        SshTransportTest::SetUp();
        if (IsSkipped()) return;
        ::prctl(PR_SET_CHILD_SUBREAPER, 1);
        // Once there is "alone" the site's programs reach no store, and whoever has them try is noted.
        fs::create_directory(file("programs"));
        write_program("atoll", "case $1 in stage | push | ping)\n    if [ -e " + file("alone") +
                                   " ]; then echo \"$*\" >>" + file("asked") + "; exit 75; fi ;;\nesac\nexec " +
                                   shell("atoll") + " \"$@\"");
        write_program("atoll-trainer", "exec " + shell("atoll-trainer") + " \"$@\"");
        if (::geteuid() == 0) fs::permissions(directory_.path(), fs::perms(0711));  // another user runs root's stack
        FederationOptions options;
        options.facilities = {"a"};
        options.site_programs = file("programs");
        federation_ = std::make_unique<SmallFederation>(options);
        const Status status = federation_->set_up();
        ASSERT_TRUE(status.ok()) << status.error().message;
        // It logs in as whoever started the site's sshd, whatever user dispatch runs as.
        write_config("ssh_config", "Host site\n",
                     "Host site\n  User " + std::string(::getpwuid(::geteuid())->pw_name) + "\n");
        const Status given = demo::give_to_stack(file(""), federation_->path("stack"));
        ASSERT_TRUE(given.ok()) << given.error().message;
    }
    void TearDown() override {
        federation_.reset();
        SshTransportTest::TearDown();
    }
    // A copy, as whoever the site's programs run as need not be able to enter the directory of the build.
    std::string shell(const std::string& program) {
        const std::string copy = file("programs/real-" + program);
        fs::copy_file(SmallFederation::program(program), copy);
        return "'" + copy + "'";
    }
    void write_program(const std::string& name, const std::string& text) {
        ASSERT_TRUE(write_file_atomic(file("programs/" + name), "#!/bin/sh\n" + text + "\n", 0755).ok());
    }
    http::Client dispatch() {
        http::ClientOptions options;
        options.base_url = federation_->address().gateway + "/dispatch";
        options.token = federation_->address().token;
        return http::Client(options);
    }
    // Once no task is under way there, as the cleaning up after a preparation.
    void move_to_ssh() {
        const Json transport = {
            {"kind", "ssh"}, {"host", "site"}, {"config_file", file("ssh_config")}, {"data", "ssh"}};
        const Json body = {{"transport", transport}};
        http::ClientResponse answer;
        ASSERT_TRUE(eventually([&] {
            http::CallOptions call;
            const auto before = dispatch().call(http::Method::kGet, "/v1/facilities/a").value();
            call.headers = {{"If-Match", before.headers.at("etag")}};
            answer = dispatch().call(http::Method::kPatch, "/v1/facilities/a", body.dump(), call).value();
            return answer.status == 200;
        })) << answer.body;
    }

    std::unique_ptr<SmallFederation> federation_;
};

TEST_F(SshStreamTest, AJobTakesItsCourseWhereTheSiteReachesNoStore) {
    ASSERT_NO_FATAL_FAILURE(move_to_ssh());
    write("alone", "");
    const auto checked = dispatch().post_json("/v1/facilities/a/check", Json::object());
    ASSERT_TRUE(checked.ok()) << checked.error().message;
    EXPECT_EQ(checked->at("ok"), true) << checked->dump(2);
    fs::remove(file("asked"));  // by the check
    const auto job = federation_->coordinator().submit(federation_->job_spec("alone", 2));
    ASSERT_TRUE(job.ok()) << job.error().message;
    const auto state = federation_->coordinator().follow(*job, std::chrono::seconds(600), [](const Json&) {});
    ASSERT_TRUE(state.ok()) << state.error().message;
    EXPECT_EQ(*state, "completed") << federation_->coordinator().job(*job)->dump(2)
                                   << federation_->coordinator().rounds(*job)->dump(2);
    EXPECT_FALSE(fs::exists(file("asked"))) << read_file(file("asked")).value();
    const auto rounds = federation_->coordinator().rounds(*job);
    for (const Json& round : rounds->at("items"))
        for (const Json& task : round.at("tasks")) EXPECT_EQ(task.at("attempt"), 1) << task.dump(2);
}

}  // namespace
}  // namespace atl::e2e
