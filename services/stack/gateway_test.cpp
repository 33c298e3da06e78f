#include "services/stack/gateway.h"

#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>

#include "services/stack/testing/gateway_fixture.h"
#include "shared/auth/certificate.h"
#include "shared/base/file.h"
#include "shared/base/subprocess.h"
#include "shared/http/client/server_certificate.h"

namespace atl::stack {
namespace {

TEST_F(GatewayTest, TheDateIsTheServicesOwn) {
    const auto dated = client().call(Method::kGet, "/store/v1/dated", {}, {}).value();
    EXPECT_EQ(dated.headers.at("date"), "Sun, 06 Nov 1994 08:49:37 GMT");
    const auto own = client().call(Method::kGet, "/store/v1/things/a", {}, {}).value();
    EXPECT_TRUE(own.headers.at("date").ends_with(" GMT")) << own.headers.at("date");
}

TEST_F(GatewayTest, AServicesPrefixIsStrippedAndTheRestKept) {
    const auto answer = client().get_json("/registry/v1/things/a.b?x=1%2C2").value();
    EXPECT_EQ(answer["path"], "/v1/things/a.b");
    EXPECT_EQ(answer["query"]["x"], "1,2");
    EXPECT_EQ(answer["gateway"], "1");
}

TEST_F(GatewayTest, APathThatWouldLeadElsewhereIsRefused) {
    const auto status = [&](const std::string& path) {
        const auto answer = run_command({"curl", "-s", "--path-as-is", "-o", "/dev/null", "-w", "%{http_code}", "-H",
                                         "Authorization: Bearer " + backend_.token(auth::Role::kOperator),
                                         "http://" + options_.listen + path});
        return answer.ok() ? answer->out : answer.error().message;
    };
    EXPECT_EQ(status("/store/v1/things/a"), "200");
    EXPECT_EQ(status("/store/v1/things/a..b?x=/../%2F"), "200");
    for (const char* path :
         {"/store/v1/models/m/versions/..%2F..%2Fthings%2Fa", "/store/v1/models/../things/a",
          "/store/v1/models/%2e%2E/things/a", "/store/v1/models/.%2e/things/a", "/store/v1/things/%5ca",
          "/store/v1/./things/a", "/store/v1/things/..", "/store/v1/things/..?x=1"})
        EXPECT_EQ(status(path), "400") << path;
}

TEST_F(GatewayTest, ACallersRequestIdIsPassedOnOnlyWhenItIsHarmless) {
    http::CallOptions options;
    options.headers = {{"X-Request-Id", "abc-123"}};
    auto caller = client();
    EXPECT_EQ(caller.call(Method::kGet, "/store/v1/things/x", {}, options)->json().value()["id"], "abc-123");
    options.headers = {{"X-Request-Id", "a b\"c"}};
    const std::string replaced = caller.call(Method::kGet, "/store/v1/things/x", {}, options)->json().value()["id"];
    EXPECT_EQ(replaced.size(), 32U) << replaced;
}

TEST_F(GatewayTest, ABlobAManifestOrAPartOfAnImageMayHave16MiBAndAnythingElseOne) {
    auto caller = client();
    const std::string large(16U << 20, 'x');
    EXPECT_EQ(caller.call(Method::kPut, "/store/v1/blobs/abcd", large)->json().value()["bytes"], large.size());
    const std::string manifest(16U << 20, 'x');
    const auto taken = caller.call(Method::kPost, "/store/v1/models/big/versions", manifest).value();
    ASSERT_EQ(taken.status, 200) << taken.body;
    EXPECT_EQ(taken.json().value()["bytes"], manifest.size());
    const char* image = "/dispatch/v1/facilities/leonardo/image";
    EXPECT_EQ(caller.call(Method::kPut, image, large)->status, 404) << "it comes to a dispatch that has no such route";
    for (const auto& [method, path, body] :
         {std::tuple{Method::kPut, "/store/v1/blobs/abcd", large + "x"},
          {Method::kPost, "/store/v1/models/big/versions", manifest + "x"},
          {Method::kPut, image, large + "x"},
          {Method::kPost, "/dispatch/v1/things", std::string((1U << 20) + 1, 'x')}}) {
        const auto refused = caller.call(method, path, body);
        ASSERT_TRUE(refused.ok()) << refused.error().message;
        EXPECT_EQ(refused->status, 413);
        EXPECT_EQ(refused->headers.at("content-type"), "application/problem+json");
        EXPECT_EQ(nlohmann::json::parse(refused->body)["type"], "urn:atoll:problem:too-large");
    }
}

TEST_F(GatewayTest, AnAuthorisedDownloadIsServedFromTheFileWithRanges) {
    auto caller = client();
    const auto whole = caller.call(Method::kGet, "/store/v1/blobs/abcd").value();
    EXPECT_EQ(whole.body, kBlob);
    EXPECT_EQ(whole.headers.at("etag"), "\"cd\"");
    http::CallOptions options;
    options.headers = {{"Range", "bytes=10-"}};
    const auto part = caller.call(Method::kGet, "/store/v1/blobs/abcd", {}, options).value();
    EXPECT_EQ(part.status, 206);
    EXPECT_EQ(part.body, "abcdef");
}

// What the console's folder holds, by name.
std::map<std::string, std::string> console_files(const std::filesystem::path& folder) {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
        files[entry.path().filename()] = read_file(entry.path()).value();
    return files;
}

TEST_F(GatewayTest, TheConsoleIsServedAsItsFolderHoldsIt) {
    const auto source = console_files(ATOLL_CONSOLE_PAGE);
    EXPECT_EQ(console_files(options_.directory / "console"), source) << "console.cpp lists the page's files";
    const std::map<std::string, std::string> types = {{".html", "text/html; charset=utf-8"},
                                                      {".css", "text/css; charset=utf-8"},
                                                      {".js", "text/javascript; charset=utf-8"},
                                                      {".svg", "image/svg+xml"}};
    auto caller = client();
    for (const auto& [name, content] : source) {
        const auto answer = caller.call(Method::kGet, "/console/" + name).value();
        EXPECT_EQ(answer.status, 200) << name;
        EXPECT_TRUE(answer.body == content) << name;
        EXPECT_EQ(answer.headers.at("content-type"), types.at(std::filesystem::path(name).extension())) << name;
    }
    EXPECT_EQ(caller.call(Method::kGet, "/console/")->body, source.at("index.html"));
    for (const char* path : {"/", "/console"}) {
        const auto redirect = caller.call(Method::kGet, path).value();
        EXPECT_EQ(redirect.status, 302) << path;
        EXPECT_EQ(redirect.headers.at("location"), "/console/") << path;
    }
    EXPECT_EQ(caller.call(Method::kGet, "/console/nothing.js")->status, 404);
}

TEST_F(GatewayTest, EveryFileOfTheConsoleComesWithStrictHeaders) {
    auto caller = client();
    for (const auto& [name, content] : console_files(ATOLL_CONSOLE_PAGE)) {
        const auto headers = caller.call(Method::kGet, "/console/" + name)->headers;
        const std::string policy = headers.at("content-security-policy");
        for (const char* part : {"default-src 'self';", "object-src 'none'", "base-uri 'none'", "form-action 'none'",
                                 "frame-ancestors 'none'", "require-trusted-types-for 'script'"})
            EXPECT_NE(policy.find(part), std::string::npos) << name << ": " << policy;
        EXPECT_EQ(policy.find("unsafe"), std::string::npos) << policy;
        EXPECT_EQ(headers.at("x-content-type-options"), "nosniff") << name;
        EXPECT_EQ(headers.at("referrer-policy"), "no-referrer") << name;
        EXPECT_EQ(headers.at("cache-control"), "no-cache") << name << ": a new program's page is seen at once";
    }
}

TEST(ConsolePageTest, NoFileRefersToAnotherOriginOrHoldsInlineScriptOrStyle) {
    const std::regex origin("(https?:|wss?:|[\"'(= ])//[a-zA-Z0-9]");
    const std::regex in_the_page("<style|\\sstyle=|\\son[a-z]+=|<script(?![^>]*\\ssrc=)|javascript:");
    for (auto [name, content] : console_files(ATOLL_CONSOLE_PAGE)) {
        const std::string space = "http://www.w3.org/2000/svg";  // a name, never fetched
        if (const auto at = content.find(space); at != std::string::npos) content.erase(at, space.size());
        EXPECT_FALSE(std::regex_search(content, origin)) << name;
        const bool is_markup = name.ends_with(".html") || name.ends_with(".svg");
        EXPECT_FALSE(is_markup && std::regex_search(content, in_the_page)) << name;
        EXPECT_EQ(content.find("innerHTML"), std::string::npos) << name;
    }
}

TEST_F(GatewayTest, NobodyReachesTheFilesOrTheMetricsDirectly) {
    auto caller = client();
    for (const char* path : {"/internal/blobs/ab/cd", "/store/metrics", "/registry/metrics", "/nothing"}) {
        const auto answer = caller.call(Method::kGet, path).value();
        EXPECT_EQ(answer.status, 404) << path;
        EXPECT_EQ(nlohmann::json::parse(answer.body)["type"], "urn:atoll:problem:not-found") << path;
    }
}

TEST_F(GatewayTest, AServiceThatIsAwayIsUnavailableWithRetryAfter) {
    backend_.server().stop();
    const auto answer = client().call(Method::kGet, "/dispatch/v1/things/x").value();
    EXPECT_EQ(answer.status, 503);
    EXPECT_EQ(answer.headers.count("retry-after"), 1U);
    EXPECT_EQ(answer.json().error().code, ErrorCode::kUnavailable);
}

TEST_F(GatewayTest, NginxOwnErrorsAreProblems) {
    http::CallOptions options;
    const auto problem = [&](const std::string& path) {
        return client().call(Method::kGet, path, {}, options).value();
    };
    EXPECT_EQ(problem("/nowhere").json().error().code, ErrorCode::kNotFound);
    options.headers = {{"Range", "bytes=100-200"}};
    const auto range = problem("/store/v1/blobs/cd");
    EXPECT_EQ(range.status, 416);
    EXPECT_EQ(range.headers.at("content-type"), "application/problem+json");
    options.headers = {{"X-Long", std::string(20000, 'x')}, {"X-Request-Id", "mine"}};
    const auto header = problem("/store/v1/things/a");
    EXPECT_EQ(header.status, 400);
    EXPECT_EQ(header.headers.at("content-type"), "application/problem+json");
    EXPECT_NE(header.body.find("16 KiB"), std::string::npos) << header.body;
}

// A key and a certificate for 127.0.0.1 that vouches for itself.
void make_certificate(const std::string& key, const std::string& certificate) {
    const auto made = run_command({"openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                                   "-nodes", "-keyout", key, "-out", certificate, "-days", "2", "-subj",
                                   "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"});
    ASSERT_TRUE(made.ok() && made->exit_code == 0) << made->err;
}

TEST_F(GatewayTest, FacilitiesElsewhereComeByTlsAndTheServicesByLoopback) {
    const auto file = [this](const char* name) { return (directory_.path() / name).string(); };
    make_certificate(file("key.pem"), file("cert.pem"));
    ASSERT_TRUE(stop_recorded(pid_file(), SIGQUIT, std::chrono::seconds(5)).ok());
    options_.public_listen = loopback(choose_ports(0)->gateway);
    options_.certificate = file("cert.pem");
    options_.certificate_key = file("key.pem");
    start();
    http::ClientOptions elsewhere;
    elsewhere.base_url = "https://" + options_.public_listen;
    elsewhere.attempts_max = 1;
    EXPECT_FALSE(http::Client(elsewhere).get_json("/store/v1/things/a").ok()) << "nobody vouches for the certificate";
    elsewhere.ca_file = file("cert.pem");
    const auto answer = http::Client(elsewhere).get_json("/store/v1/things/a");
    ASSERT_TRUE(answer.ok()) << answer.error().message;
    EXPECT_EQ(answer->at("path"), "/v1/things/a");
    // Who looks when its certificate ends need not trust it.
    const auto shown = http::server_certificate(elsewhere.base_url, std::chrono::seconds(10));
    ASSERT_TRUE(shown.ok()) << shown.error().message;
    EXPECT_EQ(auth::certificate_end_s(*shown).value(),
              auth::certificate_end_s(read_file(file("cert.pem")).value()).value());
    EXPECT_FALSE(http::server_certificate("https://" + loopback(1), std::chrono::seconds(10)).ok());
}

TEST_F(GatewayTest, WhoDoesNotTrustItsCertificateIsToldWhatHelps) {
    const auto file = [this](const char* name) { return directory_.path() / name; };
    const auto serve = [&](const std::string& authority, const std::string& host) {
        ASSERT_TRUE(stop_recorded(pid_file(), SIGQUIT, std::chrono::seconds(5)).ok());
        const auto issued = auth::issue_credentials(authority, "gateway", {host}, std::chrono::hours(24));
        ASSERT_TRUE(issued.ok() && write_file_atomic(file("server.pem"), *issued).ok());
        options_.public_listen = loopback(choose_ports(0)->gateway);
        options_.certificate = options_.certificate_key = file("server.pem");
        start();
    };
    // Of an authority of one's own: it knows that of the machine's files, or this one.
    const auto refusal = [&](const std::filesystem::path& ca_file) {
        http::ClientOptions options;
        options.base_url = "https://" + options_.public_listen;
        options.attempts_max = 1;
        options.ca_file = ca_file.string();
        const auto answer = http::Client(options).get_json("/store/v1/things/a");
        return answer.ok() ? std::string() : answer.error().message;
    };
    constexpr char kAdvice[] =
        "; if the certificate is of an authority of your own, set ATOLL_CA_FILE to a PEM file with the authority's "
        "certificate";
    const std::string authority = auth::make_authority("an authority").value();
    ASSERT_TRUE(write_file_atomic(file("ca.pem"), authority.substr(authority.find("-----BEGIN CERT"))).ok());
    ASSERT_TRUE(write_file_atomic(file("text"), "no PEM").ok());
    serve(authority, "127.0.0.1");
    EXPECT_EQ(refusal(file("ca.pem")), "");
    EXPECT_TRUE(refusal({}).ends_with(kAdvice)) << refusal({});
    for (const char* name : {"text", "none"}) {
        const std::string said = refusal(file(name));
        EXPECT_TRUE(said.ends_with("; ATOLL_CA_FILE must name a PEM file of certificates")) << said;
    }
    serve(authority, "192.0.2.1");
    const std::string elsewhere = refusal(file("ca.pem"));
    EXPECT_FALSE(elsewhere.empty() || elsewhere.find("ATOLL_CA_FILE") != std::string::npos)
        << "the authority is known, the name is wrong: " << elsewhere;
}

TEST_F(GatewayTest, ItAnswersAtItsSocketAlsoWhereAKilledOneHasLeftTheFile) {
    ASSERT_TRUE(stop_recorded(pid_file(), SIGQUIT, std::chrono::seconds(5)).ok());
    options_.socket = directory_.path() / "the gateway.sock";
    http::ClientOptions here;
    here.base_url = "unix:" + options_.socket.string() + ":/store";
    here.attempts_max = 1;
    for (int life = 0; life < 2; ++life) {
        start();
        const auto answer = http::Client(here).get_json("/v1/things/a");
        ASSERT_TRUE(answer.ok()) << answer.error().message;
        EXPECT_EQ(answer->at("path"), "/v1/things/a");
        ASSERT_EQ(::kill(-running_process(pid_file())->pid, SIGKILL), 0);
        ASSERT_TRUE(std::filesystem::exists(options_.socket));
    }
}

TEST_F(GatewayTest, WithAClientAuthorityOnlyClientsWithItsCertificateGetAnything) {
    const auto file = [this](const char* name) { return (directory_.path() / name).string(); };
    make_certificate(file("key.pem"), file("cert.pem"));
    make_certificate(file("client-key.pem"), file("client.pem"));
    ASSERT_TRUE(stop_recorded(pid_file(), SIGQUIT, std::chrono::seconds(5)).ok());
    options_.certificate = file("cert.pem");
    options_.certificate_key = file("key.pem");
    options_.client_ca = file("client.pem");
    const auto argv = prepare_gateway(options_);
    ASSERT_TRUE(argv.ok()) << argv.error().message;
    ASSERT_TRUE(start_recorded(*argv, pid_file(), directory_.path() / "nginx.log").ok());
    http::ClientOptions options;
    options.base_url = "https://" + options_.listen;
    const auto stranger = http::Client(options).call(Method::kGet, "/store/v1/things/a");
    ASSERT_FALSE(stranger.ok());
    EXPECT_NE(stranger.error().message.find("set ATOLL_CA_FILE to a PEM file"), std::string::npos)
        << stranger.error().message;
    ::setenv("ATOLL_CA_FILE", file("cert.pem").c_str(), 1);
    const auto refused = http::Client(options).call(Method::kGet, "/store/v1/things/a");
    ASSERT_TRUE(refused.ok()) << refused.error().message;
    EXPECT_EQ(refused->status, 400);
    EXPECT_NE(refused->body.find("ATOLL_CLIENT_CERTIFICATE"), std::string::npos) << refused->body;
    ::setenv("ATOLL_CLIENT_CERTIFICATE", file("client.pem").c_str(), 1);
    ::setenv("ATOLL_CLIENT_KEY", file("client-key.pem").c_str(), 1);
    const auto answer = http::Client(options).get_json("/store/v1/things/a");
    for (const char* name : {"ATOLL_CA_FILE", "ATOLL_CLIENT_CERTIFICATE", "ATOLL_CLIENT_KEY"}) ::unsetenv(name);
    ASSERT_TRUE(answer.ok()) << answer.error().message;
    EXPECT_EQ(answer->at("path"), "/v1/things/a");
}

TEST(GatewayConfigurationTest, AValueThatNginxCouldMisreadIsRefusedByItsFlag) {
    GatewayOptions options;
    options.directory = "/tmp/x";
    options.blobs = "/srv/blobs\"; } evil {";
    const auto refused = gateway_configuration(options, {});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().field, "--blobs");
    options.blobs = "/srv/a blob directory";
    EXPECT_TRUE(gateway_configuration(options, {}).ok());
    options.certificate = "/srv/cert.pem";
    EXPECT_EQ(gateway_configuration(options, {}).error().field, "--tls-key");
}

}  // namespace
}  // namespace atl::stack
