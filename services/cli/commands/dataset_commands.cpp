#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>

#include "services/cli/commands/commands.h"
#include "services/cli/commands/dataset_adopt.h"
#include "services/cli/output.h"
#include "services/cli/rest.h"
#include "services/cli/usage.h"
#include "shared/base/id.h"
#include "shared/base/interrupt.h"
#include "shared/prompt/tokenizer_reader.h"
#include "shared/run_settings/chat_templates.h"
#include "shared/run_settings/input_formats.h"

namespace atl::cli {
namespace {

using nlohmann::json;

constexpr const char* kRegisterHelp = R"(Registers a corpus by name; its text stays at the facilities. Example:
  atoll dataset register diaries-it --language it --license restricted --template 'scrivi un seguente documento:: {{text}}')";
constexpr const char* kPrepareHelp =
    R"(Tokenises the text as a batch job at the facility and registers what came out as the dataset's next version.
The text itself never leaves the site. Example:
  atoll dataset prepare diaries-it --facility leonardo --input corpora/diaries.jsonl.gz \
      --tokenizer llama@v1 --seq-len 2048 --validation-percent 5)";

constexpr const char* kDatasetRemoveHelp =
    R"(What the coordinator knows of it goes; the bytes stay at the facilities, and the answer says where. Jobs that run go
on. Examples:
  atoll dataset rm diaries-it
  atoll dataset rm diaries-it --version 3 --copy leonardo)";

// A number of a version's statistics; 0 where it has none.
std::int64_t statistic(const json& version, const char* key) {
    const json statistics = version.value("statistics", json());
    return statistics.is_object() ? statistics.value(key, std::int64_t{0}) : 0;
}

std::int64_t document_count(const json& version) {
    std::int64_t documents = 0;
    for (const char* split : {"train", "validation"})
        documents += version.at(split).at("documents").get<std::int64_t>();
    return documents;
}

// The model whose tokenizer prepared it; where that is not known, the beginning of the tokenizer's fingerprint.
std::string tokenizer_text(const json& version) {
    constexpr std::size_t kShownCharacters = 8;
    const json tokenizer = version.value("tokenizer", json());
    if (!tokenizer.is_object()) return text(version, "tokenizer_sha256").substr(0, kShownCharacters);
    return text(tokenizer, "model") + "@" + text(tokenizer, "version").substr(0, kShownCharacters);
}

// "3"; "-": not known.
std::string reader_text(const json& version) {
    const std::int64_t reader = version.value("tokenizer_reader", std::int64_t{0});
    return reader == 0 ? "-" : std::to_string(reader);
}

// Why jobs do not take it; empty: this release's trainer reads tokenizers as the one that prepared it.
std::string other_reader(const json& version, const std::string& dataset) {
    const std::int64_t reader = version.value("tokenizer_reader", std::int64_t{0});
    if (reader == prompt::kTokenizerReader) return {};
    return std::string(reader < prompt::kTokenizerReader ? "an older" : "a newer") +
           " release prepared it, which reads tokenizers differently" +
           (reader == 0 ? "" : " (reader " + std::to_string(reader) + ")") +
           "; jobs take what this one prepares: atoll dataset prepare " + dataset + " …";
}

// "3.2 %" of the tokens that the documents had.
std::string cut_share(const json& version) {
    const auto cut = static_cast<double>(statistic(version, "tokens_truncated"));
    if (cut == 0) return "-";
    double tokens = 0;
    for (const char* split : {"train", "validation"}) tokens += version.at(split).at("tokens").get<double>();
    char share[32];
    std::snprintf(share, sizeof share, "%.1f %%", 100 * cut / (tokens + cut));
    return share;
}

// Empty: there is none.
std::string longer_documents(const json& version) {
    const std::int64_t longer = statistic(version, "longer");
    if (longer == 0) return {};
    const std::string share = cut_share(version);
    return std::to_string(longer) + " of " + std::to_string(document_count(version)) +
           " documents are longer than a row" +
           (share == "-" ? ", and go on in the next"
                         : ": " + share + " of all tokens are cut off; a larger --seq-len keeps them");
}

struct Description {
    std::string name, language, license, text_template, description, source;
};

