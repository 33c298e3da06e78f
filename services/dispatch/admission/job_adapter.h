#pragma once

#include <optional>
#include <string>

#include "services/dispatch/clients/catalog.h"
#include "services/dispatch/domain/round_machine.h"

// The adapters that a job trains instead of a model: which one it begins with.
namespace atl::dispatch {

// Whether the job trains adapters, which is so where its training says lora_rank or its model is an adapter itself;
// then fills in spec.adapter_of. `job.base` is the version that its specification names. The model that is trained, or
// that the adapters are trained on, as the store knows it. Errors name the member that does not go with it.
Result<json::Json> plan_adapter(const Catalog& catalog, JobView& job);

// Makes the adapter that the job begins with, unless its base is one: a version of its output model, from the seed of
// its training, that changes nothing yet. job.base becomes its digest. A job without adapters stays as it is.
Status make_start_adapter(const Catalog& catalog, JobView& job);

}  // namespace atl::dispatch
