#include "services/dispatch/admission/facility_access.h"
#include "services/dispatch/admission/job_quota.h"
#include "services/dispatch/db/deletion.h"
#include "services/dispatch/db/facilities.h"
#include "services/dispatch/db/job_views.h"
#include "services/dispatch/db/tasks.h"
#include "services/dispatch/domain/preparation_spec.h"
#include "services/dispatch/routes/routes.h"
#include "shared/base/id.h"
#include "shared/service/routes.h"

namespace atl::dispatch {
namespace {

using http::Method;
using http::Request;
using http::Response;
using json::Json;

constexpr std::int64_t kAttemptsMax = 3;
constexpr std::int64_t kPreparationsMax = 2000;  // of one operator

// As the registry keeps it with what is prepared.
Json with_model(Json tokenizer, const std::string& model, const std::string& digest) {
    if (tokenizer.is_object()) tokenizer.update({{"model", model}, {"version", digest}});
    return tokenizer;
}

// Asks other services: no connection is held meanwhile.
Result<Task> make_preparation_task(const PreparationSpec& spec, const Catalog& catalog, const std::string& preparation,
                                   const Request& request) {
    ATOLL_TRY(const DatasetInfo dataset, catalog.dataset(spec.dataset, "dataset"));
    // What is prepared becomes a version of it.
    ATOLL_RETURN_IF_ERROR(service::require_owner(request, dataset.owner, "the dataset " + dataset.name));
    ATOLL_TRY(const std::string tokenizer, catalog.model_digest(spec.tokenizer_model, spec.tokenizer_version,
                                                                "tokenizer", "model", *request.principal));
    ATOLL_TRY(const Json version, catalog.model_version(spec.tokenizer_model, tokenizer));
    ATOLL_TRY(const BaseModel model, catalog.base_model(version));
    if (model.tokenizer.is_null())
        return invalid_argument("tokenizer", spec.tokenizer_model + "@" + spec.tokenizer_version +
                                                 " has no tokenizer (tokenizer.json, or tokenizer.model, or vocab.json "
                                                 "and merges.txt): name a model that has one");
    if (model.config.ok() && spec.seq_len > model.config->length_max())  // its rows would be refused when trained on
        return invalid_argument("seq_len", "model \"" + spec.tokenizer_model + "\" takes rows of at most " +
                                               std::to_string(model.config->length_max()) + " tokens (" +
                                               std::string(model.config->length_max_key()) +
                                               "); for another model name its own tokenizer");
    Task task;
    task.id = new_id();
    task.preparation = preparation;
    task.facility = spec.facility;
    task.attempts_max = kAttemptsMax;
    task.params = PrepareParams{.dataset = spec.dataset,
                                .tokenizer_digest = tokenizer,
                                .tokenizer = with_model(model.tokenizer, spec.tokenizer_model, tokenizer),
                                .prompt_template = dataset.prompt_template,
                                .input = spec.input,
                                .input_format = spec.input_format,
                                .seq_len = spec.seq_len,
                                .batching = spec.batching,
                                .validation_percent = spec.validation_percent,
                                .validation_input = spec.validation_input,
                                .prepared_for = dataset.identity};
    return task;
}

// A facility that this caller's preparations may use; it stays until the transaction ends, if there is one.
Status require_usable(pg::Connection& connection, const PreparationSpec& spec, const auth::Principal& principal) {
    ATOLL_RETURN_IF_ERROR(require_facility(connection, spec.facility, "facility"));
    ATOLL_TRY(const StoredFacility stored, find_facility(connection, spec.facility));
    ATOLL_RETURN_IF_ERROR(require_use(stored.facility, principal, "facility"));
    ATOLL_RETURN_IF_ERROR(require_input(stored.facility, principal, spec.input, "input"));
    return require_input(stored.facility, principal, spec.validation_input, "validation_input");
}

Status check_quota(pg::Transaction& transaction, const auth::Principal& principal) {
    if (principal.role == auth::Role::kAdmin) return {};
    ATOLL_TRY(const std::int64_t count, count_preparations(transaction, principal.subject));
    if (count <= kPreparationsMax) return {};
    return conflict("you would have more than " + std::to_string(kPreparationsMax) +
                        " preparations, all that an operator may: remove those that have ended (`atoll dataset rm`)",
                    "quota");
}

Result<Response> post_preparation(Routing& routing, const Request& request) {
    const std::string id = new_id();
    PreparationSpec spec;
    Task task;
    const auto before = [&]() -> Status {
        ATOLL_TRY(const Json body, request.json());
        ATOLL_TRY(spec, parse_preparation_spec(body));
        {
            ATOLL_TRY(auto connection, routing.pool.acquire());
            ATOLL_RETURN_IF_ERROR(require_usable(*connection, spec, *request.principal));
        }
        ATOLL_TRY(task, make_preparation_task(spec, routing.catalog, id, request));
        return {};
    };
    const auto insert = [&](pg::Transaction& transaction) -> Result<Response> {
        ATOLL_RETURN_IF_ERROR(require_usable(transaction.connection(), spec, *request.principal));
        ATOLL_RETURN_IF_ERROR(require_room(transaction, *request.principal, routing.operator_active_max));
        ATOLL_RETURN_IF_ERROR(insert_preparation(transaction, id, to_json(spec), request.principal->subject));
        ATOLL_RETURN_IF_ERROR(check_quota(transaction, *request.principal));
        ATOLL_RETURN_IF_ERROR(insert_task(transaction, task));
        ATOLL_TRY(const Json view, preparation_view(transaction.connection(), id));
        return Response::json(202, view).with("Location", "/v1/preparations/" + id);
    };
    return service::idempotent(routing.pool, request, before, insert);
}

Result<Response> get_preparations(Routing&, pg::Transaction& transaction, const Request& request) {
    ATOLL_TRY(const http::Page page, http::parse_page(request));
    return service::list(page, {"id"}, [&](const http::Page& piece) {
        return preparation_list(transaction.connection(), piece.after, piece.limit + 1);
    });
}

Result<Response> get_preparation(Routing&, pg::Transaction& transaction, const Request& request) {
    ATOLL_TRY(const Json view, preparation_view(transaction.connection(), request.param("id")));
    return Response::json(200, view);
}

Result<Response> remove_preparation(Routing&, pg::Transaction& transaction, const Request& request) {
    ATOLL_TRY(const Json view, preparation_view(transaction.connection(), request.param("id")));
    ATOLL_RETURN_IF_ERROR(service::require_owner(request, view.at("created_by"), "the preparation"));
    ATOLL_TRY(Json left, delete_preparation(transaction, request.param("id")));
    return Response::json(200, {{"left", std::move(left)}});
}

}  // namespace

void add_preparation_routes(http::Server& server, Routing& routing) {
    const service::Routes routes("dispatch", server, routing);
    routes.add(Method::kPost, "/v1/preparations", post_preparation);
    routes.add(Method::kGet, "/v1/preparations", get_preparations);
    routes.add(Method::kGet, "/v1/preparations/:id", get_preparation);
    routes.add(Method::kDelete, "/v1/preparations/:id", remove_preparation);
}

}  // namespace atl::dispatch
