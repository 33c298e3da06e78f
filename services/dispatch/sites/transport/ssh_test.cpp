#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <atomic>
#include <thread>

#include "services/dispatch/sites/script_site.h"
#include "services/dispatch/sites/transport/ssh_master.h"
#include "services/dispatch/testing/fake_slurm_site.h"
#include "services/dispatch/testing/ssh_fixture.h"
#include "shared/base/text.h"

namespace atl::dispatch {
namespace {

TEST_F(SshTransportTest, ArgumentsInputOutputAndStatusArriveAsTheyAre) {
    const std::string odd = "it's $HOME \"`x`\"\nsecond line";
    std::string input(200000, 'x');
    input += std::string("\0\xff\n", 3);
    const auto result = transport_->run({"printf '%s' \"$1\"; wc -c; echo problem >&2; exit 255", {odd}, input});
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(result->out, odd + "200003\n");
    EXPECT_NE(result->err.find("problem\n"), std::string::npos);
    EXPECT_EQ(result->exit_code, 255) << "a status that ssh itself uses, known all the same";
}

TEST_F(SshTransportTest, OneConnectionServesMany) {
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(transport_->run({":", {}, {}}).ok());
    EXPECT_EQ(logins(), 1U);
    const auto later = make_transport();  // as of the next life of a dispatch that was killed
    EXPECT_TRUE(later->run({":", {}, {}}).ok());
    EXPECT_EQ(logins(), 1U);
}

TEST_F(SshTransportTest, EachLoginTakesOneOfThoseThatAreLeftUntilItIsOld) {
    const TransportSpec spec{TransportKind::kSsh, "site", file("ssh_config"), ""};
    const std::int64_t before = logins_left(spec, settings_);
    EXPECT_LT(before, settings_.logins_max);
    ASSERT_TRUE(make_transport("another")->run({":", {}, {}}).ok());
    EXPECT_EQ(logins_left(spec, settings_), before - 1);
    let_logins_age(std::chrono::seconds(settings_.logins_window_s));
    EXPECT_EQ(logins_left(spec, settings_), settings_.logins_max);
}

TEST_F(SshTransportTest, ManyThreadsAtOnceMakeOneLoginAndTwoSessions) {
    transport_ = make_transport("cold");
    const std::size_t before = logins();
    std::filesystem::create_directory(file("open"));
    const RemoteScript script{"cd \"$1\" && mkdir $$ && ls | wc -l; sleep 0.7; rmdir $$", {file("open")}, {}};
    std::atomic<int> most = 0, answered = 0;
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i < 6; ++i)
            threads.emplace_back([&] {
                const auto result = transport_->run(script);
                if (!result.ok()) return;
                ++answered;
                most = std::max(most.load(), std::atoi(result->out.c_str()));
            });
    }
    EXPECT_EQ(answered, 6);
    EXPECT_LE(most, 2);
    EXPECT_EQ(logins(), before + 1);
}

TEST_F(SshTransportTest, WhatPeopleAskNeverTakesTheLastSessionFromTheSitesWork) {
    RemoteScript asked{"echo >>\"$1\"; until [ -e \"$2\" ]; do sleep 0.05; done", {file("begun"), file("go")}, {}};
    asked.is_for_people = true;
    RemoteScript impatient{":", {}, {}, std::chrono::milliseconds(300)};
    impatient.is_for_people = true;
    {
        std::vector<std::jthread> readers;
        for (int i = 0; i < 3; ++i) readers.emplace_back([&] { EXPECT_TRUE(transport_->run(asked).ok()); });
        EXPECT_TRUE(eventually([&] { return std::filesystem::exists(file("begun")); }));
        EXPECT_TRUE(transport_->run({":", {}, {}}).ok()) << "the work has a session";
        const auto refused = transport_->run(impatient);
        EXPECT_TRUE(!refused.ok() && refused.error().cause == Cause::kBusy);
        EXPECT_EQ(read_file(file("begun")).value(), "\n") << "one of them at a time";
        write("go", "");
    }
    EXPECT_EQ(read_file(file("begun")).value(), "\n\n\n");
}

TEST_F(SshTransportTest, AFailedLoginIsThatOfAllWhoWaitedForIt) {
    const auto late = make_transport("site", "ssh_config_of_nobody");
    write("ssh_config_of_nobody", read_file(file("ssh_config")).value() + "  User nobody-of-that-name\n");
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i < 4; ++i) threads.emplace_back([&] { EXPECT_FALSE(late->run({":", {}, {}}).ok()); });
    }
    EXPECT_EQ(count_in_log("Invalid user nobody-of-that-name"), 1U) << read_file(file("sshd.log")).value();
}

