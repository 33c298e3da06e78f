#pragma once

#include "services/dispatch/clients/catalog.h"
#include "services/dispatch/domain/task.h"
#include "services/dispatch/sites/site.h"

namespace atl::dispatch {

// After tokenising: registers the dataset version from what the trainer's two data.json say, moves the data to
// datasets/<name>/<version>-<12 digits of its fingerprint> and registers the copy. Safe to repeat. The result is the
// task's: {dataset, dataset_version, path, train, validation, fingerprint}.
Result<json::Json> publish_preparation(const Task& task, const std::string& dataset, Site& site,
                                       const Catalog& catalog);

}  // namespace atl::dispatch
