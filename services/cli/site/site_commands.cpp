#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "services/cli/commands/commands.h"
#include "services/cli/output.h"
#include "services/cli/transfer.h"
#include "services/cli/usage.h"
#include "shared/aggregate/files.h"
#include "shared/base/file.h"
#include "shared/base/text.h"
#include "shared/http/client/client.h"
#include "shared/site/hand_in.h"
#include "shared/site/staging.h"
#include "shared/store_client/local_file.h"
#include "shared/store_client/seal.h"

// What runs at a facility, started over its transport: models in, updates out. Nothing of the coordinator's stack is
// needed or read.
namespace atl::cli {
namespace {

constexpr const char* kStageHelp =
    R"(Makes a directory hold a model version. It appears under its name when it is complete; an interrupted call goes on
where it stopped. Example:
  atoll stage --store https://coordinator/store --version DIGEST --out models/DIGEST --token-stdin < token
Exit status 75: the store is away or full, or this disk is; call it again later. 66: the store has no such version, or
not its bytes; 2: it calls the request wrong. Any other says nothing of the version.)";
constexpr const char* kPushHelp =
    R"(Hands in a directory as a version of a model; only what the store lacks travels. An update with NaN or infinity is
refused before anything travels. Prints {"digest": …}, or {"refused": …, "error": {"code", "detail", "field"}}: refused
or not there, it will never be taken; with "refused": false nobody has said no, call it again later. Example:
  atoll push --store https://coordinator/store --model run1 --dir out --meta meta.json --token-stdin < token
Exit status 75: the store is away or full.)";

constexpr const char* kSealHelp =
    R"(Looks through an update that is finished, where there are processors for it: its numbers must be finite, and its digests
are written to a file. `atoll push --seal FILE` then computes nothing, as long as the files are what they were. Why an update
is not sealed is printed as {"refused": …, "error": {"code", "detail", "field"}}. Example:
  atoll seal --dir out --seal seal.json)";

struct SiteOptions {
    std::string store;
    std::string ca_file;
    bool token_on_stdin = false;
    int connections = 3;
    std::filesystem::path progress;
    std::string version;
    std::filesystem::path out;
    std::string model;
    std::string kind = "update";
    std::filesystem::path directory;
    std::filesystem::path meta;
    std::filesystem::path seal;
};

// The token is never an argument: command lines are public on a shared login node.
Result<std::string> site_token(const Context& context, const SiteOptions& given) {
    if (!given.token_on_stdin) return context.token();
    std::string line;
    std::getline(std::cin, line);
    if (line.empty()) return Error{ErrorCode::kUnauthenticated, "standard input holds no token", "--token-stdin"};
    return line;
}

// For whoever looks at a transfer from outside. That it cannot be written is no reason to stop.
std::function<void(const store_client::Progress&)> write_progress(const std::filesystem::path& file) {
    using Clock = std::chrono::steady_clock;
    return [file, next = Clock::time_point()](const store_client::Progress& progress) mutable {
        if (Clock::now() < next) return;
        next = Clock::now() + std::chrono::seconds(1);
        const std::string text = std::to_string(progress.bytes_done) + " " + std::to_string(progress.bytes_total);
        (void)write_file_atomic(file, text + "\n");
    };
}

Result<store_client::TransferOptions> site_transfer_options(const Context& context, const SiteOptions& given,
                                                            const std::string& what) {
    ATOLL_TRY(std::string token, site_token(context, given));
    auto options = transfer_options(given.store, std::move(token), what);
    options.store.ca_file = given.ca_file;
    options.connections = given.connections;
    if (!given.progress.empty()) options.progress = write_progress(given.progress);
    return options;
}

Status run_stage(const Context& context, const SiteOptions& given) {
    ATOLL_TRY(const auto options, site_transfer_options(context, given, "staging"));
    Status staged = store_client::download_version(given.version, given.out, options);
    if (!staged.ok() && staged.error().code == ErrorCode::kUnauthenticated && given.token_on_stdin)
        return Error{ErrorCode::kUnauthenticated, "the token on standard input: " + staged.error().message,
                     "--token-stdin"};
    ATOLL_RETURN_IF_ERROR(staged);
    std::cout << nlohmann::json{{"digest", given.version}, {"directory", given.out.string()}} << "\n";
    return {};
}

// Whether an update can be averaged at all. One that is not there is refused as well: kConflict, as it may be made
// again.
Status check_update(const std::filesystem::path& directory) {
    auto model = aggregate::open_directory(directory);
    if (!model.ok() && model.error().code == ErrorCode::kNotFound)
        return conflict(model.error().message, directory.string());
    ATOLL_RETURN_IF_ERROR(model);
    return aggregate::check_finite({std::move(model).value()});
}

// The version's JSON. What the store has lost since it was uploaded is no refusal: the next call sends it again.
Result<nlohmann::json> create_version(http::Client& store, const SiteOptions& given,
                                      const store_client::Manifest& manifest,
                                      const store_client::VersionDetails& details) {
    auto version = store_client::create_version(store, given.model, manifest, details);
    if (version.ok() || !is_refusal(version.error())) return version;
    std::set<std::string> blobs;
    for (const auto& place : store_client::chunk_places(manifest)) blobs.insert(place.chunk.sha256);
    ATOLL_TRY(const auto missing, store_client::find_missing(store, blobs));
    return missing.empty() ? version : unavailable(version.error().message);
}

