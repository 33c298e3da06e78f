#include "services/dispatch/routes/site_requests.h"

#include <exception>
#include <utility>

#include "services/dispatch/routes/routes.h"
#include "shared/base/text.h"
#include "shared/log/log.h"
#include "shared/service/routes.h"

namespace atl::dispatch {
namespace {

Error too_many(const std::string& why) {
    return {ErrorCode::kResourceExhausted, why + "; ask again when one of them has been answered", {}};
}

}  // namespace

SiteRequests::Place SiteRequests::take(const std::string& name, int max) {
    const std::lock_guard lock(mutex_);
    if (taken_[name] >= max) return nullptr;
    ++taken_[name];
    return {this, [this, name](void*) {
                const std::lock_guard again(mutex_);
                if (--taken_[name] == 0) taken_.erase(name);
            }};
}

Result<SiteRequests::Place> SiteRequests::take_place_of(const std::string& caller) {
    Place place = take("caller/" + caller, kOfCallerMax);
    if (place == nullptr)
        return too_many(std::to_string(kOfCallerMax) + " questions of " + caller + " to sites are under way");
    return place;
}

Result<SiteRequests::Place> SiteRequests::take_place_at(const std::string& facility) {
    Place place = take("facility/" + facility, kAtFacilityMax);
    if (place == nullptr)
        return too_many(std::to_string(kAtFacilityMax) + " questions to the facility " + in_quotes(facility) +
                        " are under way");
    return place;
}

Result<SiteRequests::Place> SiteRequests::take_examination(const std::string& caller) {
    Place place = take("examination/" + caller, kOfCallerMax);
    if (place == nullptr) return too_many(std::to_string(kOfCallerMax) + " jobs of " + caller + " are being examined");
    return place;
}

Result<SiteRequests::Place> SiteRequests::take_place(const std::string& caller, const std::string& facility) {
    ATOLL_TRY(Place of_caller, take_place_of(caller));
    ATOLL_TRY(Place at_facility, take_place_at(facility));
    const auto both = std::make_shared<std::pair<Place, Place>>(std::move(of_caller), std::move(at_facility));
    return Place(both);
}

void add_site_route(http::Server& server, Routing& routing, http::Method method, const char* pattern,
                    SiteHandler handler) {
    const service::Permission& permission = service::permission_of("dispatch", method, pattern);
    const auto answer = [&routing, &permission, handler](const http::Request& request) {
        const Status may_call = service::check_caller(permission, *request.principal);
        return service::answer(may_call.ok() ? handler(routing, request) : may_call.error(), request);
    };
    const auto ask = [answer](const http::Request& request, const http::Responder& responder) {
        try {
            responder.respond(answer(request));
        } catch (const std::exception& error) {  // whoever waits hears that nobody answered
            spdlog::error("request {} threw: {}", request.request_id, error.what());
        }
    };
    server.route_async(
        method, pattern, service::access_of(permission),
        [&routing, ask](http::Request request, const http::Responder& responder) {
            const auto asked = std::make_shared<const http::Request>(std::move(request));
            if (!routing.site_requests.run([ask, asked, responder] { ask(*asked, responder); }))
                responder.respond(http::Response::problem(
                    {ErrorCode::kResourceExhausted, "too many questions to sites are waiting", {}}, asked->request_id));
        });
}

}  // namespace atl::dispatch
