#include "services/registry/routes/routes.h"

#include <nlohmann/json.hpp>

#include "services/registry/db/repository.h"
#include "services/registry/domain/croissant.h"
#include "shared/auth/subjects.h"
#include "shared/events/events.h"
#include "shared/service/names.h"
#include "shared/service/routes.h"

namespace atl::registry {
namespace {

using http::Method;
using http::Request;
using http::Response;
using json::Json;
using pg::Transaction;

Response with_etag(int status, const Json& body, std::int64_t revision) {
    return Response::json(status, body).with("ETag", service::make_etag(revision));
}

Result<Response> show_dataset(Transaction& transaction, const std::string& name, int status) {
    ATOLL_TRY(const StoredDataset dataset, find_dataset(transaction, name));
    return with_etag(status, dataset.shown, dataset.revision);
}

// The dataset, locked, as whoever registered it or an admin may change it.
Result<StoredDataset> find_own_dataset(Transaction& transaction, const Request& request) {
    ATOLL_TRY(StoredDataset dataset, find_dataset(transaction, request.param("name"), /*for_update=*/true));
    ATOLL_RETURN_IF_ERROR(service::require_owner(request, dataset.created_by, "the dataset " + dataset.spec.name));
    return dataset;
}

// The database is everybody's.
constexpr std::int64_t kDatasetsMax = 1000;
constexpr std::int64_t kVersionsMax = 10'000;
constexpr std::int64_t kBytesMax = 32 << 20;

// What one operator may register, with what this transaction has added. What dispatch registers is bounded by the
// preparations that somebody may order.
Status check_quota(Transaction& transaction, const Request& request) {
    const auth::Principal& writer = *request.principal;
    if (writer.role == auth::Role::kAdmin || auth::is_reserved_subject(writer.subject)) return {};
    ATOLL_TRY(const Registered has, registered_by(transaction, writer.subject));
    const auto full = [](const std::string& what) {
        return conflict("you would have more than " + what +
                            ", all that an operator may: remove what you do not need (`atoll dataset rm`)",
                        "quota");
    };
    if (has.datasets > kDatasetsMax) return full(std::to_string(kDatasetsMax) + " datasets");
    if (has.versions > kVersionsMax) return full(std::to_string(kVersionsMax) + " versions of datasets");
    if (has.bytes > kBytesMax) return full("32 MiB of texts and statistics in the registry");
    return {};
}

Result<Response> post_dataset(Routing&, Transaction& transaction, const Request& request) {
    ATOLL_TRY(const Json body, request.json());
    ATOLL_TRY(const DatasetSpec spec, parse_dataset(body));
    ATOLL_RETURN_IF_ERROR(insert_dataset(transaction, spec, request.principal->subject));
    ATOLL_RETURN_IF_ERROR(check_quota(transaction, request));
    ATOLL_TRY(Response response, show_dataset(transaction, spec.name, 201));
    return std::move(response).with("Location", "datasets/" + spec.name);
}

Result<Response> get_datasets(Routing&, Transaction& transaction, const Request& request) {
    ATOLL_TRY(const http::Page page, http::parse_page(request));
    return service::list(page, {"name"}, [&](const http::Page& piece) { return list_datasets(transaction, piece); });
}

Result<Response> get_dataset(Routing&, Transaction& transaction, const Request& request) {
    return show_dataset(transaction, request.param("name"), 200);
}

Result<Response> patch_dataset(Routing&, Transaction& transaction, const Request& request) {
    ATOLL_TRY(const StoredDataset dataset, find_own_dataset(transaction, request));
    ATOLL_TRY(const Json body, request.json());
    ATOLL_TRY(const DatasetPatch patch, parse_patch(body));
    ATOLL_RETURN_IF_ERROR(service::check_if_match(request, dataset.revision));
    if (dataset.latest_version > 0 && changes_meaning(dataset.spec, patch))
        return conflict("versions of " + dataset.spec.name +
                            " were made with its language and template; register another dataset instead",
                        patch.template_text ? "template" : "language");
    ATOLL_RETURN_IF_ERROR(update_dataset(transaction, patched(dataset.spec, patch)));
    ATOLL_RETURN_IF_ERROR(check_quota(transaction, request));
    return show_dataset(transaction, dataset.spec.name, 200);
}

Status announce(Transaction& transaction, const std::string& topic, const DatasetSpec& dataset, const Json& version) {
    events::Event event;
    event.type = "atoll.dataset.registered.v1";
    event.source = "/registry";
    event.subject = "datasets/" + dataset.name + "/versions/" + version["version"].dump();
    event.data = {{"dataset", dataset.name},
                  {"version", version["version"]},
                  {"language", dataset.language},
                  {"license", dataset.license},
                  {"fingerprint", version["fingerprint"]},
                  {"tokenizer_sha256", version["tokenizer_sha256"]},
                  {"train", version["train"]},
                  {"validation", version["validation"]}};
    return events::add_to_outbox(transaction, topic, dataset.name, std::move(event));
}

// A dataset may have been removed and registered anew, by somebody else, while its texts were prepared.
Status require_same(const StoredDataset& dataset, const DatasetIdentity& prepared_for) {
    const DatasetIdentity now = {dataset.created_by, dataset.shown.at("created_at"), dataset.spec.language,
                                 dataset.spec.template_text};
    if (now == prepared_for) return {};
    return conflict("the dataset " + dataset.spec.name +
                        " is not what it was when this preparation was ordered: it was registered anew, or has another "
                        "template or language; prepare its texts again",
                    "prepared_for");
}

// The same bytes are the same version: whoever registers them again, from another facility, gets it.
Result<Response> same_version(const Json& existing, const VersionSpec& spec) {
    const Json wanted = to_json(spec);
    const auto is_said = [&](const std::string& key) {
        return key != "statistics" && key != "tokenizer" && (key != "tokenizer_reader" || spec.tokenizer_reader > 0);
    };
    for (const auto& [key, value] : wanted.items())
        if (is_said(key) && existing.at(key) != value)
            return conflict("version " + existing["version"].dump() + " has this fingerprint and another " + key, key);
    return with_etag(200, existing, 1);
}

Result<Response> post_version(Routing& routing, Transaction& transaction, const Request& request) {
    ATOLL_TRY(const StoredDataset dataset, find_dataset(transaction, request.param("name"), /*for_update=*/true));
    // dispatch registers what a preparation has made, which the dataset's owner has ordered there.
    if (!auth::is_service(*request.principal, auth::kDispatch))
        ATOLL_RETURN_IF_ERROR(service::require_owner(request, dataset.created_by, "the dataset " + dataset.spec.name));
    ATOLL_TRY(const Json body, request.json());
    ATOLL_TRY(const VersionSpec spec, parse_version(body));
    if (spec.prepared_for) ATOLL_RETURN_IF_ERROR(require_same(dataset, *spec.prepared_for));
    const std::string& name = dataset.spec.name;
    ATOLL_TRY(const Json existing, find_same_version(transaction, name, spec));
    if (!existing.is_null()) return same_version(existing, spec);
    const std::int64_t number = dataset.versions_made + 1;
    ATOLL_RETURN_IF_ERROR(insert_version(transaction, name, number, spec, request.principal->subject));
    ATOLL_RETURN_IF_ERROR(check_quota(transaction, request));
    ATOLL_TRY(const Json version, find_version(transaction, name, number));
    ATOLL_RETURN_IF_ERROR(announce(transaction, routing.topic, dataset.spec, version));
    return with_etag(201, version, 1).with("Location", "versions/" + std::to_string(number));
}

Result<Response> get_versions(Routing&, Transaction& transaction, const Request& request) {
    ATOLL_TRY(const http::Page page, http::parse_page(request));
    std::string facility;
    if (const auto wanted = request.query.find("facility"); wanted != request.query.end()) {
        facility = wanted->second;
        ATOLL_RETURN_IF_ERROR(service::check_name(facility, "facility"));
    }
    ATOLL_TRY(const StoredDataset dataset, find_dataset(transaction, request.param("name")));
    return service::list(page, {"version"}, [&](const http::Page& piece) -> Result<std::vector<Json>> {
        std::int64_t after = 0;
        if (!piece.after.empty()) {
            ATOLL_TRY(after, parse_version_number(piece.after));
        }
        return list_versions(transaction, dataset.spec.name, facility, after, piece.limit);
    });
}

Result<Response> get_version(Routing&, Transaction& transaction, const Request& request) {
    ATOLL_TRY(const std::int64_t number, parse_version_number(request.param("version")));
    ATOLL_TRY(const Json version, find_version(transaction, request.param("name"), number));
    return with_etag(200, version, 1);
}

Result<Response> put_copy(Routing&, Transaction& transaction, const Request& request) {
    const std::string& facility = request.param("facility");
    ATOLL_TRY(const std::int64_t number, parse_version_number(request.param("version")));
    ATOLL_RETURN_IF_ERROR(service::check_name(facility, "facility"));
    ATOLL_TRY(const Json body, request.json());
    ATOLL_TRY(const CopySpec spec, parse_copy(body));
    const std::string& name = request.param("name");
    if (!spec.fingerprint.empty()) {
        ATOLL_TRY(const Json version, find_version(transaction, name, number));
        if (version.at("fingerprint") != spec.fingerprint)
            return conflict("version " + std::to_string(number) + " of " + name + " has another fingerprint",
                            "fingerprint");
    }
    ATOLL_TRY(const bool created,
              registry::put_copy(transaction, name, number, facility, spec.path, request.principal->subject));
    ATOLL_TRY(const Json copy, find_copy(transaction, name, number, facility));
    return Response::json(created ? 201 : 200, copy);
}

Result<Response> get_copies(Routing&, Transaction& transaction, const Request& request) {
    ATOLL_TRY(const http::Page page, http::parse_page(request));
    ATOLL_TRY(const std::int64_t number, parse_version_number(request.param("version")));
    ATOLL_RETURN_IF_ERROR(find_version(transaction, request.param("name"), number));
    return service::list(page, {"facility"}, [&](const http::Page& piece) {
        return list_copies(transaction, request.param("name"), number, piece);
    });
}

// A question, however it is asked: nothing of it is kept under an Idempotency-Key.
Result<Response> post_find_copies(Routing& routing, const Request& request) {
    ATOLL_TRY(const Json body, request.json());
    ATOLL_TRY(const auto wanted, parse_wanted_copies(body));
    return service::in_transaction(routing.pool, [&](Transaction& transaction) -> Result<Response> {
        ATOLL_TRY(const auto found, find_copies(transaction, wanted));
        return Response::json(200, {{"items", found}});
    });
}

Result<Response> get_croissant(Routing&, Transaction& transaction, const Request& request) {
    std::int64_t number = 0;
    if (const auto wanted = request.query.find("version"); wanted != request.query.end()) {
        ATOLL_TRY(number, parse_version_number(wanted->second));
    }
    ATOLL_TRY(const StoredDataset dataset, find_dataset(transaction, request.param("name")));
    if (number == 0) number = dataset.latest_version;
    Json version;
    if (number > 0) {
        ATOLL_TRY(version, find_version(transaction, dataset.spec.name, number));
    }
    Response response = Response::json(200, croissant(dataset.shown, version));
    response.content_type = "application/ld+json";
    return response;
}

Result<Response> remove_dataset(Routing&, Transaction& transaction, const Request& request) {
    ATOLL_RETURN_IF_ERROR(find_own_dataset(transaction, request));
    ATOLL_TRY(const auto left, delete_dataset(transaction, request.param("name")));
    return Response::json(200, {{"left", left}});
}

Result<Response> remove_version(Routing&, Transaction& transaction, const Request& request) {
    ATOLL_TRY(const std::int64_t number, parse_version_number(request.param("version")));
    ATOLL_RETURN_IF_ERROR(find_own_dataset(transaction, request));
    ATOLL_TRY(const auto left, delete_version(transaction, request.param("name"), number));
    return Response::json(200, {{"left", left}});
}

Result<Response> remove_copy(Routing&, Transaction& transaction, const Request& request) {
    ATOLL_TRY(const std::int64_t number, parse_version_number(request.param("version")));
    ATOLL_RETURN_IF_ERROR(service::check_name(request.param("facility"), "facility"));
    ATOLL_RETURN_IF_ERROR(find_own_dataset(transaction, request));
    ATOLL_TRY(const auto left, delete_copy(transaction, request.param("name"), number, request.param("facility")));
    return Response::json(200, {{"left", left}});
}

}  // namespace

void add_routes(http::Server& server, Routing& routing) {
    const service::Routes routes("registry", server, routing);
    routes.add(Method::kPost, "/v1/datasets", post_dataset);
    routes.add(Method::kGet, "/v1/datasets", get_datasets);
    routes.add(Method::kGet, "/v1/datasets/:name", get_dataset);
    routes.add(Method::kPatch, "/v1/datasets/:name", patch_dataset);
    routes.add(Method::kDelete, "/v1/datasets/:name", remove_dataset);
    routes.add(Method::kPost, "/v1/datasets/:name/versions", post_version);
    routes.add(Method::kGet, "/v1/datasets/:name/versions", get_versions);
    routes.add(Method::kGet, "/v1/datasets/:name/versions/:version", get_version);
    routes.add(Method::kDelete, "/v1/datasets/:name/versions/:version", remove_version);
    routes.add(Method::kPut, "/v1/datasets/:name/versions/:version/copies/:facility", put_copy);
    routes.add(Method::kDelete, "/v1/datasets/:name/versions/:version/copies/:facility", remove_copy);
    routes.add(Method::kGet, "/v1/datasets/:name/versions/:version/copies", get_copies);
    routes.add(Method::kPost, "/v1/copies/find", post_find_copies);
    routes.add(Method::kGet, "/v1/datasets/:name/croissant", get_croissant);
}

}  // namespace atl::registry
