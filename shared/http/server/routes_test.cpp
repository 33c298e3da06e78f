#include "shared/http/server/routes.h"

#include <gtest/gtest.h>

namespace atl::http {
namespace {

RouteTable table_of(std::initializer_list<std::pair<Method, const char*>> routes) {
    RouteTable table;
    for (const auto& [method, pattern] : routes)
        table.add({method, pattern, Access::open(), [](const Request&) { return Response::empty(); }, nullptr, {}, {}});
    return table;
}

std::string pattern_of(const RouteTable& table, Method method, const char* path) {
    const Match match = table.match(method, path).value();
    return match.route == nullptr ? "" : match.route->pattern;
}

TEST(RoutesTest, AParameterMatchesOneSegmentAndIsDecoded) {
    const auto table = table_of({{Method::kGet, "/v1/jobs/:id/rounds"}});
    const Match match = table.match(Method::kGet, "/v1/jobs/a%20b/rounds").value();
    ASSERT_NE(match.route, nullptr);
    EXPECT_EQ(match.params.at("id"), "a b");
    EXPECT_EQ(pattern_of(table, Method::kGet, "/v1/jobs/a/b/rounds"), "");
    EXPECT_EQ(pattern_of(table, Method::kGet, "/v1/jobs//rounds"), "");
    EXPECT_EQ(pattern_of(table, Method::kGet, "/v1/jobs/a/rounds/"), "");
}

TEST(RoutesTest, ALiteralWinsOverAParameterWhateverTheOrder) {
    const auto table = table_of({{Method::kPost, "/v1/blobs/:digest"}, {Method::kPost, "/v1/blobs/missing"}});
    EXPECT_EQ(pattern_of(table, Method::kPost, "/v1/blobs/missing"), "/v1/blobs/missing");
    EXPECT_EQ(pattern_of(table, Method::kPost, "/v1/blobs/abc"), "/v1/blobs/:digest");
    const auto others = table_of({{Method::kPut, "/v1/blobs/:digest"}, {Method::kPost, "/v1/blobs/missing"}});
    const Match match = others.match(Method::kPut, "/v1/blobs/missing").value();
    EXPECT_EQ(match.route, nullptr);
    EXPECT_EQ(match.allowed, std::vector<Method>{Method::kPost});
}

TEST(RoutesTest, AnotherMethodOfAKnownPathListsThoseAllowed) {
    const auto table = table_of({{Method::kGet, "/v1/jobs"}, {Method::kPost, "/v1/jobs"}});
    const Match match = table.match(Method::kDelete, "/v1/jobs").value();
    EXPECT_EQ(match.route, nullptr);
    EXPECT_EQ(match.allowed, (std::vector<Method>{Method::kGet, Method::kPost}));
    EXPECT_TRUE(table.match(Method::kGet, "/v2/jobs").value().allowed.empty());
}

TEST(RoutesTest, AGetRouteAnswersHeadUnlessThereIsAHeadRoute) {
    EXPECT_EQ(pattern_of(table_of({{Method::kGet, "/a"}}), Method::kHead, "/a"), "/a");
    const auto table = table_of({{Method::kGet, "/a"}, {Method::kHead, "/a"}});
    EXPECT_EQ(table.match(Method::kHead, "/a").value().route->method, Method::kHead);
    EXPECT_EQ(table.match(Method::kGet, "/a").value().route->method, Method::kGet);
}

TEST(RoutesTest, AnEncodedSlashOrNulInAParameterIsRefused) {
    const auto table = table_of({{Method::kGet, "/v1/models/:name"}});
    for (const char* path : {"/v1/models/a%2Fb", "/v1/models/a%00", "/v1/models/a%2"})
        EXPECT_EQ(table.match(Method::kGet, path).error().code, ErrorCode::kInvalidArgument) << path;
}

TEST(RoutesTest, APathThatIsNoPathIsRefused) {
    const auto table = table_of({{Method::kGet, "/a"}});
    for (const char* path : {"", "*", "http://x/a"}) EXPECT_FALSE(table.match(Method::kGet, path).ok()) << path;
}

TEST(RoutesDeathTest, TwoHandlersForOneRouteAreAProgrammersError) {
    EXPECT_DEATH(table_of({{Method::kGet, "/a"}, {Method::kGet, "/a"}}), "two routes");
}

}  // namespace
}  // namespace atl::http