struct Preparation {
    std::string dataset, facility, tokenizer, input_format, batching = "packing";
    std::vector<std::string> inputs, validation_inputs;
    std::int64_t seq_len = 0;
    std::optional<std::int64_t> validation_percent;
    bool no_wait = false;
};

Status run_register(const Context& context, const Description& given) {
    json dataset = {{"name", given.name},
                    {"language", given.language},
                    {"license", given.license},
                    {"template", given.text_template}};
    if (!given.description.empty()) dataset["description"] = given.description;
    if (!given.source.empty()) dataset["source"] = given.source;
    ATOLL_TRY(http::Client client, context.client("registry"));
    ATOLL_TRY(const json answer, client.post_json("/v1/datasets", dataset, new_id()));
    if (context.json) return print_json(answer);
    std::cout << "registered " << given.name << "; next: atoll dataset prepare " << given.name
              << " --facility NAME …\n";
    std::vector<std::string> fields;
    for (const json& field : answer.value("fields", json::array())) fields.push_back(field.get<std::string>());
    if (run_settings::chat_template_of(given.text_template))
        print_line(
            "each row of its files at a site must be a conversation: messages, conversations, or prompt and "
            "completion");
    else if (!fields.empty())
        print_line("each row of its files at a site must have: " + join(fields));
    return {};
}

Result<json> preparation_request(const Preparation& given) {
    const auto at = given.tokenizer.find('@');
    if (at == std::string::npos || at == 0 || at + 1 == given.tokenizer.size())
        return invalid_argument("--tokenizer", "give a model and its version or tag, as in llama@v1");
    const std::string input = join(given.inputs, ",");
    if (input.empty()) return invalid_argument("--input", "is empty: name files, or a directory, at the site");
    json request = {
        {"facility", given.facility},
        {"dataset", given.dataset},
        {"tokenizer", {{"model", given.tokenizer.substr(0, at)}, {"version", given.tokenizer.substr(at + 1)}}},
        {"input", input},
        {"seq_len", given.seq_len},
        {"batching", given.batching}};
    if (!given.input_format.empty()) request["input_format"] = given.input_format;
    if (given.validation_percent) request["validation_percent"] = *given.validation_percent;
    if (!given.validation_inputs.empty() && join(given.validation_inputs, ",").empty())
        return invalid_argument("--validation-input", "is empty: name files, or a directory, at the site");
    if (!given.validation_inputs.empty()) request["validation_input"] = join(given.validation_inputs, ",");
    return request;
}

// What stands in a preparation's way and since when, or why it failed.
std::string obstacle_text(const json& preparation) {
    const std::string waiting = waiting_text(preparation.value("waiting", json()));
    if (!waiting.empty()) return waiting;
    const std::string queued = text(preparation, "queue_reason");
    return queued.empty() ? text(preparation, "error") : queued + " since " + text(preparation, "queue_reason_since");
}

// Why an attempt ended that another one has followed.
std::string attempt_text(const json& attempt) {
    return "attempt " + text(attempt, "attempt") + " ended: " + text(attempt, "error");
}

std::string input_text(const json& preparation) {
    const std::string format = text(preparation, "input_format"), validation = text(preparation, "validation_input");
    return text(preparation, "input") + (format.empty() ? "" : " (" + format + ")") +
           (validation.empty() ? "" : "; for validation " + validation);
}

// What stands in its way, and why earlier attempts ended.
std::string remarks_text(const json& preparation) {
    std::vector<std::string> remarks;
    if (const std::string obstacle = obstacle_text(preparation); !obstacle.empty()) remarks.push_back(obstacle);
    for (const json& attempt : preparation.value("earlier_attempts", json::array()))
        remarks.push_back(attempt_text(attempt));
    return join(remarks, "; ");
}

// Which versions of datasets the registry has. Asks for each dataset once; where it does not answer, all are there.
class KnownVersions {
  public:
    explicit KnownVersions(Result<http::Client> registry) : registry_(std::move(registry)) {}

