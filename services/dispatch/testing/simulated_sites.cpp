// atoll-dispatch whose sites are played within the process: every verb answers at once as an honest site would, and an
// update is the base with other numbers, really handed in. For bench/coordinator/thousand.py.
#include <cstring>
#include <map>
#include <mutex>
#include <random>

#include "services/dispatch/service.h"
#include "services/dispatch/sites/site.h"
#include "shared/base/file.h"
#include "shared/store_client/transfer.h"

namespace atl::dispatch {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kWeightBytes = 16;  // of the benchmarks' model, the end of its file

// What batch jobs printed, by the attempt's directory.
class Jobs {
  public:
    void put(const BatchJob& job) {
        std::vector<std::string> lines;
        for (const auto& command : job.commands) {
            if (command.size() > 1 && command[1] == "train")
                lines.emplace_back(R"({"summary":true,"steps":3,"samples":3,"tokens":300,"loss":2.5})");
            else
                lines.emplace_back(R"({"loss":2.0,"perplexity":7.389,"tokens":1000})");
        }
        const std::lock_guard lock(mutex_);
        lines_[job.ref.directory] = std::move(lines);
    }
    std::vector<std::string> lines(const std::string& directory) {
        const std::lock_guard lock(mutex_);
        return lines_[directory];
    }

  private:
    std::mutex mutex_;
    std::map<std::string, std::vector<std::string>> lines_;
};

class SimulatedSite : public Site {
  public:
    SimulatedSite(const Facility& facility, Jobs& jobs) : Site(facility, ""), jobs_(jobs) {}

    Result<std::string> submit(const BatchJob& job) override {
        jobs_.put(job);
        return job.ref.name;
    }
    Result<std::vector<BatchAnswer>> ask_batch(const std::vector<BatchJobRef>& jobs) override {
        return std::vector<BatchAnswer>(jobs.size(), {BatchState::kRunning, {}, {}});
    }
    Status ping_batch() override { return {}; }
    Status cancel(const BatchJobRef&) override { return {}; }
    Status remove(const BatchJobRef&) override { return {}; }
    Move stage(const StageOrder& order) override {
        for (const std::string& digest : order.digests)
            ATOLL_RETURN_IF_ERROR(
                store_client::download_version(digest, shared_model(digest), transfer(order.store_url, order.token)));
        return std::optional<Moving>();
    }
    Status stop_staging(const StageOrder&) override { return {}; }
    Result<PushAnswer> push(const PushOrder& order) override;
    Result<std::vector<Look>> look(const std::vector<LookOrder>& orders) override {
        std::vector<Look> looks;
        for (const LookOrder& order : orders)
            looks.push_back({true, 0, jobs_.lines(order.directory), order.log_offset, 1, true});
        return looks;
    }
    Result<LookAndQueue> look_and_ask(const std::vector<LookOrder>& orders,
                                      const std::vector<BatchJobRef>& jobs) override {
        ATOLL_TRY(auto looks, look(orders));
        ATOLL_TRY(auto queue, ask_batch(jobs));
        return LookAndQueue{std::move(looks), std::move(queue)};
    }
    Result<std::vector<std::string>> tails(const std::vector<std::string>& files, std::int64_t) override {
        return std::vector<std::string>(files.size());
    }
    // Directories of data are there, without a data.json.
    Result<std::string> read_file(const std::string& file, std::size_t) override {
        if (file.ends_with("/train") || file.ends_with("/validation")) return std::string();
        return not_found("none", file);
    }
    Status check_input(const std::vector<std::string>&) override { return {}; }
    Status publish(const std::string&, const std::string&) override { return {}; }
    Move clean(const std::string&, const std::vector<std::string>&) override { return std::optional<Moving>(); }
    Move put_image(const ImagePart&) override { return std::optional<Moving>(); }
    SiteCheck check(const CheckOrder&) override { return {}; }

  private:
    static store_client::TransferOptions transfer(const std::string& url, const std::string& token) {
        store_client::TransferOptions options;
        options.store.base_url = url;
        options.store.token = token;
        options.connections = 1;
        return options;
    }
    // All sites share one copy of what is staged, so that a round of a thousand does not read it a thousand times.
    fs::path shared_model(const std::string& digest) const {
        return fs::path(facility().work_dir).parent_path() / "models" / digest;
    }

    Jobs& jobs_;
};

Result<PushAnswer> SimulatedSite::push(const PushOrder& order) {
    const std::string base = order.meta.at("parents").at(0);
    const fs::path update = fs::path(facility().work_dir) / "update";
    std::error_code failed;
    fs::remove_all(update, failed);
    fs::create_directories(update.parent_path(), failed);
    fs::copy(shared_model(base), update, fs::copy_options::recursive, failed);
    if (failed) return internal_error("copying the base: " + failed.message());
    ATOLL_TRY(std::string bytes, atl::read_file(update / "model.safetensors"));
    thread_local std::mt19937 source{std::random_device{}()};
    std::uniform_real_distribution<float> numbers(0.5F, 1.0F);
    for (std::size_t at = bytes.size() - kWeightBytes; at < bytes.size(); at += sizeof(float)) {
        const float number = numbers(source);
        std::memcpy(bytes.data() + at, &number, sizeof number);
    }
    fs::permissions(update / "model.safetensors", fs::perms::owner_write, fs::perm_options::add, failed);
    ATOLL_RETURN_IF_ERROR(write_file_atomic(update / "model.safetensors", bytes));
    const auto options = transfer(order.store_url, order.token);
    ATOLL_TRY(const auto uploaded, store_client::upload_directory(update, options));
    http::Client client(options.store);
    ATOLL_TRY(const auto version, store_client::create_version(client, order.model, uploaded.manifest,
                                                               {.kind = "update",
                                                                .parents = {base},
                                                                .job = order.meta.at("job"),
                                                                .round = order.meta.at("round").get<std::int64_t>(),
                                                                .metrics = order.meta.at("metrics")}));
    return PushAnswer{version.at("digest"), std::nullopt, false};
}

Result<std::unique_ptr<service::Running>> start_played(service::Context& context, const Settings& settings) {
    static Jobs jobs;
    WorkerSeams seams;
    seams.make_site = [](const Facility& facility) { return std::make_unique<SimulatedSite>(facility, jobs); };
    return start_with(context, settings, std::move(seams));
}

service::Definition definition_with_played_sites() {
    service::Definition played = definition();
    played.configure = service::configure_with(parse_settings, start_played);
    return played;
}

}  // namespace
}  // namespace atl::dispatch

int main(int argc, char** argv) {
    return atl::service::run(argc, argv, atl::dispatch::definition_with_played_sites());
}