TEST_F(SshTransportTest, ASessionThatTheSiteRefusesIsBusyAndNoLogin) {
    stop_sshd();
    write("sshd_config", read_file(file("sshd_config")).value() + "MaxSessions 1\n");
    start_sshd();
    const std::size_t before = logins();
    const RemoteScript holds{": >\"$1\"; until [ -e \"$2\" ]; do sleep 0.05; done", {file("begun"), file("go")}, {}};
    std::jthread first([&] { EXPECT_TRUE(eventually([&] { return transport_->run(holds).ok(); })); });
    ASSERT_TRUE(eventually([&] { return std::filesystem::exists(file("begun")); }));
    const auto refused = transport_->run({":", {}, {}});
    write("go", "");
    first.join();
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().cause, Cause::kBusy) << refused.error().message;
    EXPECT_EQ(logins(), before);
}

TEST_F(SshTransportTest, AFacilityIsNotReachedByTheConnectionOfAnother) {
    const auto other = make_transport("other");
    ASSERT_TRUE(other->run({":", {}, {}}).ok());
    EXPECT_EQ(logins(), 2U);
    // Nor by one of its own that it had under another configuration.
    make_key("wrong");
    write("known_hosts_wrong", "[127.0.0.1]:" + port_ + " " + read_file(file("wrong.pub")).value());
    std::string config = read_file(file("ssh_config")).value();
    config.replace(config.find(file("known_hosts")), std::string::npos, file("known_hosts_wrong") + "\n");
    write("ssh_config_wrong", config);
    EXPECT_FALSE(make_transport("site", "ssh_config_wrong")->run({":", {}, {}}).ok());
}

TEST_F(SshTransportTest, TheConnectionEndsWithItsTransport) {
    EXPECT_GT(family_of(server_).size(), 1U);
    transport_.reset();
    EXPECT_TRUE(eventually([&] { return family_of(server_).size() == 1; }));
    // The master's own files go as it ends; logins are counted on.
    const auto only_logins_are_left = [&] {
        return std::ranges::all_of(std::filesystem::directory_iterator(file("control")),
                                   [](const auto& entry) { return entry.path().extension() == ".logins"; });
    };
    EXPECT_TRUE(eventually(only_logins_are_left));
}

TEST_F(SshTransportTest, TheSocketOfADeadConnectionIsNoHindrance) {
    std::filesystem::path socket;
    for (const auto& entry : std::filesystem::directory_iterator(file("control")))
        if (entry.is_socket()) socket = entry.path();
    const auto master = run_command({"ssh", "-o", "ControlPath=" + socket.string(), "-O", "check", "any"});
    int process = 0;
    ASSERT_EQ(std::sscanf(master->err.c_str(), "Master running (pid=%d)", &process), 1) << master->err;
    ::kill(process, SIGKILL);
    ASSERT_TRUE(eventually([&] {  // one that is still dying answers no more, but is there
        const auto state = read_file("/proc/" + std::to_string(process) + "/stat");
        return !state.ok() || state->find(") Z ") != std::string::npos;
    }));
    EXPECT_TRUE(transport_->run({":", {}, {}}).ok());
    EXPECT_EQ(logins(), 2U);
}

TEST_F(SshTransportTest, LoginsAreCounted) {
    settings_.logins_max = 3;  // that of SetUp() is one
    auto counted = make_transport("counted");
    EXPECT_TRUE(answers(*counted));
    break_connections();
    EXPECT_TRUE(eventually([&] { return answers(*counted); }));
    break_connections();
    const std::size_t before = connections();
    counted.reset();
    counted = make_transport("counted");  // as of the next life of dispatch
    const Error error = error_of(*counted);
    EXPECT_EQ(error.cause, Cause::kLoginsSpent) << error.message;
    const std::string where = std::string(trim(run_command({"id", "-un"})->out)) + "@127.0.0.1:" + port_;
    EXPECT_TRUE(
        error.message.starts_with("3 logins at " + where + " within 10 m 00 s are enough; the next one comes within "))
        << error.message;
    EXPECT_NE(error.message.find("after a mend `atoll facility check counted` tries once at once"), std::string::npos);
    EXPECT_EQ(connections(), before);
    RemoteScript asked{":", {}, {}};
    asked.is_asked_for = true;
    EXPECT_TRUE(counted->run(asked).ok()) << "one more, that a person asks for";
    break_connections();
    EXPECT_TRUE(eventually([&] { return error_of(*counted, true).cause == Cause::kLoginsSpent; }));
    let_logins_age(std::chrono::seconds(settings_.logins_window_s));
    EXPECT_TRUE(eventually([&] { return answers(*counted); })) << "the time is over";
}

