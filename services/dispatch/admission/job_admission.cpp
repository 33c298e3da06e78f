#include "services/dispatch/admission/job_admission.h"

#include <functional>
#include <vector>

#include "services/dispatch/admission/facility_access.h"
#include "services/dispatch/admission/job_adapter.h"
#include "shared/base/id.h"
#include "shared/base/text.h"

namespace atl::dispatch {
namespace {

using json::Json;

using CopyWork = std::function<Status(DatasetCopy&, const std::string& path)>;

// The data of every participant and evaluation, with the field that names it.
Status for_each_copy(JobSpec& spec, const CopyWork& work) {
    for (std::size_t i = 0; i < spec.participants.size(); ++i)
        ATOLL_RETURN_IF_ERROR(work(spec.participants[i].data, "participants[" + std::to_string(i) + "]"));
    for (std::size_t i = 0; i < spec.evaluation_copies.size(); ++i)
        ATOLL_RETURN_IF_ERROR(work(spec.evaluation_copies[i], "evaluation.at[" + std::to_string(i) + "]"));
    return {};
}

// What is wrong with the base is one finding of all.
Result<BaseModel> examine_base(const Catalog& catalog, JobView& job) {
    auto base = find_base_model(catalog, job);
    if (base.ok() || base.error().code != ErrorCode::kInvalidArgument) return base;
    BaseModel refused;
    refused.refusal = base.error();
    return refused;
}

}  // namespace

Result<Facilities> require_facilities(pg::Connection& connection, JobSpec& spec, const auth::Principal& principal) {
    std::vector<std::string> names;
    const auto add = [&](DatasetCopy& data, const std::string&) -> Status {
        names.push_back(data.facility);
        return {};
    };
    ATOLL_RETURN_IF_ERROR(for_each_copy(spec, add));
    ATOLL_TRY(auto facilities, find_facilities(connection, names));
    const auto require = [&](DatasetCopy& data, const std::string& path) -> Status {
        const auto found = facilities.find(data.facility);
        if (found == facilities.end()) return require_facility(connection, data.facility, path + ".facility");
        return require_use(found->second.facility, principal, path + ".facility");
    };
    ATOLL_RETURN_IF_ERROR(for_each_copy(spec, require));
    return facilities;
}

Result<std::optional<std::string>> require_output_model(const Catalog& catalog, const std::string& model,
                                                        const auth::Principal& principal) {
    ATOLL_TRY(const auto owner, catalog.model_owner(model));
    if (!owner) return owner;
    if (principal.role != auth::Role::kAdmin && principal.subject != *owner)
        return Error{ErrorCode::kPermissionDenied,
                     "the model " + in_quotes(model) + " belongs to " + (owner->empty() ? "the admins" : *owner) +
                         "; give this job an output_model of its own",
                     "output_model"};
    ATOLL_RETURN_IF_ERROR(catalog.require_no_base(model, "output_model"));
    return owner;
}

Result<Admission> consider_job(pg::Pool& pool, const Catalog& catalog, const Json& body,
                               const auth::Principal& principal) {
    JobView job;
    job.id = new_id();
    ATOLL_TRY(job.spec, parse_job_spec(body));
    Facilities facilities;
    {
        ATOLL_TRY(auto connection, pool.acquire());
        ATOLL_TRY(facilities, require_facilities(*connection, job.spec, principal));
    }
    ATOLL_TRY(job.base, catalog.model_digest(job.spec.model, job.spec.model_version, "model", "name", principal));
    ATOLL_RETURN_IF_ERROR(require_output_model(catalog, job.spec.output_model, principal));
    ATOLL_TRY(const BaseModel base, examine_base(catalog, job));
    std::vector<NamedCopy> copies;
    ATOLL_RETURN_IF_ERROR(for_each_copy(job.spec, [&](DatasetCopy& data, const std::string& path) -> Status {
        copies.push_back({&data, path});
        return {};
    }));
    ATOLL_RETURN_IF_ERROR(catalog.resolve(copies, base.tokenizer));
    Examination examination = examine_job(job.spec, facilities, base, copies);
    return Admission{std::move(job), std::move(examination)};
}

Result<Admission> admit_job(pg::Pool& pool, const Catalog& catalog, const Json& body,
                            const auth::Principal& principal) {
    ATOLL_TRY(Admission admission, consider_job(pool, catalog, body, principal));
    ATOLL_RETURN_IF_ERROR(first_failure(admission.examination));
    return admission;
}

}  // namespace atl::dispatch
