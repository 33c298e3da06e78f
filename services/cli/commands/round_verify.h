#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>

#include "services/cli/context.h"

namespace atl::cli {

struct RoundVerification {
    std::set<std::string> without;             // facilities whose updates are left out
    std::optional<std::filesystem::path> dir;  // where what is fetched stays; none: nowhere
    std::optional<std::filesystem::path> out;  // the directory to make of the model; none: it is not kept
};

// Makes a round's model again from its base and its updates, on this machine. Without anybody's left out it must be the
// model that the round has, to the byte: kConflict names the first bytes that differ.
Status verify_round(const Context& context, const std::string& job, std::int64_t number,
                    const RoundVerification& given);

}  // namespace atl::cli
