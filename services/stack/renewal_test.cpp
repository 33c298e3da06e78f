#include "services/stack/renewal.h"

#include "services/stack/testing/gateway_fixture.h"
#include "shared/base/subprocess.h"

namespace atl::stack {
namespace {

TEST(FileWatchTest, OnlyAReplacedFileHasChanged) {
    const TemporaryDirectory directory;
    const auto file = directory.path() / "cert.pem";
    ASSERT_TRUE(write_file_atomic(file, "a").ok());
    FileWatch watch({file, {}});
    EXPECT_FALSE(watch.has_changed());
    std::filesystem::remove(file);
    EXPECT_FALSE(watch.has_changed()) << "it is being replaced";
    ASSERT_TRUE(write_file_atomic(file, "b").ok());
    EXPECT_TRUE(watch.has_changed());
    EXPECT_FALSE(watch.has_changed());
}

// The gateway of `atoll up`: nginx alone, with what the supervisor does for it.
class RenewalTest : public ::testing::Test {
  protected:
    RenewalTest() {
        stack_.layout.state = directory_.path() / "state";
        stack_.ports = choose_ports(0).value();
        stack_.address = {.url = "https://localhost:1",
                          .listen = loopback(choose_ports(0)->gateway),
                          .certificate = directory_.path() / "cert.pem",
                          .certificate_key = directory_.path() / "key.pem"};
        check(make_directories(stack_.layout).ok(), "cannot make the state directory");
    }
    ~RenewalTest() override { (void)stop_recorded(pid_file(), SIGQUIT, std::chrono::seconds(5)); }
    std::filesystem::path pid_file() const { return stack_.layout.pid_file("gateway"); }
    void make_certificate(const std::string& name) const {
        const auto made = run_command({"openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                                       "ec_paramgen_curve:P-256", "-nodes", "-keyout", stack_.address.certificate_key,
                                       "-out", stack_.address.certificate, "-days", "2", "-subj", "/CN=" + name});
        ASSERT_TRUE(made.ok() && made->exit_code == 0) << made->err;
    }
    static bool within_a_minute(const std::function<bool()>& holds) {
        for (const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
             std::chrono::steady_clock::now() < end;) {
            if (holds()) return true;
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
        }
        return false;
    }

    TemporaryDirectory directory_;
    Stack stack_;
    std::vector<std::string> lines_;
    Renewal renewal_{[this](const std::string& line) { lines_.push_back(line); }};
};

TEST_F(RenewalTest, NginxTakesARenewedCertificate) {
    make_certificate("before");
    const auto argv = gateway_component(stack_).start();
    ASSERT_TRUE(argv.ok()) << argv.error().message;
    ASSERT_TRUE(start_recorded(*argv, pid_file(), stack_.layout.log("gateway")).ok());
    ASSERT_TRUE(within_a_minute([&] { return shows_certificate_of(stack_.address.listen, "before"); }));
    renewal_.look(stack_);
    EXPECT_TRUE(lines_.empty()) << lines_.front();
    make_certificate("after");
    EXPECT_TRUE(within_a_minute([&] {
        renewal_.look(stack_);
        return shows_certificate_of(stack_.address.listen, "after");
    }));
    EXPECT_FALSE(lines_.empty());
}

}  // namespace
}  // namespace atl::stack
