#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "services/cli/commands/commands.h"
#include "services/cli/commands/model_directory.h"
#include "services/cli/commands/model_push.h"
#include "services/cli/commands/model_verify.h"
#include "services/cli/commands/trainer_program.h"
#include "services/cli/output.h"
#include "services/cli/rest.h"
#include "services/cli/terminal.h"
#include "services/cli/transfer.h"
#include "services/cli/usage.h"
#include "shared/base/id.h"
#include "shared/base/spelling.h"
#include "shared/delta/control_variate.h"
#include "shared/model_config/tensors.h"
#include "shared/service/names.h"

namespace atl::cli {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* kPullHelp =
    R"(Fetches a version into a directory; an interrupted call goes on where it stopped. Example:
  atoll model pull italian-czech@newest --out ./model
MODEL@VERSION: a tag, a digest or at least 8 characters of it as tables show it, newest (also without @VERSION), or
round3, the global model of that round. Of an adapter (adapter_config.json, adapter_model.safetensors, as peft reads
them) --merge makes a whole model:
  atoll model pull italian-czech@newest --merge --out ./model)";

constexpr const char* kRemoveHelp =
    R"(What a tag, another version, a job or a site needs stays, and the error says what that is. Example:
  atoll model rm italian-czech@3f6c…
The bytes go when nothing needs them any more; `atoll model prune` does not wait.)";

constexpr std::size_t kDigestBeginningMin = 8;  // characters, as the store has it

struct Reference {
    std::string model;
    std::string version;  // as the store takes it: a digest or its beginning, a tag, "newest", "round3"
};

Result<Reference> parse_reference(const std::string& text) {
    const auto at = text.find('@');
    if (at == 0 || text.empty()) return invalid_argument("version", "no model stands before the @ of '" + text + "'");
    if (at == std::string::npos) return Reference{text, "newest"};
    if (at + 1 == text.size())
        return invalid_argument("version",
                                "nothing stands after the @ of '" + text + "': a digest, a tag, newest, or round3");
    return Reference{text.substr(0, at), text.substr(at + 1)};
}

std::string model_path(const std::string& model) {
    return "/v1/models/" + segment(model);
}

// The version's JSON with its manifest.
Result<json> find_version(http::Client& store, const Reference& reference) {
    ATOLL_TRY(const json model, get_named(store, "/v1/models", "model", reference.model));
    auto found = store.get_json(model_path(reference.model) + "/versions/" + segment(reference.version));
    if (found.ok() || found.error().code != ErrorCode::kNotFound) return found;
    std::vector<std::string> tags = {"newest"};
    const json tagged = model.value("tags", json::object());
    for (const auto& [tag, tagged_digest] : tagged.items()) tags.push_back(tag);
    return not_found(found.error().message + did_you_mean(reference.version, tags), "version");
}

// The model as the store knows it; null: there is none yet.
Result<json> find_model(http::Client& store, const std::string& model) {
    auto found = store.get_json(model_path(model));
    if (!found.ok() && found.error().code == ErrorCode::kNotFound) return json();
    return found;
}

// A description that the model does not have, which exists already, is refused.
Status check_description(const json& model, const PushOptions& given) {
    if (model.is_null() || given.description.empty() || text(model, "description") == given.description) return {};
    return invalid_argument("--description", "only for a model that is made now; " + given.model + " exists already");
}

// Whether it may be a digest or its beginning.
bool is_digest_like(const std::string& text) {
    return text.size() >= kDigestBeginningMin && text.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
}

// Of whichever model; none: no version has it.
Result<std::set<std::string>> find_digests(http::Client& store, const std::string& beginning) {
    std::set<std::string> digests;
    ATOLL_TRY(const json models, get_all(store, "/v1/models"));
    for (const json& model : models) {
        const auto version = store.get_json(model_path(text(model, "name")) + "/versions/" + segment(beginning));
        if (version.ok()) digests.insert(text(*version, "digest"));
        if (!version.ok() && version.error().code != ErrorCode::kNotFound) return version.error();
    }
    return digests;
}

