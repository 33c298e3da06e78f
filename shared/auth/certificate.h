#pragma once

#include <string>

#include "shared/base/result.h"

namespace atl::auth {

// Whether a TLS server can serve with them, both PEM text. kInvalidArgument with "certificate" or "key" as its field:
// not in PEM, a key with a passphrase, the key of another certificate.
Status check_certificate(const std::string& certificate_pem, const std::string& key_pem);

}  // namespace atl::auth