TEST_F(SshTransportTest, AMachineIsOneHoweverManyFacilitiesAreThereAndWhateverItIsCalled) {
    settings_.logins_max = 2;
    EXPECT_TRUE(answers(*make_transport("cpu")));
    write_config("ssh_config_other", "Host site", "Host site login02");
    const auto other = make_ssh_transport("gpu", {TransportKind::kSsh, "login02", file("ssh_config_other")}, settings_);
    EXPECT_EQ(error_of(*other).cause, Cause::kLoginsSpent);
}

TEST_F(SshTransportTest, LoginsAtAMachineHaveABoundWhoeverTheyAre) {
    settings_.logins_max = 1;  // of each, and four of all; that of SetUp() is one
    std::vector<Error> errors;
    for (const char* user : {"one", "two", "three", "four"}) {
        const auto other =
            make_ssh_transport(user, {TransportKind::kSsh, std::string(user) + "@site", file("ssh_config")}, settings_);
        errors.push_back(error_of(*other));
    }
    for (int i = 0; i < 3; ++i) EXPECT_EQ(errors[i].cause, Cause::kAuthentication) << errors[i].message;
    EXPECT_EQ(errors[3].cause, Cause::kLoginsSpent) << errors[3].message;
    EXPECT_TRUE(errors[3].message.starts_with("4 logins at 127.0.0.1, of all its users together, within "))
        << errors[3].message;
}

// One that takes the connection and says nothing.
TEST_F(SshTransportTest, ALoginEndsWithItsStep) {
    const UniqueFd silent(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* any = reinterpret_cast<sockaddr*>(&address);
    ASSERT_TRUE(::bind(silent.get(), any, size) == 0 && ::listen(silent.get(), 8) == 0 &&
                ::getsockname(silent.get(), any, &size) == 0);
    write_config("ssh_config_other", "Port " + port_, "Port " + std::to_string(ntohs(address.sin_port)));
    const auto other = make_transport("other", "ssh_config_other");
    const auto begin = std::chrono::steady_clock::now();
    RemoteScript script{":", {}, {}};
    script.until = begin + std::chrono::seconds(1);
    const auto result = other->run(script);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().cause, Cause::kNoConnection) << result.error().message;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(12)) << "ssh itself waits for 15";
}

TEST_F(SshTransportTest, AHostThatIsNotReachedCostsNoLogin) {
    settings_.logins_max = 3;  // those of start_sshd() are two
    const auto counted = make_transport("counted");
    stop_sshd();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(error_of(*counted).cause, Cause::kNoConnection);
    start_sshd();
    EXPECT_TRUE(answers(*counted));
}

TEST_F(SshTransportTest, WhatSpentTheLoginsIsSaidBeforeThatTheyAreSpent) {
    settings_.logins_max = 3;  // those of start_sshd() are two
    make_key("stranger");
    write_config("ssh_config_other", file("user"), file("stranger"));
    const auto other = make_transport("other", "ssh_config_other");
    EXPECT_EQ(error_of(*other).cause, Cause::kAuthentication);
    Error spent = error_of(*other, true);  // a person may try more often
    for (int i = 0; i < 10 && spent.cause == Cause::kAuthentication; ++i) spent = error_of(*other, true);
    EXPECT_EQ(spent.cause, Cause::kLoginsSpent) << spent.message;
    const std::size_t why = spent.message.find("Permission denied (publickey"), how = spent.message.find("are enough");
    EXPECT_LT(why, how) << spent.message;
    EXPECT_NE(how, std::string::npos) << spent.message;
}

TEST_F(SshTransportTest, ARefusedLoginIsRepeatedWhenSomethingHasChanged) {
    make_key("stranger");
    write_config("ssh_config_other", file("user"), file("stranger"));
    const auto other = make_transport("other", "ssh_config_other");
    const Error error = error_of(*other);
    EXPECT_EQ(error.cause, Cause::kAuthentication) << error.message;
    EXPECT_NE(error.message.find("Permission denied (publickey"), std::string::npos) << error.message;
    EXPECT_NE(error.message.find("`ssh -F " + file("ssh_config_other") + " site` by hand"), std::string::npos);
    const std::size_t before = connections();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(error_of(*other).message, error.message);
    EXPECT_EQ(connections(), before) << "nothing has changed";
    EXPECT_EQ(error_of(*other, true).cause, Cause::kAuthentication);
    EXPECT_EQ(connections(), before + 1) << "a person asked";
    write("stranger", read_file(file("user")).value());
    write("stranger.pub", read_file(file("user.pub")).value());
    EXPECT_TRUE(answers(*other));
}