Result<std::string> version_digest(http::Client& store, const std::string& given) {
    if (is_digest_like(given)) {
        ATOLL_TRY(const auto digests, find_digests(store, given));
        if (digests.size() == 1) return *digests.begin();
        if (digests.size() > 1)
            return invalid_argument("", "several versions begin with " + given + "; give more of it: " +
                                            join(std::vector<std::string>(digests.begin(), digests.end())));
    }
    ATOLL_TRY(const Reference reference, parse_reference(given));
    ATOLL_TRY(const json version, find_version(store, reference));
    return text(version, "digest");
}

// As a version is named anywhere; a digest, or its beginning, also without its model.
Result<std::string> parent_digest(http::Client& store, const std::string& given, const char* flag) {
    auto digest = version_digest(store, given);
    if (digest.ok()) return digest;
    Error error = digest.error();
    if (error.code == ErrorCode::kNotFound && is_digest_like(given))
        error.message = "no version of a model begins with " + given;
    error.field = flag;
    return error;
}

// What a tag names others rely on: without --move-tag one that exists is put on the version that it names alone. The
// store sees to that as well; this is before the upload.
Status check_tag(const json& model, const PushOptions& given, const store_client::Manifest& manifest) {
    if (model.is_null() || given.tag.empty() || given.move_tag) return {};
    const std::string named = model.value("tags", json::object()).value(given.tag, "");
    if (named.empty() || store_client::manifest_digest(manifest) == named) return {};
    return conflict(given.model + "@" + given.tag + " is another version, " + named.substr(0, 16) +
                        "…; --move-tag takes the tag from it",
                    "--tag");
}

struct ScannedModel {
    store_client::Manifest manifest;
    double seconds = 0;
};

// Reads the directory once, for the digests of its files and the values of its weights.
Result<ScannedModel> scan_model(const PushOptions& given, int threads) {
    ATOLL_TRY(const safetensors::Model weights, check_model_directory(given.directory));
    const model_config::ValueCheck values(weights);
    store_client::Progress progress;
    for (const auto& file : weights.files()) progress.bytes_total += file.whole().size();
    const auto show = show_progress("checking");
    std::mutex mutex;
    const auto on_chunk = [&](const fs::path& file, std::uint64_t offset, std::string_view bytes) -> Status {
        ATOLL_RETURN_IF_ERROR(values.check(file, offset, std::as_bytes(std::span(bytes))));
        const std::lock_guard lock(mutex);
        progress.bytes_done = std::min(progress.bytes_total, progress.bytes_done + bytes.size());
        if (show) show(progress);
        return {};
    };
    const auto begin = std::chrono::steady_clock::now();
    ATOLL_TRY(auto manifest, store_client::scan_directory(given.directory, threads, on_chunk));
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return ScannedModel{std::move(manifest), seconds};
}

// At once: nobody can put the tag on another version meanwhile.
Status put_tag(http::Client& store, const PushOptions& given, const std::string& digest) {
    const auto put = store.put_json(model_path(given.model) + "/tags/" + segment(given.tag),
                                    {{"digest", digest}, {"move", given.move_tag}});
    if (put.ok() || put.error().code != ErrorCode::kConflict) return put.ok() ? Status() : put.error();
    return conflict(given.model + "@" + digest + " is stored, but not as " + given.tag +
                        ", which somebody has put on another version meanwhile; `atoll model tag` moves it",
                    "--tag");
}

// The same files are the same version, which keeps what it was first stored with.
Status check_stored(const PushOptions& given, const json& parents, const json& version) {
    const std::string which = given.model + "@" + text(version, "digest").substr(0, 16) + " holds these files already";
    const std::string stays = ", and a version keeps what it was stored with";
    if (given.names_kind && text(version, "kind") != given.kind)
        return conflict(which + " as " + text(version, "kind") + stays, "--kind");
    if (!given.adapter_of.empty() && text(version, "kind") != "adapter")
        return conflict(which + " as " + text(version, "kind") + ", no adapter" + stays, "--adapter-of");
    const json stored = version.value("parents", json::array());
    const auto is_stored = [&](const json& parent) {
        return std::find(stored.begin(), stored.end(), parent) != stored.end();
    };
    if (!std::all_of(parents.begin(), parents.end(), is_stored))
        return conflict(
            which + (stored.empty() ? ", with no parent" : ", with other parents: " + stored.dump()) + stays,
            "--parent");
    return {};
}

