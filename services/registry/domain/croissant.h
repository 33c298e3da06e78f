#pragma once

#include "shared/json/json.h"

namespace atl::registry {

// A dataset as Croissant 1.0 metadata in JSON-LD (https://docs.mlcommons.org/croissant/docs/croissant-spec.html).
// `dataset` and `version` are the registry's own JSON of them; `version` is null when there is none yet. The token
// files are described by their fingerprint: they stay at the facilities, so their address is a URN.
json::Json croissant(const json::Json& dataset, const json::Json& version);

}  // namespace atl::registry
