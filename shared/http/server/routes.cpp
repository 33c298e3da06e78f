#include "shared/http/server/routes.h"

#include <algorithm>
#include <utility>

namespace atl::http {
namespace {

// "/v1/jobs" -> {"v1", "jobs"}; a trailing slash makes a last empty segment, which matches nothing.
std::vector<std::string> split(std::string_view path) {
    std::vector<std::string> segments;
    while (!path.empty()) {
        path.remove_prefix(1);
        const std::size_t slash = std::min(path.find('/'), path.size());
        segments.emplace_back(path.substr(0, slash));
        path.remove_prefix(slash);
    }
    return segments;
}

bool is_parameter(const std::string& segment) {
    return segment.size() > 1 && segment[0] == ':';
}

bool matches(const std::vector<std::string>& pattern, const std::vector<std::string>& path) {
    return std::equal(pattern.begin(), pattern.end(), path.begin(), path.end(),
                      [](const std::string& expected, const std::string& segment) {
                          return is_parameter(expected) ? !segment.empty() : expected == segment;
                      });
}

// Literals sort before parameters: "/v1/blobs/missing" is never "/v1/blobs/:digest", whatever the method.
bool more_literal(const Route& left, const Route& right) {
    return std::lexicographical_compare(
        left.segments.begin(), left.segments.end(), right.segments.begin(), right.segments.end(),
        [](const std::string& a, const std::string& b) { return !is_parameter(a) && is_parameter(b); });
}

bool serves(const Route& route, Method method) {
    return route.method == method || (method == Method::kHead && route.method == Method::kGet);
}

Result<std::map<std::string, std::string>> decode_params(const Route& route, const std::vector<std::string>& path) {
    std::map<std::string, std::string> params;
    for (std::size_t i = 0; i < path.size(); ++i) {
        if (!is_parameter(route.segments[i])) continue;
        const std::string name = route.segments[i].substr(1);
        ATOLL_TRY(std::string value, percent_decode(path[i]));
        if (value.find('/') != std::string::npos) return invalid_argument(name, "a part of the path may not hold /");
        params[name] = std::move(value);
    }
    return params;
}

}  // namespace

void RouteTable::add(Route route) {
    check(!route.pattern.empty() && route.pattern[0] == '/', "a route's pattern starts with /");
    check(static_cast<bool>(route.handler) != static_cast<bool>(route.async_handler), "a route has one handler");
    for (const Route& other : routes_)
        check(other.method != route.method || other.pattern != route.pattern, "two routes for " + route.pattern);
    route.segments = split(route.pattern);
    const auto place = std::upper_bound(routes_.begin(), routes_.end(), route, more_literal);
    routes_.insert(place, std::move(route));
}

void RouteTable::limit_query(Method method, const std::string& pattern, std::vector<std::string> names) {
    const auto route = std::find_if(routes_.begin(), routes_.end(),
                                    [&](const Route& one) { return one.method == method && one.pattern == pattern; });
    check(route != routes_.end(), "there is no route " + pattern);
    route->query_names = std::move(names);
}

Result<Match> RouteTable::match(Method method, std::string_view path) const {
    Match result;
    if (path.empty() || path[0] != '/') return invalid_argument("path", "the path must start with /");
    const std::vector<std::string> segments = split(path);
    const Route* most_literal = nullptr;
    for (const Route& route : routes_) {
        if (!matches(route.segments, segments)) continue;
        if (most_literal != nullptr && more_literal(*most_literal, route)) break;
        most_literal = &route;
        if (std::find(result.allowed.begin(), result.allowed.end(), route.method) == result.allowed.end())
            result.allowed.push_back(route.method);
        if (!serves(route, method)) continue;
        // An explicit HEAD route wins over the GET route that would answer HEAD as well.
        if (result.route == nullptr || (result.route->method != method && route.method == method))
            result.route = &route;
    }
    if (result.route != nullptr) {
        ATOLL_TRY(result.params, decode_params(*result.route, segments));
    }
    return result;
}

}  // namespace atl::http
