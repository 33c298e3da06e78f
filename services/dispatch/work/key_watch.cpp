#include "services/dispatch/work/key_watch.h"

#include "shared/base/backoff.h"
#include "shared/base/file.h"
#include "shared/log/log.h"
#include "shared/service/revocations.h"

namespace atl::dispatch {

KeyWatch::KeyWatch(auth::Issuer issuer, std::string file) : issuer_(std::move(issuer)), file_(std::move(file)) {
    thread_ = std::jthread([this](const std::stop_token& stop) {
        do {
            if (const Status status = contained([&] { return renew(); }); !status.ok())
                spdlog::warn("the private key stays as it was: {}", describe(status.error()));
        } while (wait_unless_stopped(stop, service::TokenWatch::kRenewal));
    });
}

Status KeyWatch::renew() {
    ATOLL_TRY(const std::string key, read_file(file_));
    if (key == key_) return {};
    ATOLL_RETURN_IF_ERROR(issuer_.replace_key(key));
    if (!key_.empty()) spdlog::info("tokens are signed with the new private key from now on");
    key_ = key;
    return {};
}

}  // namespace atl::dispatch
