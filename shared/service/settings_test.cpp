#include "shared/service/settings.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "shared/base/file.h"

namespace atl::service {
namespace {

json::Json minimal() {
    return {{"port", 7401}, {"postgres", "host=/run"}, {"kafka_brokers", "127.0.0.1:9092"}, {"public_key_file", "k"}};
}

Result<Arguments> parse(std::vector<const char*> words) {
    words.insert(words.begin(), "atoll-x");
    return parse_arguments(static_cast<int>(words.size()), words.data());
}

TEST(SettingsTest, WhatIsNotGivenHasItsDefault) {
    const Settings settings = parse_settings(minimal(), "store").value();
    EXPECT_EQ(settings.listen_address, "127.0.0.1");
    EXPECT_EQ(settings.port, 7401);
    EXPECT_EQ(settings.postgres_connections, 8);
    EXPECT_EQ(settings.own, json::Json::object());
}

TEST(SettingsTest, TheServicesOwnObjectIsKeptAsItIs) {
    auto config = minimal();
    config["store"] = {{"root", "/blobs"}};
    EXPECT_EQ(parse_settings(config, "store").value().own["root"], "/blobs");
    EXPECT_EQ(parse_settings(config, "dispatch").error().field, "store") << "another service's object is unknown";
}

TEST(SettingsTest, EachWrongKeyIsNamed) {
    const std::vector<std::pair<const char*, json::Json>> wrong = {
        {"port", 70000}, {"port", "7401"},         {"postgres_connections", 0}, {"log_level", "loud"},
        {"postgres", 1}, {"request_bytes_max", 1}, {"listen_address", 127},     {"unknown", 1}};
    for (const auto& [key, value] : wrong) {
        auto config = minimal();
        config[key] = value;
        const auto settings = parse_settings(config, "store");
        ASSERT_FALSE(settings.ok()) << key;
        EXPECT_EQ(settings.error().field, key);
    }
    for (const char* key : {"port", "postgres", "kafka_brokers", "public_key_file"}) {
        auto config = minimal();
        config.erase(key);
        EXPECT_EQ(parse_settings(config, "store").error().field, key);
    }
}

TEST(SettingsTest, APathToListenAtHasNoPort) {
    auto config = minimal();
    config["listen_address"] = "unix:/run/store.sock";
    EXPECT_EQ(parse_settings(config, "store").error().field, "port");
    config.erase("port");
    const Settings settings = parse_settings(config, "store").value();
    EXPECT_TRUE(instance_name(settings).ends_with("/unix:/run/store.sock")) << instance_name(settings);
}

TEST(SettingsTest, TheCredentialsForTheBrokersAreAFileThatIsThere) {
    const TemporaryDirectory directory;
    const auto file = directory.path() / "kafka.pem";
    auto config = minimal();
    config["kafka_credentials_file"] = file.string();
    EXPECT_EQ(parse_settings(config, "store").error().field, "kafka_credentials_file");
    ASSERT_TRUE(write_file_atomic(file, "").ok());
    EXPECT_EQ(parse_settings(config, "store").value().kafka_brokers, file.string() + "@127.0.0.1:9092");
}

TEST(SettingsTest, AFileIsReadAsYaml) {
    const TemporaryDirectory directory;
    const auto file = directory.path() / "store.yaml";
    ASSERT_TRUE(write_file_atomic(file,
                                  "port: 1\npostgres: host=/run\nkafka_brokers: a:1\npublic_key_file: k\n"
                                  "store:\n  root: /blobs\n")
                    .ok());
    EXPECT_EQ(load_settings(file, "store").value().own["root"], "/blobs");
    EXPECT_FALSE(load_settings(directory.path() / "none.yaml", "store").ok());
}

TEST(ArgumentsTest, AConfigurationFileIsNeededUnlessOnlyTextIsAskedFor) {
    EXPECT_EQ(parse({"--config", "a.yaml", "--check-config"}).value().config_file, "a.yaml");
    EXPECT_TRUE(parse({"--config", "a.yaml", "--check-config"}).value().check_only);
    EXPECT_TRUE(parse({"--help"}).value().help);
    EXPECT_TRUE(parse({"--version"}).value().version);
    EXPECT_EQ(parse({}).error().field, "--config");
    EXPECT_EQ(parse({"--config"}).error().field, "--config");
    EXPECT_EQ(parse({"--config", "a", "--verbose"}).error().field, "--verbose");
}

}  // namespace
}  // namespace atl::service
