#include "services/cli/commands/dataset_adopt.h"

#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "services/cli/commands/commands.h"
#include "services/cli/output.h"
#include "services/cli/rest.h"
#include "services/cli/usage.h"
#include "shared/base/file.h"
#include "shared/site/prepared_data.h"

namespace atl::cli {
namespace {

using nlohmann::json;

constexpr const char* kAdoptHelp =
    R"(Registers data that are tokenised already, as by `atoll-trainer tokenize --split train` and `--split validation`, as the
dataset's next version. They stay where they are: the facility's work directory has PATH/train and PATH/validation. --data is a
directory here with a copy of their two files data.json (train/data.json, validation/data.json), which hold counts and
digests and no text; a job that begins there compares the site's own with them. Example:
  atoll dataset adopt diaries-it --facility leonardo --path prepared/diaries --data diaries)";

struct Adoption {
    std::string dataset, facility, path;
    std::filesystem::path data;
    bool moves = false;
};

Result<site::PreparedSplit> read_split(const std::filesystem::path& directory, const std::string& split) {
    const std::filesystem::path file = directory / split / "data.json";
    ATOLL_TRY(const std::string text, read_file(file));
    return site::read_data_json(text, file.string());
}

// A version's rows were made by the dataset's template.
Status check_template(http::Client& registry, const std::string& name, const site::PreparedSplit& train) {
    ATOLL_TRY(const json dataset, get_named(registry, "/v1/datasets", "dataset", name));
    const std::string wanted = text(dataset, "template");
    if (train.text_template.empty() || train.text_template == wanted || wanted == "chat:auto") return {};
    return invalid_argument("template", "the data were made by the template \"" + train.text_template + "\", " + name +
                                            " has \"" + wanted + "\": register a dataset with theirs");
}

// A copy that jobs use is not moved by a mistyped path.
Status require_no_other_copy(http::Client& registry, const Adoption& given, const std::string& number) {
    ATOLL_TRY(const json copies,
              get_all(registry, "/v1/datasets/" + segment(given.dataset) + "/versions/" + number + "/copies"));
    for (const json& copy : copies)
        if (text(copy, "facility") == given.facility && text(copy, "path") != given.path)
            return conflict("version " + number + " of " + given.dataset + " lies at " + given.facility + " in " +
                                text(copy, "path") + " already; if it has moved to " + given.path + ", say so: --move",
                            "--path");
    return {};
}

Status run_adopt(const Context& context, const Adoption& given) {
    ATOLL_TRY(const site::PreparedSplit train, read_split(given.data, "train"));
    ATOLL_TRY(const site::PreparedSplit validation, read_split(given.data, "validation"));
    ATOLL_TRY(const json spec, site::describe_version(train, validation));
    ATOLL_TRY(http::Client registry, context.client("registry"));
    ATOLL_TRY(http::Client dispatch, context.client("dispatch"));
    ATOLL_RETURN_IF_ERROR(get_named(dispatch, "/v1/facilities", "facility", given.facility));
    ATOLL_RETURN_IF_ERROR(check_template(registry, given.dataset, train));
    // The same data are the same version, so this may be asked for again.
    ATOLL_TRY(const json version, registry.post_json("/v1/datasets/" + segment(given.dataset) + "/versions", spec));
    const std::string number = version.at("version").dump();
    if (!given.moves) ATOLL_RETURN_IF_ERROR(require_no_other_copy(registry, given, number));
    const std::string place =
        "/v1/facilities/" + segment(given.facility) + "/copies/" + segment(given.dataset) + "/" + number;
    const auto copy = dispatch.put_json(place, json{{"path", given.path}});
    if (!copy.ok()) {
        Error error = copy.error();
        const auto copies =
            registry.get_json("/v1/datasets/" + segment(given.dataset) + "/versions/" + number + "/copies");
        if (!copies.ok() || !copies->at("items").empty()) return error;  // the version is of use elsewhere
        error.message += "; version " + number +
                         " is registered without this copy: mend that and try again, or remove it: atoll dataset rm " +
                         given.dataset + " --version " + number;
        return error;
    }
    if (context.json) return print_json(json{{"version", version}, {"copy", *copy}});
    print_line("version " + number + " of " + given.dataset + ": " + std::to_string(train.rows) +
               " rows to train on, " + std::to_string(validation.rows) + " to validate on; at " + given.facility +
               " in " + given.path);
    return {};
}

}  // namespace

void add_dataset_adopt(CLI::App& group, Context& context) {
    auto* command = group.add_subcommand("adopt", "register data that are tokenised already")->footer(kAdoptHelp);
    const auto given = std::make_shared<Adoption>();
    command->add_option("name", given->dataset, "the registered dataset")->required();
    command->add_option("--facility", given->facility, "where the data are")->required();
    command->add_option("--path", given->path, "the data's directory, relative to the facility's work directory")
        ->required();
    command->add_option("--data", given->data, "a directory here with train/data.json and validation/data.json")
        ->required()
        ->check(CLI::ExistingDirectory);
    command->add_flag("--move", given->moves, "a copy that the facility has of these data lies in PATH now");
    on_run(*command, context, [&context, given] { return run_adopt(context, *given); });
}

}  // namespace atl::cli
