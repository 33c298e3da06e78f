#include "services/dispatch/work/token_keys.h"

#include <vector>

#include "shared/auth/auth.h"
#include "shared/base/file.h"
#include "shared/base/text.h"
#include "shared/digest/digest.h"

namespace atl::dispatch {
namespace {

// Those that stand one after the other in a file.
Result<std::vector<std::string>> read_keys(const std::filesystem::path& file) {
    static const std::string kBegin = "-----BEGIN PUBLIC KEY-----";
    ATOLL_TRY(const std::string pem, read_file(file));
    std::vector<std::string> keys;
    for (auto at = pem.find(kBegin); at != std::string::npos;) {
        const auto next = pem.find(kBegin, at + kBegin.size());
        keys.emplace_back(trim(std::string_view(pem).substr(at, next == std::string::npos ? next : next - at)));
        at = next;
    }
    return keys;
}

std::string name_of(const std::string& key) {
    return digest::sha256(key).substr(0, 16);
}

}  // namespace

Result<std::set<std::string>> TokenKeys::holding() const {
    ATOLL_TRY(const std::vector<std::string> keys, read_keys(public_keys_));
    std::set<std::string> names;
    for (const std::string& key : keys) names.insert(name_of(key));
    return names;
}

Result<std::string> TokenKeys::signer_of(const std::string& token) const {
    ATOLL_TRY(const std::vector<std::string> keys, read_keys(public_keys_));
    for (const std::string& key : keys) {
        const auto verifier = auth::Verifier::from_pem(key + "\n");
        if (verifier.ok() && verifier->verify(token).ok()) return name_of(key);
    }
    return conflict("the key that signs is being replaced: try again in some seconds");
}

}  // namespace atl::dispatch
