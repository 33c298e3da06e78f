#pragma once

#include <span>

#include "services/dispatch/clients/catalog.h"
#include "services/dispatch/domain/round_machine.h"
#include "shared/adapter/adapter.h"
#include "shared/model_config/tensors.h"

// The adapters that a job trains instead of a model: which one it begins with.
namespace atl::dispatch {

// The model that the job trains, or trains adapters on. It trains adapters where its training says lora_rank or where
// `job.base`, the version that its specification names, is one; then fills in spec.adapter_of. Errors name the member
// that does not go with it.
Result<BaseModel> find_base_model(const Catalog& catalog, JobView& job);

// Makes the adapter that the job begins with, unless its base is one: a version of its output model, from the seed of
// its training, that changes nothing yet. job.base becomes its digest. A job without adapters stays as it is.
Status make_start_adapter(const Catalog& catalog, JobView& job);

// Fills in model.adapter_parameters of adapters with these options on `model`, whose config is known. Errors name what
// they cannot be, or that the job cannot make them.
Status take_adapter(const JobSpec& spec, const adapter::LoraOptions& options, BaseModel& model);

// That a job whose strategy is product can make adapters of these tensors: the largest pair of them, of its
// participants and of the base, has kPairNumbersMax numbers at most.
Status check_product_size(const JobSpec& spec, std::span<const model_config::TensorSpec> adapter);

}  // namespace atl::dispatch