TEST_F(SshTransportTest, AnotherHostKeyIsNoConnectionUntilItIsKnown) {
    make_key("wrong");
    const std::string good = read_file(file("known_hosts")).value();
    write_config("ssh_config_other", file("known_hosts"), file("known_hosts_other") + "\n  StrictHostKeyChecking no");
    for (const bool is_known : {false, true}) {
        write("known_hosts_other", is_known ? "[127.0.0.1]:" + port_ + " " + read_file(file("wrong.pub")).value() : "");
        const auto other = make_transport(is_known ? "changed" : "unknown", "ssh_config_other");
        const Error error = error_of(*other);
        EXPECT_EQ(error.cause, Cause::kHostKey) << error.message;
        EXPECT_NE(error.message.find("`atoll facility trust "), std::string::npos) << error.message;
        EXPECT_EQ(error.message.find("SHA256:") != std::string::npos, is_known) << error.message;
        const std::size_t before = connections();
        EXPECT_EQ(error_of(*other).cause, Cause::kHostKey);
        EXPECT_EQ(connections(), before);
        write("known_hosts_other", good);
        EXPECT_TRUE(answers(*other));
    }
}

TEST_F(SshTransportTest, APinnedHostKeyAloneCounts) {
    const TransportSpec spec{TransportKind::kSsh, "site", file("ssh_config")};
    settings_.logins_max = 3;
    const auto shown = read_host_key(spec, settings_, {});
    ASSERT_TRUE(shown.ok()) << shown.error().message;
    EXPECT_TRUE(read_host_key(spec, settings_, {}).ok());
    const auto third = read_host_key(spec, settings_, {});
    ASSERT_FALSE(third.ok()) << "to the site it is one more login that was refused";
    EXPECT_EQ(third.error().cause, Cause::kLoginsSpent) << third.error().message;
    settings_.logins_max = 100;
    EXPECT_TRUE(read_file(file("host.pub")).value().starts_with(*shown + " "));
    EXPECT_EQ(logins(), 1U) << "that of SetUp()";
    make_key("wrong");
    const std::string wrong = read_file(file("wrong.pub")).value();
    write_config("ssh_config_other", file("known_hosts"), "/dev/null");
    EXPECT_TRUE(answers(*make_transport("pinned", "ssh_config_other", *shown)));
    write_config("ssh_config_other", "IdentitiesOnly yes", "IdentitiesOnly yes\n  StrictHostKeyChecking no");
    EXPECT_EQ(error_of(*make_transport("pinned", "ssh_config_other", wrong.substr(0, wrong.rfind(' ')))).cause,
              Cause::kHostKey);
}

TEST_F(SshTransportTest, ACertificateThatEndsIsToldAndItsSuccessorNoticed) {
    make_key("authority");
    make_key("owner");
    const std::string user = ::getuid() == 0 ? "root" : std::getenv("USER");
    const auto sign = [&](const std::string& until) {
        const auto made = run_command({"ssh-keygen", "-q", "-s", file("authority"), "-I", "owner", "-n", user, "-V",
                                       "-5m:" + until, file("owner.pub")});
        ASSERT_TRUE(made.ok() && made->exit_code == 0) << made->err;
    };
    stop_sshd();
    write("sshd_config", read_file(file("sshd_config")).value() + "TrustedUserCAKeys " + file("authority.pub") + "\n");
    start_sshd();
    write_config("ssh_config_owner", file("user"), file("owner"));
    const auto owners = make_transport("owner", "ssh_config_owner");
    sign("+1h");
    const std::size_t before = connections();
    EXPECT_TRUE(answers(*owners));
    sign("-1m");  // as if it had ended meanwhile
    EXPECT_TRUE(answers(*owners)) << "a connection outlives its certificate";
    break_connections();
    Error error;
    ASSERT_TRUE(eventually([&] { return (error = error_of(*owners)).cause == Cause::kAuthentication; }));
    EXPECT_NE(error.message.find("certificate " + file("owner-cert.pub") + ": valid from "), std::string::npos)
        << error.message;
    for (int i = 0; i < 20; ++i) EXPECT_EQ(error_of(*owners).message, error.message);
    EXPECT_LE(connections() - before, 2U);
    sign("+1h");
    EXPECT_TRUE(answers(*owners));
    EXPECT_LE(connections() - before, 3U);
}

