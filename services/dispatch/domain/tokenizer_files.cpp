#include "services/dispatch/domain/tokenizer_files.h"

#include <initializer_list>

#include "shared/digest/digest.h"

namespace atl::dispatch {
namespace {

using json::Json;

// Files are cut alike everywhere, so the digests of the chunks tell the content.
std::string content_sha256(const store_client::ManifestFile& file) {
    if (file.chunks.size() == 1) return file.chunks.front().sha256;
    std::string chunks;
    for (const store_client::Chunk& chunk : file.chunks) chunks += chunk.sha256;
    return digest::sha256(chunks);
}

Json find_files(const store_client::Manifest& manifest, std::initializer_list<const char*> names) {
    Json found = Json::object();
    for (const char* name : names)
        if (const auto* file = manifest.find(name)) found[name] = content_sha256(*file);
    return found;
}

}  // namespace

Json tokenizer_files(const store_client::Manifest& manifest) {
    Json vocabulary = find_files(manifest, {"tokenizer.model", "tokenizer.json", "vocab.json", "merges.txt"});
    if (vocabulary.empty()) return {};
    Json settings = find_files(manifest, {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"});
    return {{"vocabulary", std::move(vocabulary)}, {"settings", std::move(settings)}};
}

}  // namespace atl::dispatch
