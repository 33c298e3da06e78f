#pragma once

#include <filesystem>
#include <set>
#include <string>

#include "shared/base/result.h"

namespace atl::dispatch {

// Which key has signed a token, by a name for it (its digest), and which keys hold. Each call reads the file of public
// keys as it is now, as the services' verifiers do within seconds.
class TokenKeys {
  public:
    explicit TokenKeys(std::filesystem::path public_keys) : public_keys_(std::move(public_keys)) {}

    Result<std::set<std::string>> holding() const;
    // kConflict: none of the keys that hold, as one is being replaced at this very moment.
    Result<std::string> signer_of(const std::string& token) const;

  private:
    std::filesystem::path public_keys_;
};

}  // namespace atl::dispatch