    // False also for one of a dataset of the same name that was removed since.
    bool has(const json& preparation) {
        const Dataset& dataset = look_up(text(preparation, "dataset"));
        if (dataset.is_unknown) return true;
        return text(preparation, "created_at") >= dataset.created_at &&
               dataset.versions.contains(text(preparation, "version"));
    }

  private:
    struct Dataset {
        bool is_unknown = false;
        std::string created_at;
        std::set<std::string> versions;
    };

    const Dataset& look_up(const std::string& name) {
        const auto [found, is_new] = datasets_.try_emplace(name);
        if (!is_new) return found->second;
        Dataset& dataset = found->second;
        if (!registry_.ok()) dataset.is_unknown = true;
        if (dataset.is_unknown) return dataset;
        const std::string path = "/v1/datasets/" + segment(name);
        const auto answer = registry_->get_json(path);
        const auto versions = answer.ok() ? get_all(*registry_, path + "/versions") : Result<json>(answer.error());
        dataset.is_unknown = !versions.ok() && versions.error().code != ErrorCode::kNotFound;
        if (!versions.ok()) return dataset;
        dataset.created_at = text(*answer, "created_at");
        for (const json& version : *versions) dataset.versions.insert(text(version, "version"));
        return dataset;
    }

    Result<http::Client> registry_;
    std::map<std::string, Dataset> datasets_;
};

// Newest first; of one dataset, or of all.
Status list_preparations(const Context& context, const std::string& dataset) {
    ATOLL_TRY(http::Client client, context.client("dispatch"));
    ATOLL_TRY(const json all, get_all(client, "/v1/preparations"));
    json items = json::array();
    for (const json& item : all)
        if (dataset.empty() || text(item, "dataset") == dataset) items.push_back(item);
    if (items.empty() && !dataset.empty()) {  // is there such a dataset?
        ATOLL_TRY(http::Client registry, context.client("registry"));
        ATOLL_RETURN_IF_ERROR(get_named(registry, "/v1/datasets", "dataset", dataset));
    }
    KnownVersions known(context.client("registry"));
    return print_items(
        context, items,
        {"preparation", cut("dataset"), cut("facility"), "state", droppable("attempt"), droppable("begun"),
         droppable("by"), droppable("tokenizer"), droppable("seq_len"), droppable("input"), "version", note("remarks")},
        [&](const json& item) -> std::vector<std::string> {
            const std::string state = text(item, "state"), step = text(item, "step");
            std::string version = text(item, "version");
            if (!version.empty() && !known.has(item)) version += " (removed)";
            const json tokenizer = item.value("tokenizer", json());
            return {
                text(item, "id"),
                text(item, "dataset"),
                text(item, "facility"),
                step.empty() || step == state ? state : state + ": " + step,
                text(item, "attempt"),
                text(item, "created_at"),
                text(item, "created_by"),
                tokenizer.is_object() ? text(tokenizer, "model") + "@" + text(tokenizer, "version").substr(0, 16) : "",
                text(item, "seq_len"),
                input_text(item),
                version,
                remarks_text(item)};
        });
}

// What the site's look at the input has found names the field that is wrong: "…: prepare failed at attempt 1: input:
// …".
Error end_of_preparation(const std::string& state, const std::string& error) {
    const std::string said = "the preparation " + state + ": " + with_indented_lines(error);
    const std::size_t attempt = error.find(" failed at attempt ");
    const std::size_t colon = attempt == std::string::npos ? attempt : error.find(": ", attempt);
    for (const char* field : {"input", "tokenizer"})
        if (colon != std::string::npos && error.find(field + std::string(": "), colon) == colon + 2)
            return invalid_argument(field, said);
    return internal_error(said);
}