Result<json> push(const Context& context, const PushOptions& given) {
    ATOLL_TRY(const auto options, transfer_options(context, "uploading"));
    http::Client store(options.store);
    ATOLL_TRY(const json model, find_model(store, given.model));
    ATOLL_RETURN_IF_ERROR(check_description(model, given));
    json parents = json::array();
    for (const std::string& parent : given.parents) {
        ATOLL_TRY(const std::string digest, parent_digest(store, parent, "--parent"));
        parents.push_back(digest);
    }
    if (!given.adapter_of.empty()) {
        ATOLL_TRY(const std::string digest, parent_digest(store, given.adapter_of, "--adapter-of"));
        parents = {digest};
    }
    ATOLL_TRY(ScannedModel scanned, scan_model(given, options.connections));
    ATOLL_RETURN_IF_ERROR(check_tag(model, given, scanned.manifest));
    ATOLL_TRY(const auto uploaded,
              store_client::upload_directory(given.directory, options, std::move(scanned.manifest)));
    const json order = {{"manifest", store_client::to_json(uploaded.manifest)},
                        {"kind", given.adapter_of.empty() ? given.kind : "adapter"},
                        {"parents", parents},
                        {"new_model", {{"description", given.description}}}};
    ATOLL_TRY(json version, store.post_json(model_path(given.model) + "/versions", order, new_id()));
    ATOLL_RETURN_IF_ERROR(check_stored(given, parents, version));
    if (!given.tag.empty()) {
        ATOLL_RETURN_IF_ERROR(put_tag(store, given, version.at("digest")));
        version["tags"].push_back(given.tag);
    }
    version["bytes_sent"] = uploaded.bytes_sent;
    version["check_seconds"] = scanned.seconds;
    return version;
}

// What an adapter makes of its model. Both are fetched beside the result, where an interrupted call finds them again.
Status pull_merged(const json& version, const fs::path& out, const store_client::TransferOptions& options) {
    const std::string adapter_of = text(version, "adapter_of");
    if (adapter_of.empty())
        return invalid_argument("--merge", "the version is a model, no adapter of one: leave --merge out");
    const fs::path beside = fs::absolute(out).lexically_normal();
    const auto part = [&](const char* name) {
        return beside.parent_path() / ("." + beside.filename().string() + "." + name);
    };
    ATOLL_RETURN_IF_ERROR(store_client::download_version(text(version, "digest"), part("adapter"), options));
    ATOLL_RETURN_IF_ERROR(store_client::download_version(adapter_of, part("model"), options));
    ATOLL_RETURN_IF_ERROR(run_trainer(
        {"merge", "--model", part("model").string(), "--adapter", part("adapter").string(), "--out", out.string()},
        "--merge"));
    std::error_code error;  // what stays is only in the way
    for (const char* name : {"adapter", "model"}) fs::remove_all(part(name), error);
    return {};
}

Status run_pull(const Context& context, const std::string& reference, const fs::path& out, bool merge) {
    ATOLL_TRY(auto options, transfer_options(context, "downloading"));
    options.on_damaged = [pool = std::make_shared<store_client::ClientPool>(options.store)](const std::string& blob) {
        return tell_store(*pool, blob);
    };
    options.leaves_out = delta::is_control_variate;  // only a round's trainings have a use for it
    http::Client store(options.store);
    ATOLL_TRY(const Reference parsed, parse_reference(reference));
    ATOLL_TRY(const json version, find_version(store, parsed));
    ATOLL_RETURN_IF_ERROR(merge ? pull_merged(version, out, options)
                                : store_client::download_version(text(version, "digest"), out, options));
    if (context.json) return print_json(json{{"digest", version.at("digest")}, {"directory", out.string()}});
    print_line(out.string() + ": " + text(version, "model") + "@" + text(version, "digest"));
    return {};
}

// "a, b and 2 more": every row of a table is as wide as its widest cell.
std::string some_of(std::vector<std::string> tags) {
    constexpr std::size_t kShownMax = 5;
    if (tags.size() <= kShownMax) return join(tags);
    const std::size_t more = tags.size() - kShownMax;
    tags.resize(kShownMax);
    return join(tags) + " and " + std::to_string(more) + " more";
}

