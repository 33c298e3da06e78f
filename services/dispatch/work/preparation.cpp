#include "services/dispatch/work/preparation.h"

#include "shared/digest/digest.h"

namespace atl::dispatch {
namespace {

using json::Json;

struct Split {
    std::string tokenizer_sha256;
    std::int64_t seq_len = 0;
    std::string batching;
    std::string fingerprint;
    Json counts;
};

Result<Split> parse_split(const Json& value, const std::string& path) {
    if (!value.is_object()) return invalid_argument(path, path + ": is not a JSON object");
    Split split;
    // data.json may say more than dispatch needs.
    const auto text = [&](const char* key) { return value.contains(key) && value[key].is_string(); };
    const auto number = [&](const char* key) { return value.contains(key) && value[key].is_number_integer(); };
    for (const char* key : {"tokenizer_sha256", "batching", "fingerprint"})
        if (!text(key)) return invalid_argument(path, path + ": \"" + key + "\" must be a string");
    for (const char* key : {"seq_len", "documents", "rows", "tokens"})
        if (!number(key)) return invalid_argument(path, path + ": \"" + key + "\" must be an integer");
    split.tokenizer_sha256 = value.at("tokenizer_sha256");
    split.batching = value.at("batching");
    split.fingerprint = value.at("fingerprint");
    split.seq_len = value.at("seq_len");
    for (const char* key : {"documents", "rows", "tokens"}) split.counts[key] = value.at(key);
    return split;
}

Result<Json> read_data_json(Site& site, const std::string& directory, const char* split) {
    const std::string file = directory + "/" + split + ".data.json";
    ATOLL_TRY(const std::string text, site.read_file(file));
    return json::parse(text);
}

// A registry that was set up anew numbers its versions from 1 again; the fingerprint tells their data from what an
// earlier one left at the site.
std::string place_of(const std::string& dataset, std::int64_t number, const std::string& fingerprint) {
    constexpr std::size_t kDigits = 12;
    return "datasets/" + dataset + "/" + std::to_string(number) + "-" + fingerprint.substr(0, kDigits);
}

}  // namespace

Result<Json> dataset_version_of(const Json& train, const Json& validation) {
    ATOLL_TRY(const Split first, parse_split(train, "train/data.json"));
    ATOLL_TRY(const Split second, parse_split(validation, "validation/data.json"));
    return Json{{"tokenizer_sha256", first.tokenizer_sha256},
                {"seq_len", first.seq_len},
                {"batching", first.batching},
                {"train", first.counts},
                {"validation", second.counts},
                {"fingerprint", digest::sha256(first.fingerprint + "\n" + second.fingerprint + "\n")}};
}

Result<Json> publish_preparation(const Task& task, Site& site, const Catalog& catalog) {
    const std::string dataset = task.params.at("dataset");
    const std::string directory = site.task_directory(task.id, task.attempt->number);
    ATOLL_TRY(const Json train, read_data_json(site, directory, "train"));
    ATOLL_TRY(const Json validation, read_data_json(site, directory, "validation"));
    ATOLL_TRY(Json version, dataset_version_of(train, validation));
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
