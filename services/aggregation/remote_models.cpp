#include "services/aggregation/remote_models.h"

#include "services/aggregation/read_ahead.h"
#include "shared/base/file.h"
#include "shared/digest/digest.h"
#include "shared/http/client.h"
#include "shared/model_store/transfer.h"

namespace atl::aggregation {
namespace {

using model_store::ClientPool;
using model_store::Manifest;
using model_store::RemoteFile;

constexpr std::size_t kBlockBytes = 1U << 20;  // the window holds it, so a block costs no request

Result<std::shared_ptr<ClientPool>> connect(const Settings& settings) {
    auto read = read_file(settings.token_file);
    if (!read.ok()) return unavailable("aggregation.token_file: " + read.error().message);  // until it is mended
    std::string token = std::move(read).value();
    while (!token.empty() && (token.back() == '\n' || token.back() == ' ')) token.pop_back();
    http::ClientOptions options;
    options.base_url = settings.store_url;
    options.token = std::move(token);
    return std::make_shared<ClientPool>(std::move(options));
}

Input input_of(const std::shared_ptr<ClientPool>& store, const Update& update, const Manifest& manifest,
               std::size_t window_bytes) {
    Input input;
    input.name = name_of(update);
    const auto window = std::make_shared<Window>();
    for (const auto& file : manifest.files)
        if (is_safetensors(file.path))
            input.files.push_back(
                {file.path, std::make_shared<ReadAhead>(RemoteFile(store, file), window, window_bytes)});
    return input;
}

Error naming(const Update& update, const Error& error) {
    return {error.code, name_of(update) + ": " + error.message, error.field};
}

}  // namespace

RemoteModels::RemoteModels(std::shared_ptr<ClientPool> store, Manifest first, Average average)
    : store_(std::move(store)), first_manifest_(std::move(first)), average_(std::move(average)), workspace_(average_) {}

Result<RemoteModels> RemoteModels::open(const Settings& settings, const ClosedRound& round) {
    ATOLL_TRY(auto store, connect(settings));
    Manifest first;
    std::vector<Input> inputs;
    for (const Update& update : round.updates) {
        auto manifest = model_store::fetch_manifest(*store->take(), update.version);
        if (!manifest.ok()) return naming(update, manifest.error());
        inputs.push_back(input_of(store, update, *manifest, window_bytes_for(round.updates.size())));
        if (inputs.size() == 1) first = std::move(manifest).value();
    }
    AverageOptions options;
    options.block_bytes = kBlockBytes;
    ATOLL_TRY(Average average, Average::plan(std::move(inputs), weights_of(round), options));
    return RemoteModels(std::move(store), std::move(first), std::move(average));
}

Result<std::string> RemoteModels::make_part(const Part& part) {
    std::size_t file = 0;
    while (file < average_.files().size() && average_.files()[file].path != part.path) ++file;
    if (file == average_.files().size()) return internal_error("no update has the file " + part.path);
    std::string bytes(part.size, '\0');
    ATOLL_RETURN_IF_ERROR(average_.read(file, part.begin, std::as_writable_bytes(std::span(bytes)), workspace_));
    const std::string sha256 = digest::sha256(bytes);
    http::CallOptions options;
    options.headers.emplace_back("Content-Type", "application/octet-stream");
    auto client = store_->take();
    ATOLL_TRY(const auto response, client->call(http::Method::kPut, "/v1/blobs/" + sha256, bytes, options));
    ATOLL_RETURN_IF_ERROR(response.check());
    return sha256;
}

Result<std::string> RemoteModels::publish(const ClosedRound& round, const std::vector<Part>& parts) {
    const Manifest manifest = assemble(first_manifest_, parts);
    model_store::VersionDetails details;
    details.kind = "global";
    details.parents = {round.base};
    for (const Update& update : round.updates)
        if (update.version != round.base) details.parents.push_back(update.version);
    details.job = round.job;
    details.round = round.round;
    details.contributions = contributions_of(round);
    auto client = store_->take();
    ATOLL_RETURN_IF_ERROR(model_store::create_version(*client, round.model, manifest, details));
    return model_store::digest_of(manifest);
}

}  // namespace atl::aggregation
