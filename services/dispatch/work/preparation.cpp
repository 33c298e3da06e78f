#include "services/dispatch/work/preparation.h"

#include "services/dispatch/domain/site_words.h"
#include "shared/digest/digest.h"

namespace atl::dispatch {
namespace {

using json::Json;

Result<PreparedSplit> read_split(Site& site, const std::string& directory, const std::string& split) {
    const std::string file = split + ".data.json";
    ATOLL_TRY(const std::string text, site.read_file(directory + "/" + file, kDataJsonBytesMax));
    return read_data_json(text, file);
}

Json counts_of(const PreparedSplit& split) {
    return {{"documents", split.documents}, {"rows", split.rows}, {"tokens", split.tokens}};
}

// The body of the registry's POST …/versions.
Json dataset_version_of(const PreparedSplit& train, const PreparedSplit& validation) {
    return {{"tokenizer_sha256", train.tokenizer_sha256},
            {"seq_len", train.seq_len},
            {"batching", train.batching},
            {"train", counts_of(train)},
            {"validation", counts_of(validation)},
            {"fingerprint", digest::sha256(train.fingerprint + "\n" + validation.fingerprint + "\n")}};
}

// A registry that was set up anew numbers its versions from 1 again; the fingerprint tells their data from what an
// earlier one left at the site.
std::string place_of(const std::string& dataset, std::int64_t number, const std::string& fingerprint) {
    constexpr std::size_t kDigits = 12;
    return "datasets/" + dataset + "/" + std::to_string(number) + "-" + fingerprint.substr(0, kDigits);
}

}  // namespace

Result<Json> publish_preparation(const Task& task, Site& site, const Catalog& catalog) {
    const std::string dataset = task.params.at("dataset");
    const std::string directory = site.task_directory(task.id, task.attempt->number);
    ATOLL_TRY(const PreparedSplit train, read_split(site, directory, "train"));
    ATOLL_TRY(const PreparedSplit validation, read_split(site, directory, "validation"));
    Json version = dataset_version_of(train, validation);
    ATOLL_TRY(const std::int64_t number, catalog.register_version(dataset, version, "preparation-" + task.preparation));
    const std::string place = place_of(dataset, number, version.at("fingerprint"));
    ATOLL_RETURN_IF_ERROR(site.publish(directory + "/out", site.path(place)));
    ATOLL_RETURN_IF_ERROR(catalog.register_copy(dataset, number, task.facility, place));
    // What this and earlier attempts left: the prepared data have moved away, or were there already.
    ATOLL_RETURN_IF_ERROR(site.clean(task.preparation, {task.id}));
    version["dataset"] = dataset;
    version["dataset_version"] = number;
    version["path"] = place;
    return version;
}

}  // namespace atl::dispatch
