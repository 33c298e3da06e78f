#pragma once

#include <functional>

#include "services/dispatch/clients/catalog.h"
#include "services/dispatch/db/events.h"
#include "services/dispatch/db/facilities.h"
#include "services/dispatch/db/history.h"
#include "services/dispatch/db/job_views.h"
#include "services/dispatch/events/event_feed.h"
#include "services/dispatch/routes/site_requests.h"
#include "services/dispatch/work/facility_connections.h"
#include "services/dispatch/work/token_keys.h"
#include "shared/auth/auth.h"
#include "shared/http/server/server.h"
#include "shared/pg/pg.h"

namespace atl::dispatch {

// What the handlers work with; outlives the server.
struct Routing {
    pg::Pool& pool;
    const Catalog& catalog;
    const Topics& topics;
    FacilityConnections& connections;
    EventFeed& feed;
    SiteRequests& site_requests;
    auth::Issuer issuer;
    TokenKeys token_keys;
    Keep keep;
    std::int64_t operator_active_max;
    JobAnswers job_answers = {};
};

// A whole number in the query, with an optional unit after it; the fallback when absent or empty.
Result<std::int64_t> query_integer(const http::Request& request, const std::string& key, std::int64_t fallback,
                                   std::int64_t max, const std::string& unit = {});

// That of ":name". No database connection is held behind it.
Result<StoredFacility> find_named_facility(Routing& routing, const http::Request& request);

// Adds a route whose handler asks sites: it runs on a thread of `site_requests`, where it takes a place before it asks.
using SiteHandler = Result<http::Response> (*)(Routing&, const http::Request&);
void add_site_route(http::Server& server, Routing& routing, http::Method method, const char* pattern,
                    SiteHandler handler);

void add_facility_check_routes(http::Server& server, Routing& routing);
void add_facility_routes(http::Server& server, Routing& routing);
void add_preparation_routes(http::Server& server, Routing& routing);
void add_job_routes(http::Server& server, Routing& routing);
void add_job_reading_routes(http::Server& server, Routing& routing);
void add_token_routes(http::Server& server, Routing& routing);

}  // namespace atl::dispatch