Status list_models(const Context& context) {
    ATOLL_TRY(http::Client store, context.client("store"));
    ATOLL_TRY(const json models, get_all(store, "/v1/models"));
    return print_items(context, models, {"model", "versions", cut("tags"), droppable("created"), note("description")},
                       [](const json& model) -> std::vector<std::string> {
                           std::vector<std::string> tags;
                           for (const auto& [tag, digest] : model.at("tags").items()) tags.push_back(tag);
                           return {text(model, "name"), text(model, "version_count"), some_of(tags),
                                   text(model, "created_at"), text(model, "description")};
                       });
}

Status show_model(const Context& context, http::Client& store, const std::string& name) {
    ATOLL_TRY(json model, get_named(store, "/v1/models", "model", name));
    ATOLL_TRY(model["versions"], get_all(store, model_path(name) + "/versions"));
    if (context.json) return print_json(model);
    const std::size_t shown = is_terminal_output() ? 8 : std::string::npos;  // so much of an id names its job
    Table table({"version", "kind", "size", cut("job"), "round", droppable("by"), droppable("created"), note("tags")});
    for (const json& version : model["versions"]) {
        const bool is_adapter = !text(version, "adapter_of").empty() && text(version, "kind") != "adapter";
        table.add({text(version, "digest").substr(0, 16), text(version, "kind") + (is_adapter ? " adapter" : ""),
                   human_bytes(version.at("size").get<std::uint64_t>()), text(version, "job").substr(0, shown),
                   text(version, "round"), text(version, "created_by"), text(version, "created_at"),
                   some_of(version.at("tags").get<std::vector<std::string>>())});
    }
    print(table);
    return {};
}

Status show_version(const Context& context, http::Client& store, const Reference& reference) {
    ATOLL_TRY(const json version, find_version(store, reference));
    if (context.json) return print_json(version);
    for (const char* key : {"model", "digest", "kind", "adapter_of", "job", "round", "created_by", "created_at"})
        if (const std::string value = text(version, key); !value.empty()) print_line(std::string(key) + ": " + value);
    for (const json& parent : version.at("parents")) std::cout << "parent: " << parent.get<std::string>() << "\n";
    for (const json& part : version.at("contributions")) {
        const std::string norm = text(part, "norm");
        print_line("from: " + text(part, "facility") + ", weight " + text(part, "weight") + ", " +
                   text(part, "tokens") + " tokens, " + (norm.empty() ? "" : "norm " + norm + ", ") +
                   text(part, "version"));
    }
    if (!version.at("metrics").empty()) print_line("metrics: " + version.at("metrics").dump());
    Table table({"file", "size", "chunks"});
    for (const json& file : version.at("manifest").at("files"))
        table.add({text(file, "path"), human_bytes(file.at("size").get<std::uint64_t>()),
                   std::to_string(file.at("chunks").size())});
    print(table);
    return {};
}

Status show_version(const Context& context, const std::string& reference) {
    ATOLL_TRY(http::Client store, context.client("store"));
    if (reference.find('@') == std::string::npos) return show_model(context, store, reference);
    ATOLL_TRY(const Reference parsed, parse_reference(reference));
    return show_version(context, store, parsed);
}

Status run_tag(const Context& context, const std::string& reference, const std::string& tag) {
    ATOLL_RETURN_IF_ERROR(service::check_name(tag, "tag"));
    ATOLL_TRY(http::Client store, context.client("store"));
    ATOLL_TRY(const Reference parsed, parse_reference(reference));
    ATOLL_TRY(const json version, find_version(store, parsed));
    ATOLL_TRY(const json answer,
              store.put_json(model_path(parsed.model) + "/tags/" + segment(tag), {{"digest", version.at("digest")}}));
    if (context.json) return print_json(answer);
    std::cout << parsed.model << "@" << tag << " is " << text(answer, "digest") << "\n";
    return {};
}

