#include "services/dispatch/work/preparation.h"

#include "shared/site/prepared_data.h"

namespace atl::dispatch {
namespace {

using json::Json;
using site::PreparedSplit;

Result<PreparedSplit> read_split(Site& site, const std::string& directory, const std::string& split) {
    const std::string file = split + ".data.json";
    ATOLL_TRY(const std::string text, site.read_file(directory + "/" + file, site::kDataJsonBytesMax));
    return site::read_data_json(text, file);
}

}  // namespace

Result<Json> publish_preparation(const Task& task, const std::string& dataset, Site& site, const Catalog& catalog) {
    const std::string directory = site.task_directory(task.id, task.attempt->number);
    ATOLL_TRY(const PreparedSplit train, read_split(site, directory, "train"));
    ATOLL_TRY(const PreparedSplit validation, read_split(site, directory, "validation"));
    ATOLL_TRY(Json version, site::describe_version(train, validation));
    version["tokenizer"] = std::get<PrepareParams>(task.params).tokenizer;
    Json order = version;
    order["prepared_for"] = std::get<PrepareParams>(task.params).prepared_for;
    const std::string fingerprint = version.at("fingerprint");
    ATOLL_TRY(const std::int64_t number, catalog.register_version(dataset, order, "preparation-" + task.preparation));
    // A registry that was set up anew numbers its versions from 1 again; the fingerprint tells their data from what an
    // earlier one left at the site.
    const std::string place = "datasets/" + dataset + "/" + std::to_string(number) + "-" + fingerprint.substr(0, 12);
    ATOLL_RETURN_IF_ERROR(site.publish(directory + "/out", site.path(place)));
    ATOLL_RETURN_IF_ERROR(catalog.register_copy(dataset, number, task.facility, place, fingerprint));
    // What this and earlier attempts left: the prepared data have moved away, or were there already.
    ATOLL_RETURN_IF_ERROR(site.clean(task.preparation, {task.id}));
    version["dataset"] = dataset;
    version["dataset_version"] = number;
    version["path"] = place;
    return version;
}

}  // namespace atl::dispatch