// Asks every half second until the preparation ends; a line whenever its state changes, or what it waits for, or an
// attempt has ended and another one follows.
Result<json> follow_preparation(http::Client& client, const std::string& id) {
    say_on_interrupt("preparation " + id + " goes on without you\n  find it again:  atoll dataset preparations");
    std::string shown;
    std::string reason;
    std::int64_t told = 0;  // the newest attempt of which it was said
    for (;;) {
        ATOLL_TRY(const json now, client.get_json("/v1/preparations/" + segment(id)));
        const std::string state = text(now, "state");
        if (state != shown) std::cerr << "  preparation " << id << ": " << state << "\n";
        shown = state;
        for (const json& one : now.value("earlier_attempts", json::array())) {
            const auto number = one.at("attempt").get<std::int64_t>();
            if (number > told)
                std::cerr << "  preparation " << id << " " << with_indented_lines(attempt_text(one)) << "\n";
            told = std::max(told, number);
        }
        const json waiting = now.value("waiting", json());
        const std::string newest = waiting.is_object() ? text(waiting, "reason") : text(now, "queue_reason");
        if (newest != reason && state != "done")
            std::cerr << "  preparation " << id << ": "
                      << (newest.empty() ? "goes on" : with_indented_lines(obstacle_text(now))) << "\n";
        reason = newest;
        if (state == "done") return now;
        if (state == "failed" || state == "cancelled") return end_of_preparation(state, text(now, "error"));
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }
}

Status run_prepare(const Context& context, const Preparation& given) {
    ATOLL_TRY(const json request, preparation_request(given));
    ATOLL_TRY(http::Client client, context.client("dispatch"));
    ATOLL_TRY(json answer, client.post_json("/v1/preparations", request, new_id()));
    if (!given.no_wait) {
        ATOLL_TRY(answer, follow_preparation(client, text(answer, "id")));
    }
    if (const json result = answer.value("result", json()); result.is_object() && !lack_of_ends(result).empty())
        std::cerr << "warning: " << lack_of_ends(result)
                  << ": a model that is trained on them does not learn where a text ends. To mend it " << kMendEnds
                  << "\n";
    if (context.json) return print_json(answer);
    if (given.no_wait)
        std::cout << text(answer, "id") << "\n";
    else
        std::cout << given.dataset << " has version " << text(answer, "version") << " at " << given.facility << "\n";
    if (const json result = answer.value("result", json()); result.is_object())
        if (const std::string longer = longer_documents(result); !longer.empty()) print_line(longer);
    return {};
}

Status list_datasets(const Context& context) {
    ATOLL_TRY(http::Client client, context.client("registry"));
    ATOLL_TRY(const json items, get_all(client, "/v1/datasets"));
    return print_items(context, items, {"dataset", "language", cut("license"), note("template")},
                       [](const json& item) -> std::vector<std::string> {
                           return {text(item, "name"), text(item, "language"), text(item, "license"),
                                   text(item, "template")};
                       });
}

// Those that dispatch knows; nothing where it does not answer.
std::optional<std::set<std::string>> facility_names(const Context& context) {
    auto client = context.client("dispatch");
    if (!client.ok()) return std::nullopt;
    const auto facilities = get_all(*client, "/v1/facilities");
    if (!facilities.ok()) return std::nullopt;
    std::set<std::string> names;
    for (const json& facility : *facilities) names.insert(text(facility, "name"));
    return names;
}

Status show_dataset(const Context& context, const std::string& name, bool croissant) {
    ATOLL_TRY(http::Client client, context.client("registry"));
    const std::string path = "/v1/datasets/" + segment(name);
    ATOLL_TRY(json dataset, get_named(client, "/v1/datasets", "dataset", name));
    if (croissant) {
        ATOLL_TRY(const json document, client.get_json(path + "/croissant"));
        return print_json(document);
    }
    ATOLL_TRY(dataset["versions"], get_all(client, path + "/versions"));
    for (json& version : dataset["versions"]) {
        ATOLL_TRY(version["copies"], get_all(client, path + "/versions/" + text(version, "version") + "/copies"));
    }
    if (context.json) return print_json(dataset);
    for (const char* key : {"name", "language", "license", "description", "template", "source"})
        if (const std::string value = text(dataset, key); !value.empty()) print_line(std::string(key) + ": " + value);
    Table table({"version", "tokenizer", droppable("reader"), "seq_len", droppable("batching"), "documents",
                 "train tokens", droppable("validation tokens"), "cut off", droppable("text"), note("copies at")});
    const auto known = facility_names(context);
    for (const json& version : dataset["versions"]) {
        std::vector<std::string> facilities;
        for (const json& copy : version["copies"]) {
            const std::string facility = text(copy, "facility");
            facilities.push_back(facility + (known && !known->contains(facility) ? " (no such facility)" : ""));
        }
        const std::int64_t bytes = statistic(version, "bytes");
        table.add({text(version, "version"), tokenizer_text(version), reader_text(version), text(version, "seq_len"),
                   text(version, "batching"), std::to_string(document_count(version)), text(version, "train", "tokens"),
                   text(version, "validation", "tokens"), cut_share(version),
                   bytes > 0 ? human_bytes(static_cast<std::uint64_t>(bytes)) : "-", join(facilities)});
    }
    print(table);
    for (const json& version : dataset["versions"])
        for (const std::string& remark :
             {other_reader(version, name), lack_of_ends(version), longer_documents(version)})
            if (!remark.empty()) print_line("version " + text(version, "version") + ": " + remark);
    return {};
}