Result<nlohmann::json> hand_in(const SiteOptions& given, const store_client::TransferOptions& options,
                               const store_client::VersionDetails& details) {
    auto known = given.seal.empty() ? std::nullopt : store_client::read_seal(given.seal, given.directory);
    if (given.kind == "update" && !known) ATOLL_RETURN_IF_ERROR(check_update(given.directory));
    ATOLL_TRY(const auto uploaded, store_client::upload_directory(given.directory, options, std::move(known)));
    http::Client store(options.store);
    ATOLL_TRY(const auto version, create_version(store, given, uploaded.manifest, details));
    return nlohmann::json{{"digest", version.at("digest")},
                          {"model", given.model},
                          {"bytes", uploaded.manifest.size_bytes()},
                          {"bytes_sent", uploaded.bytes_sent}};
}

// Why there is no seal is said as push says it: whoever hands the update in may be neither of us.
Status run_seal(const Context& context, const SiteOptions& given) {
    Status sealed = check_update(given.directory);
    const auto threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 8U));
    if (sealed.ok()) sealed = store_client::write_seal(given.seal, given.directory, threads);
    if (!sealed.ok()) std::cout << site::to_json(site::hand_in_failure(sealed.error())) << "\n";
    if (sealed.ok() && context.json) std::cout << nlohmann::json{{"seal", given.seal.string()}} << "\n";
    return sealed;
}

Status run_push(const Context& context, const SiteOptions& given) {
    nlohmann::json meta = nlohmann::json::object();
    if (!given.meta.empty()) {
        ATOLL_TRY(meta, read_document(given.meta));
    }
    ATOLL_TRY(const auto details, read_details(meta, given.kind));
    ATOLL_TRY(const auto options, site_transfer_options(context, given, "pushing"));
    const auto handed_in = hand_in(given, options, details);
    std::cout << (handed_in.ok() ? *handed_in : site::to_json(site::hand_in_failure(handed_in.error()))) << "\n";
    return handed_in.ok() ? Status() : handed_in.error();
}

void on_transfer(CLI::App& command, Context& context, int (*exit_status_of)(const Error&),
                 std::function<Status()> body) {
    on_run(command, context, [&context, exit_status_of, body = std::move(body)] {
        context.exit_status_of = exit_status_of;
        return body();
    });
}

Status run_ping(const Context& context, const SiteOptions& given) {
    http::ClientOptions options;
    options.base_url = given.store;
    options.ca_file = given.ca_file;
    options.attempts_max = 1;
    options.timeout = std::chrono::seconds(10);
    ATOLL_TRY(const auto answer, http::Client(options).call(http::Method::kGet, "/healthz"));
    ATOLL_RETURN_IF_ERROR(answer.check());
    if (context.json)
        std::cout << nlohmann::json{{"store", given.store}, {"answers", true}} << "\n";
    else
        std::cout << given.store << " answers\n";
    return {};
}

void add_address(CLI::App& command, SiteOptions& given) {
    command
        .add_option("--store", given.store,
                    "the store's address, as https://coordinator/store or unix:/run/gateway.sock:/store")
        ->required()
        ->check(web_address());
    command.add_option("--ca-file", given.ca_file, "PEM file of an extra certificate authority");
}

void add_common(CLI::App& command, SiteOptions& given) {
    add_address(command, given);
    command.add_flag("--token-stdin", given.token_on_stdin, "the first line of standard input is the token");
    command.add_option("--connections", given.connections, "at a time")
        ->check(CLI::Range(1, 64))
        ->capture_default_str();
    command.add_option("--progress", given.progress, "a file that is given, every second, the bytes done and in all");
}

}  // namespace

void add_site_commands(CLI::App& program, Context& context) {
    auto* stage = program.add_subcommand("stage", "fetch a model version to this facility")->footer(kStageHelp);
    const auto stage_options = std::make_shared<SiteOptions>();
    add_common(*stage, *stage_options);
    stage->add_option("--version", stage_options->version, "its digest")->required();
    stage->add_option("--out", stage_options->out, "the directory to make")->required();
    on_transfer(*stage, context, site::staging_exit_status,
                [&context, stage_options] { return run_stage(context, *stage_options); });

    auto* ping = program.add_subcommand("ping", "try the way from this facility to the store");
    const auto ping_options = std::make_shared<SiteOptions>();
    add_address(*ping, *ping_options);
    set_example(*ping, "atoll ping --store https://coordinator/store");
    on_run(*ping, context, [&context, ping_options] { return run_ping(context, *ping_options); });

    auto* seal = program.add_subcommand("seal", "look through an update in its batch job")->footer(kSealHelp);
    const auto seal_options = std::make_shared<SiteOptions>();
    seal->add_option("--dir", seal_options->directory, "the update's directory")->required();
    seal->add_option("--seal", seal_options->seal, "the file to write")->required();
    on_run(*seal, context, [&context, seal_options] { return run_seal(context, *seal_options); });

    auto* push = program.add_subcommand("push", "hand in an update from this facility")->footer(kPushHelp);
    const auto push_options = std::make_shared<SiteOptions>();
    add_common(*push, *push_options);
    push->add_option("--model", push_options->model, "the model that it becomes a version of")->required();
    push->add_option("--kind", push_options->kind, "update, base or global")
        ->check(CLI::IsMember({"update", "base", "global"}))
        ->capture_default_str();
    push->add_option("--dir", push_options->directory, "the directory to hand in")->required();
    push->add_option("--meta", push_options->meta, "JSON file with parents, job, round, metrics");
    push->add_option("--seal", push_options->seal, "what `atoll seal` wrote of the directory, if it did");
    on_transfer(*push, context, site::push_exit_status,
                [&context, push_options] { return run_push(context, *push_options); });
}

}  // namespace atl::cli
