#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/http/server/server.h"

namespace atl::http {

struct Route {
    Method method;
    std::string pattern;  // "/v1/jobs/:id"
    Access access;
    Handler handler;  // exactly one of the two is set
    AsyncHandler async_handler;
    std::vector<std::string> segments;
    std::optional<std::vector<std::string>> query_names;  // none: any
};

// What a path leads to. `route` is null when there is none for this method; `allowed` then lists those of the path.
struct Match {
    const Route* route = nullptr;
    std::map<std::string, std::string> params;  // percent-decoded
    std::vector<Method> allowed;
};

// The routes of one server: a list matched segment by segment, a literal before a ":name". A GET route answers HEAD
// too. Filled before the server starts, read by every thread afterwards.
class RouteTable {
  public:
    // A programmer's error: a pattern without a leading slash, or the same method and pattern twice.
    void add(Route route);
    // A programmer's error: there is no such route.
    void limit_query(Method method, const std::string& pattern, std::vector<std::string> names);
    // kInvalidArgument for a path that cannot be decoded. Decoded parameters never hold "/" or NUL.
    Result<Match> match(Method method, std::string_view path) const;
    const std::vector<Route>& routes() const { return routes_; }

  private:
    std::vector<Route> routes_;
};

}  // namespace atl::http
