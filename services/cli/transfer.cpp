#include "services/cli/transfer.h"

#include <unistd.h>

#include <iostream>

#include "services/cli/output.h"
#include "services/cli/terminal.h"
#include "shared/json/json.h"

namespace atl::cli {

using Clock = std::chrono::steady_clock;

std::function<void(const store_client::Progress&)> show_progress(const std::string& what) {
    if (::isatty(STDERR_FILENO) == 0) return nullptr;
    struct Shown {
        Clock::time_point begin = Clock::now();
        Clock::time_point last{};
        std::uint64_t bytes_at_begin = 0;
        bool begun = false;
    };
    return [what, shown = std::make_shared<Shown>()](const store_client::Progress& progress) {
        const auto now = Clock::now();
        if (!shown->begun) shown->bytes_at_begin = progress.bytes_done;
        shown->begun = true;
        const bool done = progress.bytes_done == progress.bytes_total;
        if (!done && now - shown->last < std::chrono::milliseconds(100)) return;
        shown->last = now;
        const double seconds = std::chrono::duration<double>(now - shown->begin).count();
        const double rate =
            seconds > 0 ? static_cast<double>(progress.bytes_done - shown->bytes_at_begin) / seconds : 0;
        const std::uint64_t percent =
            progress.bytes_total == 0 ? 100 : progress.bytes_done * 100 / progress.bytes_total;
        write_as_it_is(std::cerr, "\r");
        std::cerr << "  " << what << " " << percent << " %, " << human_bytes(progress.bytes_done) << " of "
                  << human_bytes(progress.bytes_total) << ", " << human_bytes(static_cast<std::uint64_t>(rate))
                  << "/s ";
        write_as_it_is(std::cerr, "\x1b[K");
        std::cerr << (done ? "\n" : "") << std::flush;
    };
}

store_client::TransferOptions transfer_options(std::string store_url, std::string token, const std::string& what) {
    store_client::TransferOptions options;
    options.store.base_url = std::move(store_url);
    options.store.token = std::move(token);
    options.store.timeout = std::chrono::minutes(10);  // of one chunk
    options.store.attempts_max = 8;
    options.progress = show_progress(what);
    return options;
}

Result<store_client::TransferOptions> transfer_options(const Context& context, const std::string& what) {
    ATOLL_TRY(const std::string gateway, context.gateway_url());
    ATOLL_TRY(std::string token, context.token());
    return transfer_options(gateway + "/store", std::move(token), what);
}

Result<store_client::VersionDetails> read_details(const nlohmann::json& document, const std::string& kind) {
    json::ObjectReader reader(document, "meta");
    store_client::VersionDetails details;
    details.kind = kind;
    details.job = reader.string_or("job", "");
    const std::int64_t round = reader.integer_or("round", -1, 0, 1'000'000);
    if (round >= 0) details.round = round;
    const auto& parents = reader.array_or_null("parents");
    const auto& contributions = reader.array_or_null("contributions");
    const auto& metrics = reader.object_or_null("metrics");
    ATOLL_RETURN_IF_ERROR(reader.finish());
    for (const auto& parent : parents) {
        if (!parent.is_string()) return invalid_argument("meta.parents", "must hold version digests");
        details.parents.push_back(parent.get<std::string>());
    }
    if (!contributions.is_null()) details.contributions = contributions;
    if (!metrics.is_null()) details.metrics = metrics;
    return details;
}

}  // namespace atl::cli