TEST_F(SshTransportTest, APersonsLoginIsTheConnection) {
    make_key("stranger");
    write_config("ssh_config_other", file("user"), file("stranger"));
    const TransportSpec spec{TransportKind::kSsh, "site", file("ssh_config_other")};
    std::stop_source stop;
    auto other = make_ssh_transport("other", spec, settings_, stop.get_token());
    EXPECT_EQ(error_of(*other).cause, Cause::kAuthentication);
    auto command = login_command("other", spec, settings_);
    ASSERT_TRUE(command.ok()) << command.error().message;
    command->insert(command->begin() + 1, {"-i", file("user")});  // what only a person has
    const auto login = run_command(*command);
    EXPECT_EQ(login->exit_code, 0) << login->err;
    EXPECT_TRUE(answers(*other));
    EXPECT_EQ(login_command("other", spec, settings_).error().code, ErrorCode::kConflict);
    stop.request_stop();  // dispatch ends, and begins anew
    other = make_ssh_transport("other", spec, settings_);
    EXPECT_TRUE(answers(*other)) << "nobody else could log in";
    other = make_ssh_transport("other", spec, settings_);  // as when the facility's record has changed
    EXPECT_FALSE(answers(*other)) << "what a person opened ends with the record that it was for";
}

TEST_F(SshTransportTest, WithoutAConnectionNothingIsKnown) {
    stop_sshd();
    const auto result = transport_->run({"exit 0", {}, {}});
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, ErrorCode::kUnavailable);
    start_sshd();
    EXPECT_TRUE(transport_->run({":", {}, {}}).ok()) << "it comes back by itself";
}

TEST_F(SshTransportTest, AConnectionThatBreaksInTheMiddleIsUnknown) {
    std::jthread breaker([&] {
        EXPECT_TRUE(eventually([&] { return std::filesystem::exists(file("begun")); }));
        stop_sshd();
    });
    const auto result = transport_->run({": >\"$1\"; sleep 20", {file("begun")}, {}});
    breaker.join();
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, ErrorCode::kUnavailable);
    start_sshd();
}

TEST_F(SshTransportTest, ABatchJobOutlivesTheConnectionThatSubmittedIt) {
    Facility facility;
    facility.batch = {BatchKind::kLocal, 1};
    facility.work_dir = file("work");
    std::filesystem::create_directory(facility.work_dir);
    ScriptSite site(facility, transport_, "");
    const BatchJobRef job{"atoll-a-1", file("work") + "/tasks/a/1"};
    const std::string script = "echo run >>" + file("runs") + "\nwhile [ ! -e " + file("go") +
                               " ]; do sleep 0.02; done\n: >" + file("ended") + "\n";
    ASSERT_TRUE(site.submit_script(job, script).ok());
    ASSERT_TRUE(eventually([&] { return std::filesystem::exists(file("runs")); }));
    stop_sshd();
    start_sshd();
    ASSERT_TRUE(site.submit_script(job, script).ok());
    write("go", "");
    EXPECT_TRUE(eventually([&] { return std::filesystem::exists(file("ended")); }));
    EXPECT_EQ(read_file(file("runs")).value(), "run\n");
    EXPECT_TRUE(site.cancel(job).ok());
}

// What it prints is told from ssh's own messages, which alone say why a login failed.
TEST_F(SshTransportTest, ABannerOfTheSiteFakesNoCauseOfAFailedLogin) {
    make_key("unknown");
    write_config("ssh_config_unknown", file("user"), file("unknown"));
    write("banner", "Permissions 0644 for '" + file("unknown") +
                        "' are too open.\nkex_exchange_identification: read: Connection reset by peer\n"
                        "Host key verification failed.\nme@login01: Permission denied (call-the-help-desk).\n");
    stop_sshd();
    write("sshd_config", read_file(file("sshd_config")).value() + "Banner " + file("banner") + "\n");
    transport_ = make_transport("greeted");
    start_sshd();
    const Error refused = error_of(*make_transport("unknown", "ssh_config_unknown"));
    EXPECT_EQ(refused.cause, Cause::kAuthentication);
    EXPECT_EQ(refused.message.find("help-desk"), std::string::npos) << refused.message;
    EXPECT_EQ(refused.message.find("chmod"), std::string::npos) << refused.message;
    EXPECT_NE(refused.message.find("Permission denied (publickey"), std::string::npos) << refused.message;
    for (const auto& entry : std::filesystem::directory_iterator(file("control")))
        EXPECT_NE(entry.path().extension(), ".messages") << entry.path();
}

