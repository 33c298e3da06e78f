// What `atoll-SERVICE --check-config` says, asked of the programs themselves.
#include <gtest/gtest.h>

#include "shared/auth/auth.h"
#include "shared/base/file.h"
#include "shared/base/subprocess.h"
#include "shared/json/json.h"

namespace atl::contract {
namespace {

using json::Json;

// The least that a service's own object must hold.
const std::vector<std::pair<std::string, Json>> kOwn = {
    {"registry", Json::object()},
    {"store", {{"root", "/blobs"}}},
    {"dispatch", {{"private_key_file", "/k"}, {"registry_url", "http://a/registry"}, {"store_url", "http://a/store"}}},
    {"aggregation", {{"store_url", "http://a/store"}, {"dispatch_url", "http://a/dispatch"}, {"token_file", "/t"}}}};

class CheckConfigTest : public testing::Test {
  protected:
    CommandResult check_config(const std::string& service, const Json& own) {
        const auto key = directory_.path() / "public.pem";
        const auto file = directory_.path() / (service + ".yaml");
        const Json config = {{"port", 0},
                             {"postgres", "host=/nowhere"},
                             {"kafka_brokers", "127.0.0.1:1"},
                             {"public_key_file", key.string()},
                             {service, own}};
        EXPECT_TRUE(write_file_atomic(key, auth::generate_keys()->public_pem).ok());
        EXPECT_TRUE(write_file_atomic(file, config.dump()).ok());
        const auto program = std::filesystem::path(ATOLL_PROGRAM).parent_path() / ("atoll-" + service);
        return run_command({program.string(), "--config", file.string(), "--check-config"}, {}).value();
    }

    void expect_refused(const std::string& service, const Json& own, const std::string& field) {
        const CommandResult said = check_config(service, own);
        EXPECT_EQ(said.exit_code, 2) << field << said.out;
        EXPECT_NE(said.err.find("atoll-" + service + ": " + field + ": "), std::string::npos) << said.err;
    }

    TemporaryDirectory directory_;
};

TEST_F(CheckConfigTest, AConfigurationThatIsRightIsSaidToBe) {
    for (const auto& [service, own] : kOwn) {
        const CommandResult said = check_config(service, own);
        EXPECT_EQ(said.exit_code, 0) << said.err;
    }
}

TEST_F(CheckConfigTest, AWrongKeyOrValueOfAServicesOwnObjectIsRefusedByItsFullName) {
    for (const auto& [service, own] : kOwn) {
        Json unknown = own;
        unknown["no_such_key"] = 3;
        expect_refused(service, unknown, service + ".no_such_key");
        Json mistyped = own;
        mistyped["topic_prefix"] = 3;
        expect_refused(service, mistyped, service + ".topic_prefix");
        for (const auto& member : own.items()) {
            Json without = own;
            without.erase(member.key());
            expect_refused(service, without, service + "." + member.key());
        }
    }
    expect_refused("store", {{"root", "relative/path"}}, "store.root");
}

}  // namespace
}  // namespace atl::contract
