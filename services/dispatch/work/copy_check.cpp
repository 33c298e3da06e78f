#include "services/dispatch/work/copy_check.h"

#include <optional>

#include "shared/site/prepared_data.h"

namespace atl::dispatch {
namespace {

constexpr const char* kRegisterAnew = "register where its copy lies anew (`atoll dataset prepare` or `adopt --move`)";

// Nothing: there is no such file.
Result<std::optional<site::PreparedSplit>> find_split(Site& site, const std::string& path, const std::string& split) {
    const std::string file = site.path(path) + "/" + split + "/data.json";
    const auto text = site.read_file(file, site::kDataJsonBytesMax);
    if (!text.ok() && text.error().code == ErrorCode::kNotFound) return std::optional<site::PreparedSplit>();
    ATOLL_RETURN_IF_ERROR(text);
    ATOLL_TRY(site::PreparedSplit found, site::read_data_json(*text, file));
    return std::optional(std::move(found));
}

Error differs(const std::string& dataset, const std::string& path, const std::string& what) {
    return invalid_argument("dataset", "the data in " + path + " are not those of this version of " + dataset + ": " +
                                           what + "; " + kRegisterAnew);
}

Status check_number(const std::string& dataset, const std::string& path, const char* name, std::int64_t found,
                    std::int64_t registered) {
    if (found == registered) return {};
    return differs(dataset, path,
                   std::string(name) + " is " + std::to_string(found) + " there, and " + std::to_string(registered) +
                       " in the registry");
}

Status check_fingerprint(const std::string& dataset, const std::string& path, const std::string& registered,
                         const std::optional<site::PreparedSplit>& train,
                         const std::optional<site::PreparedSplit>& validation) {
    if (registered.empty() || !train || !validation) return {};
    const std::string found = site::joint_fingerprint(*train, *validation);
    return found == registered
               ? Status()
               : differs(dataset, path, "their fingerprint is " + found + ", and " + registered + " in the registry");
}

// A registered copy may have been moved, removed, or named wrongly (`atoll dataset adopt --path`).
Status require_directory(const std::string& dataset, const std::string& path, const std::string& split, Site& site) {
    const std::string directory = site.path(path) + "/" + split;
    const auto found = site.read_file(directory, 0);  // what is there cannot be read as a file
    if (found.ok()) return {};
    if (found.error().code == ErrorCode::kNotFound)
        return invalid_argument("dataset", "there is no " + directory + ", where this version of " + dataset +
                                               " should lie; " + kRegisterAnew);
    return is_transient(found.error().code) ? Status(found.error()) : Status();
}

}  // namespace

Status check_copy(const Task& task, Site& site) {
    if (const auto* train = std::get_if<TrainParams>(&task.params)) {
        ATOLL_TRY(const auto rows, find_split(site, train->path, "train"));
        ATOLL_TRY(const auto validation, find_split(site, train->path, "validation"));
        if (!rows && !train->fingerprint.empty()) return require_directory(train->dataset, train->path, "train", site);
        if (!rows) return {};
        ATOLL_RETURN_IF_ERROR(check_number(train->dataset, train->path, "seq_len", rows->seq_len, train->seq_len));
        ATOLL_RETURN_IF_ERROR(check_number(train->dataset, train->path, "rows", rows->rows, train->rows));
        return check_fingerprint(train->dataset, train->path, train->fingerprint, rows, validation);
    }
    const auto* evaluate = std::get_if<EvaluateParams>(&task.params);
    if (evaluate == nullptr) return {};
    ATOLL_TRY(const auto rows, find_split(site, evaluate->path, "train"));
    ATOLL_TRY(const auto validation, find_split(site, evaluate->path, "validation"));
    if (!validation && !evaluate->fingerprint.empty())
        return require_directory(evaluate->dataset, evaluate->path, "validation", site);
    return check_fingerprint(evaluate->dataset, evaluate->path, evaluate->fingerprint, rows, validation);
}

}  // namespace atl::dispatch
