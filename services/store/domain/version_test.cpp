#include "services/store/domain/version.h"

#include <gtest/gtest.h>

#include "services/store/domain/byte_range.h"
#include "shared/json/json.h"

namespace atl::store {
namespace {

using auth::Principal;
using auth::Role;
using nlohmann::json;

const std::string kSha(64, 'a');
const std::string kBase(64, 'b');
const std::string kOther(64, 'c');

json version_body() {
    return {{"manifest",
             {{"schema", 1},
              {"files", {{{"path", "config.json"}, {"size", 2}, {"chunks", {{{"sha256", kSha}, {"size", 2}}}}}}}}},
            {"kind", "update"},
            {"parents", {kBase}},
            {"job", "job1"},
            {"round", 3}};
}

json with(json value, const char* pointer, json member) {
    value[json::json_pointer(pointer)] = std::move(member);
    return value;
}

std::string field_of_error(const json& body) {
    const auto parsed = parse_new_version(body);
    return parsed.ok() ? "no error" : parsed.error().field;
}

TEST(StoreDomainTest, AVersionIsReadWithAllItsMembers) {
    const json contributions = {{{"facility", "here"}, {"version", kOther}, {"weight", 2.5}, {"tokens", 7}}};
    const auto version = parse_new_version(with(version_body(), "/contributions", contributions));
    ASSERT_TRUE(version.ok()) << version.error().message;
    EXPECT_EQ(version->kind, Kind::kUpdate);
    EXPECT_EQ(version->parents, std::vector{kBase});
    EXPECT_EQ(version->job, "job1");
    EXPECT_EQ(version->round, 3);
    EXPECT_EQ(version->digest, store_client::manifest_digest(version->manifest));
    EXPECT_EQ(version->contributions[0]["weight"], 2.5);
    EXPECT_EQ(version->contributions[0]["samples"], 0);
    EXPECT_FALSE(version->contributions[0].contains("norm"));
    json measured = contributions;
    measured[0].update({{"norm", 3.5}, {"cosine", -0.25}, {"counted", 0.5}});
    const auto figures = parse_new_version(with(version_body(), "/contributions", measured))->contributions[0];
    EXPECT_EQ(figures["norm"], 3.5);
    EXPECT_EQ(figures["cosine"], -0.25);
    EXPECT_EQ(figures["counted"], 0.5);
}

TEST(StoreDomainTest, WhatIsWrongInAVersionIsNamed) {
    EXPECT_EQ(field_of_error(json::object()), "manifest");
    EXPECT_EQ(field_of_error(with(version_body(), "/manifest/files/0/path", "../../etc/passwd")),
              "manifest.files[0].path");
    EXPECT_EQ(field_of_error(with(version_body(), "/colour", "red")), "colour");
    EXPECT_EQ(field_of_error(with(version_body(), "/kind", "final")), "kind");
    EXPECT_EQ(field_of_error(with(version_body(), "/parents/0", "abc")), "parents[0]");
    EXPECT_EQ(field_of_error(with(version_body(), "/parents", kBase)), "parents");
    EXPECT_EQ(field_of_error(with(version_body(), "/round", -1)), "round");
    EXPECT_EQ(field_of_error(with(version_body(), "/metrics", {1, 2})), "metrics");
    EXPECT_EQ(field_of_error(with(version_body(), "/metrics/x", std::string(70000, 'x'))), "metrics");
    EXPECT_EQ(field_of_error(with(version_body(), "/contributions", {{{"facility", "here"}}})),
              "contributions[0].version");
    EXPECT_EQ(field_of_error(with(version_body(), "/contributions",
                                  {{{"facility", "here"}, {"version", kOther}, {"weight", -1}}})),
              "contributions[0].weight");
}

TEST(StoreDomainTest, AModelHasAProperNameAndAShortDescription) {
    EXPECT_EQ(parse_new_model({{"name", "Upper"}}).error().field, "name");
    EXPECT_EQ(parse_new_model({{"name", "a"}, {"description", std::string(5000, 'x')}}).error().field, "description");
}

TEST(StoreDomainTest, AtMost4096DigestsAtOnce) {
    EXPECT_EQ(parse_digest_list({{"digests", std::vector<std::string>(4096, kSha)}})->size(), 4096U);
    EXPECT_EQ(parse_digest_list({{"digests", std::vector<std::string>(4097, kSha)}}).error().field, "digests");
    EXPECT_EQ(parse_digest_list({{"digests", {kSha, "x"}}}).error().field, "digests[1]");
}

Principal facility() {
    Principal principal;
    principal.subject = "leonardo";
    principal.role = Role::kFacility;
    principal.scope = auth::TaskScope{"leonardo", "job1", "task1", "1", {kBase}, "out", 3};
    return principal;
}

bool may_write(const Principal& principal, const std::string& model, const json& body) {
    return may_write_version(principal, model, parse_new_version(body).value()).ok();
}

TEST(StoreDomainTest, AFacilityWritesOnlyItsOwnUpdate) {
    EXPECT_TRUE(may_write(facility(), "out", version_body()));
    EXPECT_FALSE(may_write(facility(), "other", version_body())) << "another model";
    EXPECT_FALSE(may_write(facility(), "out", with(version_body(), "/kind", "global")));
    EXPECT_FALSE(may_write(facility(), "out", with(version_body(), "/kind", "base")));
    EXPECT_FALSE(may_write(facility(), "out",
                           with(version_body(), "/contributions", {{{"facility", "x"}, {"version", kOther}}})));
    Principal without_scope = facility();
    without_scope.scope.reset();
    EXPECT_FALSE(may_write(without_scope, "out", version_body()));
}

TEST(StoreDomainTest, AnUpdatesOriginIsItsTokens) {
    const auto scope = facility().scope.value();
    const auto origin = [&](const json& body) {
        auto version = parse_new_version(body).value();
        const Status taken = take_origin(scope, version);
        if (!taken.ok()) return taken.error().field;
        return *version.job + " " + std::to_string(*version.round) + " " +
               (version.parents == scope.read_versions ? "base" : "?");
    };
    EXPECT_EQ(origin(version_body()), "job1 3 base");
    json silent = version_body();
    for (const char* key : {"job", "round", "parents"}) silent.erase(key);
    EXPECT_EQ(origin(silent), "job1 3 base");
    EXPECT_EQ(origin(with(version_body(), "/job", "job2")), "job");
    EXPECT_EQ(origin(with(version_body(), "/round", 999999)), "round");
    EXPECT_EQ(origin(with(version_body(), "/parents/0", kOther)), "parents");
    EXPECT_EQ(origin(with(version_body(), "/parents", {kBase, kBase})), "parents");
    auto reading_more = scope;
    reading_more.read_versions.push_back(kOther);
    auto version = parse_new_version(version_body()).value();
    EXPECT_TRUE(take_origin(reading_more, version).ok()) << "behind an adapter stands its model";
    EXPECT_EQ(version.parents, scope.read_versions);
    reading_more.read_versions.push_back(kOther);
    EXPECT_EQ(take_origin(reading_more, version).error().code, ErrorCode::kPermissionDenied);
}

Principal person(const std::string& subject, Role role = Role::kOperator) {
    Principal principal;
    principal.subject = subject;
    principal.role = role;
    return principal;
}

TEST(StoreDomainTest, OnlyAggregationAndAdminsWriteWhatRoundsMake) {
    json base = {{"manifest", version_body().at("manifest")}};
    for (const Role role : {Role::kAdmin, Role::kOperator, Role::kViewer}) {
        EXPECT_EQ(may_write(person("ada", role), "any", base), role != Role::kViewer);
        EXPECT_TRUE(may_read_version(person("ada", role), kOther).ok());
    }
    const auto field_for_ada = [&](const json& body) {
        return may_write_version(person("ada"), "any", parse_new_version(body).value()).error().field;
    };
    for (const char* kind : {"global", "optimizer_state"}) {
        const json made = with(base, "/kind", kind);
        EXPECT_EQ(field_for_ada(made), "kind");
        EXPECT_TRUE(may_write(person("aggregation"), "any", made));
        EXPECT_FALSE(may_write(person("dispatch"), "any", made));
        EXPECT_TRUE(may_write(person("ada", Role::kAdmin), "any", made));
    }
    EXPECT_TRUE(may_write(person("ada"), "any", with(base, "/kind", "update")));
    const json adapter = with(with(base, "/kind", "adapter"), "/parents", json::array({kOther}));
    for (const char* writer : {"ada", "dispatch"}) EXPECT_TRUE(may_write(person(writer), "any", adapter)) << writer;
    for (const char* kind : {"base", "update"})
        EXPECT_FALSE(may_write(person("dispatch"), "any", with(base, "/kind", kind))) << kind;
    EXPECT_EQ(field_for_ada(with(base, "/job", "job1")), "job");
    EXPECT_EQ(field_for_ada(with(base, "/round", 1)), "round");
    EXPECT_EQ(field_for_ada(with(base, "/contributions", {{{"facility", "x"}, {"version", kOther}}})), "contributions");
}

TEST(StoreDomainTest, AVersionIsNoLargeOneOfAFewBlobs) {
    const auto manifest_of = [](std::size_t count, std::uint64_t size) {
        store_client::Manifest manifest;
        manifest.files.push_back({"model.bin", count * size, {count, store_client::Chunk{kOther, size}}});
        return manifest;
    };
    EXPECT_FALSE(check_repeats(manifest_of(20'000, 5'000)).ok());
    EXPECT_TRUE(check_repeats(manifest_of(1'000, 5'000)).ok());
    EXPECT_TRUE(check_repeats(manifest_of(16, 8U << 20)).ok());
    EXPECT_FALSE(check_repeats(manifest_of(20, 8U << 20)).ok());
}

TEST(StoreDomainTest, APersonNamesAFewParentsAndEachOnce) {
    const json base = {{"manifest", version_body().at("manifest")}};
    std::vector<std::string> parents;
    for (int i = 0; i < 16; ++i) parents.push_back(std::string(63, 'a') + "0123456789abcdef"[i]);
    EXPECT_TRUE(may_write(person("ada"), "any", with(base, "/parents", parents)));
    const auto refused = [&](const std::vector<std::string>& named) {
        const auto version = parse_new_version(with(base, "/parents", named)).value();
        EXPECT_TRUE(may_write_version(person("aggregation"), "any", version).ok())
            << "a mean of many, or of equal ones";
        return may_write_version(person("ada"), "any", version).error().field;
    };
    EXPECT_EQ(refused({kOther, kOther}), "parents");
    parents.push_back(kOther);
    EXPECT_EQ(refused(parents), "parents");
}

TEST(StoreDomainTest, OnlyDispatchAndAdminsMakeAModelForSomebodyElse) {
    const auto may = [](const Principal& by, const char* owner) {
        return may_name_owner(by, parse_new_model({{"name", "a"}, {"owner", owner}}).value()).ok();
    };
    EXPECT_TRUE(may(person("ada"), "ada"));
    EXPECT_FALSE(may(person("ada"), "bo"));
    EXPECT_FALSE(may(person("aggregation"), "bo"));
    EXPECT_TRUE(may(person("dispatch"), "bo"));
    EXPECT_TRUE(may(person("ada", Role::kAdmin), "bo"));
}

TEST(StoreDomainTest, OnlyATokenThatHandsInAModelStoresBlobs) {
    EXPECT_TRUE(may_write_blobs(facility()).ok());
    Principal evaluating = facility();
    evaluating.scope->write_model.clear();
    EXPECT_EQ(may_write_blobs(evaluating).error().code, ErrorCode::kPermissionDenied);
    EXPECT_TRUE(may_write_blobs(person("ada")).ok());
}

TEST(StoreDomainTest, AFacilityReadsOnlyTheVersionsOfItsToken) {
    EXPECT_TRUE(may_read_version(facility(), kBase).ok());
    EXPECT_EQ(may_read_version(facility(), kOther).error().code, ErrorCode::kPermissionDenied);
}

std::string range_of(const std::string& header) {
    const auto range = parse_range(header, 10);
    return range.ok() ? std::to_string(range->begin) + "-" + std::to_string(range->end) : "outside";
}

TEST(StoreDomainTest, OneByteRangeIsUnderstoodAndOddOnesAreIgnored) {
    EXPECT_EQ(range_of(""), "0-10");
    EXPECT_EQ(range_of("bytes=0-3"), "0-4");
    EXPECT_EQ(range_of("bytes=4-"), "4-10");
    EXPECT_EQ(range_of("bytes=-3"), "7-10");
    EXPECT_EQ(range_of("bytes=-30"), "0-10");
    EXPECT_EQ(range_of("bytes=8-100"), "8-10");
    EXPECT_EQ(range_of("bytes=10-11"), "outside");
    EXPECT_EQ(range_of("bytes=5-4"), "outside");
    EXPECT_EQ(range_of("bytes=0-1,3-4"), "0-10") << "RFC 9110: a server may ignore ranges";
    EXPECT_EQ(range_of("bytes=99999999999999999999999-"), "0-10");
    EXPECT_EQ(range_of("lines=1-2"), "0-10");
}

}  // namespace
}  // namespace atl::store