Status remove(const Context& context, http::Client& store, const std::string& path, const std::string& what) {
    ATOLL_TRY(const auto answer, store.call(http::Method::kDelete, path));
    ATOLL_RETURN_IF_ERROR(answer.check());
    if (context.json) return print_json(json{{"removed", what}});
    std::cout << what << " is removed\n";
    return {};
}

// A model with all its versions, or one version.
Status run_rm(const Context& context, const std::string& reference) {
    ATOLL_TRY(http::Client store, context.client("store"));
    ATOLL_TRY(const Reference parsed, parse_reference(reference));
    if (reference.find('@') == std::string::npos)
        return remove(context, store, model_path(parsed.model), "model " + parsed.model);
    ATOLL_TRY(const json version, find_version(store, parsed));
    const std::string digest = text(version, "digest");
    return remove(context, store, model_path(parsed.model) + "/versions/" + digest, parsed.model + "@" + digest);
}

Status run_untag(const Context& context, const std::string& reference) {
    if (reference.find('@') == std::string::npos)
        return invalid_argument("tag", "give MODEL@TAG, as " + reference + "@TAG");
    ATOLL_TRY(const Reference parsed, parse_reference(reference));
    ATOLL_TRY(http::Client store, context.client("store"));
    return remove(context, store, model_path(parsed.model) + "/tags/" + segment(parsed.version),
                  "tag " + parsed.model + "@" + parsed.version);
}

Status run_prune(const Context& context, const json& order) {
    ATOLL_TRY(http::Client store, context.client("store"));
    ATOLL_TRY(const json pruned, store.post_json("/v1/prune", order, new_id()));
    if (context.json) return print_json(pruned);
    Table table({"model", "version", "kind", cut("job"), "round", "size"});
    for (const json& version : pruned.at("versions"))
        table.add({text(version, "model"), text(version, "digest").substr(0, 16), text(version, "kind"),
                   text(version, "job"), text(version, "round"), human_bytes(version.at("size").get<std::uint64_t>())});
    const bool dry_run = pruned.value("dry_run", false);
    if (!pruned.at("versions").empty()) print(table);
    std::cout << counted(pruned.at("versions").size(), "version") << " of "
              << human_bytes(pruned.at("version_bytes").get<std::uint64_t>()) << " and "
              << counted(pruned.at("blobs").get<std::size_t>(), "unused blob") << " of "
              << human_bytes(pruned.at("blob_bytes").get<std::uint64_t>()) << (dry_run ? " would go\n" : " are gone\n");
    return {};
}

Status run_verify(const Context& context, const std::string& reference, const fs::path& directory) {
    ATOLL_TRY(const auto options, transfer_options(context, "verifying"));
    http::Client store(options.store);
    ATOLL_TRY(const Reference parsed, parse_reference(reference));
    ATOLL_TRY(const json version, find_version(store, parsed));
    ATOLL_TRY(auto manifest, store_client::fetch_manifest(store, text(version, "digest")));
    std::error_code error;
    if (!directory.empty())  // as it is pulled
        std::erase_if(manifest.files, [&](const auto& file) {
            return delta::is_control_variate(file.path) && !fs::exists(directory / file.path, error);
        });
    ATOLL_RETURN_IF_ERROR(directory.empty() ? verify_stored(manifest, options)
                                            : verify_copy(directory, manifest, options));
    if (context.json) return print_json(json{{"digest", version.at("digest")}, {"ok", true}});
    std::cout << "ok: " << counted(manifest.files.size(), "file") << ", " << human_bytes(manifest.size_bytes()) << "\n";
    return {};
}

// What the store has found rotten, and which versions that hits.
Status run_damaged(const Context& context) {
    ATOLL_TRY(http::Client store, context.client("store"));
    ATOLL_TRY(const json damaged, store.get_json("/v1/damaged-blobs"));
    const json& blobs = damaged.at("items");
    if (context.json) return print_json(blobs);
    Table table({"blob", "found", "version"});
    for (const json& blob : blobs) {
        if (blob.at("versions").empty()) table.add({text(blob, "sha256").substr(0, 16), text(blob, "found_at"), "-"});
        for (const json& version : blob.at("versions"))
            table.add({text(blob, "sha256").substr(0, 16), text(blob, "found_at"),
                       text(version, "model") + "@" + text(version, "digest").substr(0, 16)});
    }
    if (blobs.empty())
        std::cout << "the store has found no damaged blob\n";
    else
        print(table);
    return {};
}

