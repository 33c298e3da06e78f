#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "services/cli/context.h"
#include "shared/store_client/transfer.h"

namespace atl::cli {

// Shows a transfer on standard error: one line that moves on a terminal, nothing elsewhere. `what`: "uploading".
std::function<void(const store_client::Progress&)> show_progress(const std::string& what);

// A transfer with a store, patient with slow links: `store_url` is the store's own address.
store_client::TransferOptions transfer_options(std::string store_url, std::string token, const std::string& what);
// The same for the store behind the gateway that the context knows.
Result<store_client::TransferOptions> transfer_options(const Context& context, const std::string& what);

// What a version says about itself, from a document with "parents", "job", "round", "contributions", "metrics", each
// optional.
Result<store_client::VersionDetails> read_details(const nlohmann::json& document, const std::string& kind);

}  // namespace atl::cli