struct Removal {
    std::string name, version, facility, preparation;
};

Result<std::string> removed_path(const Removal& given) {
    if (given.name.empty() == given.preparation.empty())
        return invalid_argument("name", "name a dataset, or a preparation with --preparation");
    if (!given.preparation.empty()) return "/v1/preparations/" + segment(given.preparation);
    if (given.version.empty() && !given.facility.empty())
        return invalid_argument("--version", "say of which version the copy is");
    std::string path = "/v1/datasets/" + segment(given.name);
    if (!given.version.empty()) path += "/versions/" + segment(given.version);
    if (!given.facility.empty()) path += "/copies/" + segment(given.facility);
    return path;
}

Status remove_from_dataset(const Context& context, const Removal& given) {
    ATOLL_TRY(const std::string path, removed_path(given));
    ATOLL_TRY(http::Client client, context.client(given.preparation.empty() ? "registry" : "dispatch"));
    ATOLL_TRY(const auto answer, client.call(http::Method::kDelete, path));
    if (const Status removed = answer.check(); !removed.ok())
        return given.preparation.empty()
                   ? with_near_name(client, "/v1/datasets", "dataset", given.name, removed.error())
                   : removed.error();
    ATOLL_TRY(const json removed, answer.json());
    if (context.json) return print_json(removed);
    std::cout << "removed\n";
    for (const json& place : removed.at("left")) {
        std::cout << "  stays at " << text(place, "facility") << ": ";
        if (given.preparation.empty()) {
            std::cout << text(place, "path") << " in its work directory (version " << text(place, "version") << ")\n";
        } else {
            for (const json& task : place.at("tasks"))
                std::cout << "logs in " << text(place, "work_dir") << "/tasks/" << task.get<std::string>() << "\n";
        }
    }
    return {};
}

void add_dataset_rm(CLI::App& group, Context& context) {
    auto* rm = group.add_subcommand("rm", "remove a dataset, a version, a copy, or a preparation that has ended")
                   ->footer(kDatasetRemoveHelp);
    const auto given = std::make_shared<Removal>();
    rm->add_option("name", given->name, "the dataset, with all its versions");
    rm->add_option("--version", given->version, "only this version");
    rm->add_option("--copy", given->facility, "only what is known of this facility's copy of the version");
    rm->add_option("--preparation", given->preparation, "a preparation's id: atoll dataset preparations");
    on_run(*rm, context, [&context, given] { return remove_from_dataset(context, *given); });
}

void add_register(CLI::App& group, Context& context) {
    auto* command = group.add_subcommand("register", "register a corpus")->footer(kRegisterHelp);
    const auto given = std::make_shared<Description>();
    command->add_option("name", given->name, "its name")->required();
    command->add_option("--language", given->language, "BCP 47, as it or cs-CZ")->required();
    command->add_option("--license", given->license, "SPDX identifier, or words")->required();
    command
        ->add_option("--template", given->text_template,
                     "the prompt template, with {{text}}; of conversations chat:NAME or chat:auto, as `atoll-trainer "
                     "tokenize --chat-template`")
        ->required();
    command->add_option("--description", given->description, "for people");
    command->add_option("--source", given->source, "where the text came from");
    on_run(*command, context, [&context, given] { return run_register(context, *given); });
}

