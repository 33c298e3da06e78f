#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "shared/base/result.h"

namespace atl::auth {

// Whether a TLS server can serve with them, both PEM text. kInvalidArgument with "certificate" or "key" as its field:
// not in PEM, a key with a passphrase, the key of another certificate.
Status check_certificate(const std::string& certificate_pem, const std::string& key_pem);

// When the first certificate in a PEM text ends, as Unix time. kInvalidArgument: there is none.
Result<std::int64_t> certificate_end_s(const std::string& pem);

// A new P-256 key and a certificate of it that vouches for itself, for `name` and a server at these hosts ("127.0.0.1",
// "kafka"), one after the other as PEM. It lasts 20 years: whoever trusts it trusts this one file.
Result<std::string> make_credentials(const std::string& name, const std::vector<std::string>& hosts);

// A new key and certificate of an authority that issue_credentials() signs with, as PEM. It lasts 20 years.
Result<std::string> make_authority(const std::string& name);

// A new P-256 key, its certificate for `name` and a server at these hosts (none: a client), signed by the authority
// (make_authority()'s text), and the authority's certificate, as PEM. kInvalidArgument with "authority" as its field:
// the text is no such pair.
Result<std::string> issue_credentials(const std::string& authority_pem, const std::string& name,
                                      const std::vector<std::string>& hosts, std::chrono::seconds lifetime);

// Whether the authority signed the first certificate in a PEM text; false for what is no certificate.
bool is_issued_by(const std::string& authority_pem, const std::string& pem);

}  // namespace atl::auth