void add_push(CLI::App& group, Context& context) {
    auto* push = group.add_subcommand("push", "store a directory as a version of a model");
    const auto pushed = std::make_shared<PushOptions>();
    add_push_options(*push, *pushed);
    push->add_option("--kind", pushed->kind, "base, update or global")
        ->check(CLI::IsMember({"base", "update", "global"}))
        ->capture_default_str();
    push->add_option("--parent", pushed->parents,
                     "MODEL@VERSION that it comes from, or a digest or at least 8 characters of it; may be repeated")
        ->allow_extra_args(false);
    push->add_option("--adapter-of", pushed->adapter_of,
                     "push a LoRA adapter (PEFT directory) trained on this version: digest or MODEL@VERSION")
        ->excludes("--kind")
        ->excludes("--parent");
    set_example(*push, "atoll model push llama ./llama-3.2-1b --tag v1");
    on_run(*push, context, [&context, pushed, push] {
        pushed->names_kind = push->count("--kind") > 0;
        return push_model(context, *pushed);
    });
}

void add_rm(CLI::App& group, Context& context) {
    auto* rm = group.add_subcommand("rm", "remove a model, or one version, that nothing needs")->footer(kRemoveHelp);
    const auto removed = std::make_shared<std::string>();
    rm->add_option("model", *removed, "MODEL: with all its versions; MODEL@VERSION: that one")->required();
    on_run(*rm, context, [&context, removed] { return run_rm(context, *removed); });
}

void add_prune(CLI::App& group, Context& context) {
    struct Given {
        std::string model;
        bool dry_run = false;
        int rounds = 0;
        int hours = -1;
    };
    const auto given = std::make_shared<Given>();
    auto* prune = group.add_subcommand("prune", "remove the updates of old rounds and unused blobs, now");
    prune->add_option("model", given->model, "only versions of this model");
    prune->add_flag("--dry-run", given->dry_run, "only say what would go");
    prune->add_option("--keep-rounds", given->rounds, "of each job; default: the store's keep_updates_rounds")
        ->check(CLI::Range(1, 1'000'000));
    prune
        ->add_option("--unused-hours", given->hours,
                     "how long nobody has asked for a blob; default: the store's unused_blob_hours, below which "
                     "only an admin goes. 0 takes blobs of uploads under way, too, which then have to be repeated")
        ->check(CLI::Range(0, 8784));
    set_example(*prune, "atoll model prune --dry-run");
    on_run(*prune, context, [&context, given] {
        json order = {{"dry_run", given->dry_run}};
        if (!given->model.empty()) order["model"] = given->model;
        if (given->rounds > 0) order["keep_updates_rounds"] = given->rounds;
        if (given->hours >= 0) order["unused_blob_hours"] = given->hours;
        return run_prune(context, order);
    });
}

std::shared_ptr<std::string> add_reference(CLI::App& command) {
    auto reference = std::make_shared<std::string>();
    command
        .add_option("version", *reference,
                    "MODEL@VERSION; VERSION: a digest or 8 characters of it, a tag, newest, or round3")
        ->required();
    return reference;
}

}  // namespace

Status check_names(const PushOptions& given) {
    ATOLL_RETURN_IF_ERROR(service::check_name(given.model, "model"));
    return given.tag.empty() ? Status() : service::check_name(given.tag, "--tag");
}

Status check_is_model(const PushOptions& given) {
    const fs::path config = given.directory / "adapter_config.json";
    if (!given.adapter_of.empty() || given.kind != "base" || !fs::exists(config) ||
        fs::exists(given.directory / "config.json"))
        return {};
    return invalid_argument("--adapter-of",
                            given.directory.string() +
                                " is an adapter (adapter_config.json): say of which model, --adapter-of "
                                "MODEL@VERSION of `atoll model push`");
}

