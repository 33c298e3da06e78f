#pragma once

#include <filesystem>

#include "shared/store_client/remote_file.h"
#include "shared/store_client/transfer.h"

// What `model verify` compares; an error names the file and the byte.
namespace atl::cli {

// Reads every chunk from the store and compares its digest: kInternal names the file and its first and last byte that
// do not match.
Status verify_stored(const store_client::Manifest& manifest, const store_client::TransferOptions& options);

// Has the store look at a blob itself, so that it lists it as damaged and takes it again from whoever pushes it. Only
// an admin may ask; the store finds it by itself within a month. Returns what an error about the blob says of that (";
// …").
std::string tell_store(store_client::ClientPool& store, const std::string& blob);

// Compares a directory with the version: kInvalidArgument names the first byte that differs, for which the store's own
// bytes are fetched.
Status verify_copy(const std::filesystem::path& directory, const store_client::Manifest& manifest,
                   const store_client::TransferOptions& options);

}  // namespace atl::cli
