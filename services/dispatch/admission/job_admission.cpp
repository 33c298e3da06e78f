#include "services/dispatch/admission/job_admission.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "services/dispatch/admission/facility_access.h"
#include "services/dispatch/admission/job_adapter.h"
#include "services/dispatch/domain/site_output.h"
#include "services/dispatch/domain/training_settings.h"
#include "services/dispatch/domain/update_check.h"
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

// Of a facility that was never checked nothing is known: its trainer will say so itself.
Status require_devices(const JobSpec& spec, const Facilities& facilities) {
    for (std::size_t i = 0; i < spec.participants.size(); ++i) {
        const Participant& one = spec.participants[i];
        const std::string& facility = one.data.facility;
        const Json& devices = facilities.at(facility).devices;
        if (devices.is_null()) continue;
        const std::string device = merge_training_settings(spec.training, one.training).value("device", "cpu");
        const auto built = devices.get<std::vector<std::string>>();
        if (std::find(built.begin(), built.end(), device) != built.end()) continue;
        const bool is_own = one.training.is_object() && one.training.contains("device");
        return invalid_argument(is_own ? "participants[" + std::to_string(i) + "].training.device" : "training.device",
                                "the trainer of facility \"" + facility + "\" has no " + device + "; it has: " +
                                    join(built, ", ") + " (`atoll facility check " + facility + "` looks again)");
    }
    return {};
}

// What a queue never gives would wait in it for ever.
Status require_resources(const JobSpec& spec, const Facilities& facilities) {
    for (std::size_t i = 0; i < spec.participants.size(); ++i) {
        const Participant& one = spec.participants[i];
        ATOLL_RETURN_IF_ERROR(check_resources(one.resources, facilities.at(one.data.facility).facility,
                                              "participants[" + std::to_string(i) + "].resources"));
    }
    return {};
}

// The trainer tells losses of small steps together (kLossTokensMin). Who asks for them is told at once, as far as the
// dataset's version says it.
Status require_large_steps(const JobSpec& spec) {
    for (std::size_t i = 0; i < spec.participants.size(); ++i) {
        const Participant& one = spec.participants[i];
        ATOLL_TRY(const UpdateLimits limits, update_limits(merge_training_settings(spec.training, one.training),
                                                           one.resources.ranks(), one.data.rows, one.data.seq_len));
        if (one.data.seq_len == 0 || limits.samples_per_step * one.data.seq_len >= kLossTokensMin) continue;
        const bool is_own = one.training.is_object() && one.training.contains("batch_size");
        return invalid_argument(
            (is_own ? "participants[" + std::to_string(i) + "].training" : std::string("training")) + ".batch_size",
            "a step at " + one.data.facility + " would be of " + std::to_string(limits.samples_per_step) + " rows of " +
                std::to_string(one.data.seq_len) + " tokens; a step's loss is published, so it must be of at least " +
                std::to_string(kLossTokensMin) + " tokens: raise batch_size, or prepare the dataset with longer rows");
    }
    return {};
}

// The trainer would say so as well, but only at the site.
Error too_long(const DatasetCopy& data, const std::string& model, std::int64_t tokens_max, const std::string& field) {
    const std::string most = std::to_string(tokens_max);
    return invalid_argument(
        field, "version " + std::to_string(data.version) + " of dataset \"" + data.dataset + "\" has rows of " +
                   std::to_string(data.seq_len) + " tokens; model \"" + model + "\" takes at most " + most +
                   " (max_position_embeddings, or a Mistral's sliding_window): prepare it with a seq_len of at most " +
                   most);
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

Result<JobView> admit_job(pg::Pool& pool, const Catalog& catalog, const Json& body, const auth::Principal& principal) {
    JobView job;
    job.id = new_id();
    ATOLL_TRY(job.spec, parse_job_spec(body));
    {
        ATOLL_TRY(auto connection, pool.acquire());
        ATOLL_TRY(const Facilities facilities, require_facilities(*connection, job.spec, principal));
        ATOLL_RETURN_IF_ERROR(require_resources(job.spec, facilities));
        ATOLL_RETURN_IF_ERROR(require_devices(job.spec, facilities));
    }
    ATOLL_TRY(job.base, catalog.model_digest(job.spec.model, job.spec.model_version, "model", "name", principal));
    ATOLL_TRY(const Json model, plan_adapter(catalog, job));
    ATOLL_TRY(const auto tokens_max, catalog.row_tokens_max(model));
    std::vector<NamedCopy> copies;
    ATOLL_RETURN_IF_ERROR(for_each_copy(job.spec, [&](DatasetCopy& data, const std::string& path) -> Status {
        copies.push_back({&data, path});
        return {};
    }));
    ATOLL_RETURN_IF_ERROR(catalog.resolve(copies));
    ATOLL_RETURN_IF_ERROR(require_large_steps(job.spec));
    for (const NamedCopy& copy : copies)
        if (tokens_max && copy.data->seq_len > *tokens_max)
            return too_long(*copy.data, job.spec.model, *tokens_max, copy.path + ".dataset");
    ATOLL_RETURN_IF_ERROR(require_output_model(catalog, job.spec.output_model, principal));
    return job;
}

}  // namespace atl::dispatch