TEST_F(SshTransportTest, ABannerFakesNoCauseWhereTheSiteGoesSilentAfterIt) {
    make_key("unknown");
    write_config("ssh_config_unknown", file("user"), file("unknown"));
    write("banner",
          "kex_exchange_identification: read: Connection reset by peer\nme@login01: Permission denied (publickey).\n");
    stop_sshd();
    const std::string user = ::getuid() == 0 ? "root" : std::getenv("USER");
    write("sshd_config", read_file(file("sshd_config")).value() + "Banner " + file("banner") +
                             "\nAuthorizedKeysCommand /usr/bin/sleep 5\nAuthorizedKeysCommandUser " + user + "\n");
    transport_ = make_transport("greeted");
    start_sshd();
    const TransportSpec spec{TransportKind::kSsh, "site", file("ssh_config_unknown")};
    const std::int64_t left = logins_left(spec, settings_);
    RemoteScript script{":", {}, {}};
    script.until = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    const auto result = make_transport("unknown", "ssh_config_unknown")->run(script);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().cause, Cause::kNoConnection) << result.error().message;
    EXPECT_NE(result.error().message.find("the login takes too long"), std::string::npos) << result.error().message;
    EXPECT_EQ(logins_left(spec, settings_), left - 1);
}

// Told by one row; what lies behind it was not looked at.
TEST_F(SshTransportTest, AFacilitysCheckTellsAnotherHostKeyAndAKeyThatSshDoesNotUse) {
    using SystemClock = std::chrono::system_clock;
    FakeSlurmSite fake;
    fake.facility.transport = {TransportKind::kSsh, "site", file("ssh_config"), ""};
    const auto rows = [&](const std::string& name, const std::string& config, const std::string& host_key) {
        fake.facility.transport.host_key = host_key;
        ScriptSite at(fake.facility, make_transport(name, config, host_key), "");
        return at.check({fake.store_url, std::chrono::duration<double>(SystemClock::now().time_since_epoch()).count()})
            .rows;
    };
    const auto sound = rows("site", "ssh_config", "");
    for (const char* row : {"connection", "host key", "credential", "scheduler", "clock"})
        EXPECT_EQ(by_name(sound)[row].state, CheckState::kOk) << to_json(by_name(sound)[row]);

    make_key("wrong");
    const std::string wrong = read_file(file("wrong.pub")).value();
    const auto other_host = rows("other", "ssh_config", wrong.substr(0, wrong.rfind(' ')));
    EXPECT_EQ(findings(sound, other_host), std::vector<std::string>{"host key"});
    EXPECT_NE(by_name(other_host)["host key"].seen.find("SHA256:"), std::string::npos);
    EXPECT_NE(by_name(other_host)["host key"].mend.find("`atoll facility trust other`"), std::string::npos);
    EXPECT_EQ(by_name(other_host)["scheduler"].state, CheckState::kSkipped);

    for (const std::string name : {"", ".pub"}) write("shown" + name, read_file(file("user" + name)).value());
    write_config("ssh_config_shown", file("user"), file("shown"));
    std::filesystem::permissions(file("shown"), std::filesystem::perms::others_read,
                                 std::filesystem::perm_options::add);
    const auto unread = rows("unread", "ssh_config_shown", "");
    EXPECT_EQ(findings(sound, unread), std::vector<std::string>{"credential"});
    const CheckRow credential = by_name(unread)["credential"];
    EXPECT_NE(credential.seen.find("can be read by others"), std::string::npos) << credential.seen;
    EXPECT_NE(credential.mend.find("`chmod 600 " + file("shown") + "`"), std::string::npos) << credential.mend;
    write("shown", "no key\n");
    const auto garbage = rows("garbage", "ssh_config_shown", "");
    EXPECT_EQ(findings(sound, garbage), std::vector<std::string>{"credential"});
    EXPECT_NE(by_name(garbage)["credential"].mend.find("put a private key"), std::string::npos)
        << by_name(garbage)["credential"].seen;
}

}  // namespace
}  // namespace atl::dispatch