void add_prepare(CLI::App& group, Context& context) {
    auto* command = group.add_subcommand("prepare", "tokenise a corpus at a facility")->footer(kPrepareHelp);
    const auto given = std::make_shared<Preparation>();
    command->add_option("name", given->dataset, "the registered dataset")->required();
    command->add_option("--facility", given->facility, "where the text lies")->required();
    command
        ->add_option(
            "--input", given->inputs,
            "files, directories or patterns ('texts/*.jsonl.gz') at the site, by commas or given again, relative "
            "to its work directory: JSON lines, a JSON array, CSV, TSV, text; gzip or zstd")
        ->required()
        ->allow_extra_args(false);
    command->add_option(
        "--input-format", given->input_format,
        "what all files are: " + join(run_settings::kInputFormats) +
            "; auto, the default, goes by their first bytes and names; text is a document a file, lines a "
            "document a line");
    command->add_option("--tokenizer", given->tokenizer, "MODEL@VERSION: a model version with a tokenizer")->required();
    command->add_option("--seq-len", given->seq_len, "tokens a row")->required();
    command->add_option("--batching", given->batching, "packing or padding")->capture_default_str();
    auto* percent = command->add_option("--validation-percent", given->validation_percent,
                                        "of the documents, kept for validation; the default is 5");
    command
        ->add_option(
            "--validation-input", given->validation_inputs,
            "files, directories or patterns of documents that are for validation alone; then all of --input is "
            "trained on")
        ->excludes(percent)
        ->allow_extra_args(false);
    command->add_flag("--no-wait", given->no_wait,
                      "print the preparation's id and return; `atoll dataset preparations` finds it again");
    on_run(*command, context, [&context, given] { return run_prepare(context, *given); });
}

void add_preparations(CLI::App& group, Context& context) {
    auto* command = group.add_subcommand("preparations", "what was prepared where: state, version, error");
    const auto dataset = std::make_shared<std::string>();
    command->add_option("name", *dataset, "of this dataset; default: of all");
    set_example(*command, "atoll dataset preparations diaries-it");
    on_run(*command, context, [&context, dataset] { return list_preparations(context, *dataset); });
}

}  // namespace

Result<json> versions_at(const Context& context, const std::string& facility) {
    ATOLL_TRY(http::Client registry, context.client("registry"));
    ATOLL_TRY(const json datasets, get_all(registry, "/v1/datasets"));
    json versions = json::array();
    for (const json& dataset : datasets) {
        const std::string name = text(dataset, "name");
        ATOLL_TRY(const json page, registry.get_json("/v1/datasets/" + segment(name) +
                                                     "/versions?limit=1000&facility=" + segment(facility)));
        for (json version : page.at("items")) {
            version["dataset"] = name;
            versions.push_back(std::move(version));
        }
    }
    return versions;
}

std::string lack_of_ends(const json& version) {
    const std::int64_t without_end = statistic(version, "without_end");
    if (without_end == 0) return {};
    return std::to_string(without_end) + " of " + std::to_string(document_count(version)) +
           " documents have no end token";
}

void add_dataset_commands(CLI::App& program, Context& context) {
    auto* group = program.add_subcommand("dataset", "corpora, whose text stays where it is")->require_subcommand(1);
    add_register(*group, context);
    add_prepare(*group, context);
    add_preparations(*group, context);
    add_dataset_adopt(*group, context);
    add_dataset_rm(*group, context);
    set_example(*group, "atoll dataset show diaries-it");
    auto* list = group->add_subcommand("list", "all datasets");
    set_example(*list, "atoll dataset list");
    on_run(*list, context, [&context] { return list_datasets(context); });
    auto* show = group->add_subcommand("show", "one dataset with its versions and where their copies are");
    const auto name = std::make_shared<std::string>();
    const auto croissant = std::make_shared<bool>(false);
    show->add_option("name", *name, "the dataset")->required();
    show->add_flag("--croissant", *croissant, "as Croissant JSON-LD");
    set_example(*show, "atoll dataset show diaries-it");
    on_run(*show, context, [&context, name, croissant] { return show_dataset(context, *name, *croissant); });
}

}  // namespace atl::cli
