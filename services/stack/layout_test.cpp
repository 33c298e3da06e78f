#include "services/stack/layout.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "services/stack/stack.h"
#include "shared/base/file.h"
#include "shared/http/testing/test_server.h"

namespace atl::stack {
namespace {

TEST(PublicAddressTest, WhatCannotWorkIsRefusedByItsFlag) {
    EXPECT_EQ(check_address({"coordinator:7443", {}, {}, {}}).error().field, "--public-url");
    EXPECT_EQ(check_address({"https://coordinator/", {}, {}, {}}).error().field, "--public-url");
    const TemporaryDirectory directory;
    const auto cert = directory.path() / "cert", key = directory.path() / "key";
    ASSERT_TRUE(write_file_atomic(cert, "").ok());
    EXPECT_EQ(check_address({"https://c", "0.0.0.0:7443", cert, key}).error().field, "--tls-key");
    ASSERT_TRUE(write_file_atomic(key, "").ok());
    EXPECT_EQ(check_address({{}, "0.0.0.0:7443", cert, key}).error().field, "--public-url");
    EXPECT_EQ(check_address({"https://c", "0.0.0.0:7443", cert, key}).error().field, "--tls-certificate");
    EXPECT_EQ(check_address({"https://c", "0.0.0.0:7443", {}, {}}).error().field, "--public-listen");
    EXPECT_EQ(check_address({"https://c", {}, "cert", "key"}).error().field, "--public-listen");
    for (const std::string wrong : {"10.0.0.0/33", "10.0.0/8", "proxy", "10.0.0.1;", "::1/129", "10.0.0.1/",
                                    "0.0.0.0/0", "10.0.0.1/-0", "10.0.0.1 x"})
        EXPECT_EQ(check_proxies(wrong).error().field, "--trusted-proxies") << wrong;
    EXPECT_EQ(check_address({"https://c", {}, {}, {}, "proxy"}).error().field, "--trusted-proxies");
    EXPECT_TRUE(check_proxies("192.0.2.10,10.0.0.0/8,2001:db8::/32,::1").ok());
    EXPECT_TRUE(check_proxies("").ok());
    int first_free = 0;  // 0 in some containers, where anybody may have any port
    std::ifstream("/proc/sys/net/ipv4/ip_unprivileged_port_start") >> first_free;
    const Error refused = check_address({"https://c", "0.0.0.0:443", cert, key}).error();
    EXPECT_EQ(refused.field == "--public-listen", first_free > 443) << refused.message;
}

TEST(OwnerTest, ADirectoryOfAnotherUsersStackIsRefused) {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
    const TemporaryDirectory directory;
    std::filesystem::permissions(directory.path(), std::filesystem::perms(0711));
    const Layout layout{directory.path() / "state"};
    ASSERT_TRUE(make_directories(layout).ok());
    ASSERT_TRUE(write_file_atomic(layout.file(), R"({"components": ["kafka"]})", 0600).ok());
    UpOptions options;
    options.state = layout.state;
    const Report quiet = [](const std::string&) {};
    ASSERT_EQ(::seteuid(65534), 0);
    const auto started = up(options, quiet);
    const auto seen = stack::status(layout.state);
    const auto stopped = down(layout.state, false, quiet);
    ASSERT_EQ(::seteuid(0), 0);
    for (const Error& error : {started.error(), seen.error(), stopped.error()}) {
        EXPECT_EQ(error.field, "--state");
        EXPECT_NE(error.message.find("belongs to root: run atoll as that user"), std::string::npos) << error.message;
    }
    EXPECT_TRUE(check_owner(layout.state).ok());
}

// A directory with the stack.json of a stack whose gateway is the server.
class LocalGatewayTest : public ::testing::Test {
  protected:
    LocalGatewayTest() {
        std::filesystem::create_directory(run_);
        std::filesystem::permissions(run_, std::filesystem::perms(0700));
        const nlohmann::json stack = {{"gateway_socket", address_}};
        check(write_file_atomic(Layout{directory_.path()}.file(), stack.dump()).ok(), "cannot write stack.json");
    }

    http::ServerOptions at_socket() const {
        http::ServerOptions options;
        options.address = address_;
        return options;
    }

    TemporaryDirectory directory_;
    std::filesystem::path run_ = directory_.path() / "run";
    std::string address_ = "unix:" + (run_ / "gateway.sock").string();
};

TEST_F(LocalGatewayTest, ItIsThereWhileSomebodyListens) {
    EXPECT_EQ(local_gateway(directory_.path()).error().code, ErrorCode::kUnavailable);
    {
        const http::TestServer gateway([](http::Server&) {}, at_socket());
        EXPECT_EQ(local_gateway(directory_.path()).value(), address_ + ":");
    }
    const auto gone = local_gateway(directory_.path());
    ASSERT_FALSE(gone.ok());
    EXPECT_NE(gone.error().message.find("atoll up --state "), std::string::npos) << gone.error().message;
}

TEST_F(LocalGatewayTest, ASocketWhereOthersMayMakeOneIsNotSpokenTo) {
    const http::TestServer gateway([](http::Server&) {}, at_socket());
    std::filesystem::permissions(run_, std::filesystem::perms(0701));
    EXPECT_EQ(local_gateway(directory_.path()).error().code, ErrorCode::kConflict);
    std::filesystem::permissions(run_, std::filesystem::perms(0700));
    EXPECT_TRUE(local_gateway(directory_.path()).ok());
    if (::geteuid() != 0) return;  // only root can give files away
    ASSERT_EQ(::chown(run_.c_str(), 65534, 65534), 0);
    EXPECT_EQ(local_gateway(directory_.path()).error().code, ErrorCode::kConflict);
}

TEST_F(LocalGatewayTest, AddressesOfSocketsCanBeTakenApart) {
    const Layout plain{"/srv/atoll"}, with_colon{"/srv/atoll:/x"};
    EXPECT_EQ(plain.socket("gateway"), "/srv/atoll/run/gateway.sock");
    EXPECT_TRUE(with_colon.socket("gateway").string().starts_with("/tmp/atoll-")) << with_colon.socket("gateway");
}

}  // namespace
}  // namespace atl::stack