Status push_model(const Context& context, const PushOptions& given) {
    ATOLL_RETURN_IF_ERROR(check_names(given));
    ATOLL_RETURN_IF_ERROR(check_files_to_send(given.directory));
    ATOLL_RETURN_IF_ERROR(check_is_model(given));
    if (!given.adapter_of.empty() && !fs::exists(given.directory / "adapter_config.json"))
        return invalid_argument("--adapter-of", given.directory.string() +
                                                    " has no adapter_config.json, so it is no adapter: leave "
                                                    "--adapter-of out, or name the adapter's directory");
    ATOLL_TRY(const json version, push(context, given));
    if (context.json) return print_json(version);
    print_line(given.model + "@" + text(version, "digest") + (given.tag.empty() ? "" : " (" + given.tag + ")") + ": " +
               human_bytes(version.at("size").get<std::uint64_t>()) + ", " +
               human_bytes(version.at("bytes_sent").get<std::uint64_t>()) + " of it sent, checked in " +
               human_seconds(version.at("check_seconds").get<double>()));
    return {};
}

void add_push_options(CLI::App& command, PushOptions& given) {
    command.add_option("model", given.model, "the model's name; it is made if it does not exist")->required();
    command.add_option("dir", given.directory, "the model directory")->required()->check(CLI::ExistingDirectory);
    command.add_option("--tag", given.tag, "a tag to put on the new version");
    command.add_flag("--move-tag", given.move_tag, "take the tag from another version of the model that has it");
    command.add_option("--description", given.description, "of the model, if it is made now");
}

void add_model_commands(CLI::App& program, Context& context) {
    auto* group = program.add_subcommand("model", "models and their versions")->require_subcommand(1);
    set_example(*group, "atoll model import llama ./llama-3.2-1b --tag v1");
    add_import_command(*group, context);
    add_push(*group, context);
    auto* pull = group->add_subcommand("pull", "fetch a version into a directory")->footer(kPullHelp);
    const auto pulled = add_reference(*pull);
    const auto out = std::make_shared<fs::path>();
    const auto merge = std::make_shared<bool>(false);
    pull->add_option("--out", *out, "the directory to make")->required();
    pull->add_flag("--merge", *merge, "of an adapter: fetch its model too and make the model that both are");
    on_run(*pull, context, [&context, pulled, out, merge] { return run_pull(context, *pulled, *out, *merge); });

    auto* list = group->add_subcommand("list", "all models");
    set_example(*list, "atoll model list");
    on_run(*list, context, [&context] { return list_models(context); });

    auto* show = group->add_subcommand("show", "MODEL: its versions; MODEL@VERSION: that version");
    const auto shown = add_reference(*show);
    set_example(*show, "atoll model show italian-czech@newest");
    on_run(*show, context, [&context, shown] { return show_version(context, *shown); });

    auto* tag = group->add_subcommand("tag", "point a tag at a version");
    const auto tagged = add_reference(*tag);
    const auto name = std::make_shared<std::string>();
    tag->add_option("tag", *name, "the tag")->required();
    set_example(*tag, "atoll model tag italian-czech@newest best");
    on_run(*tag, context, [&context, tagged, name] { return run_tag(context, *tagged, *name); });

    auto* untag = group->add_subcommand("untag", "remove a tag; its version stays");
    const auto untagged = std::make_shared<std::string>();
    untag->add_option("tag", *untagged, "MODEL@TAG")->required();
    set_example(*untag, "atoll model untag italian-czech@best");
    on_run(*untag, context, [&context, untagged] { return run_untag(context, *untagged); });

    add_rm(*group, context);
    add_prune(*group, context);

    auto* verify = group->add_subcommand("verify", "compare every byte of a version with its digests");
    const auto verified = add_reference(*verify);
    const auto directory = std::make_shared<fs::path>();
    verify->add_option("--dir", *directory, "compare this directory; default: what the store holds")
        ->check(CLI::ExistingDirectory);
    set_example(*verify, "atoll model verify llama@v1 --dir ./llama-3.2-1b");
    on_run(*verify, context, [&context, verified, directory] { return run_verify(context, *verified, *directory); });

    auto* damaged = group->add_subcommand("damaged", "list damaged blobs and the versions to push again");
    damaged->footer("To repair a version, push its directory again. Example:\n  atoll model damaged");
    on_run(*damaged, context, [&context] { return run_damaged(context); });
}

}  // namespace atl::cli
