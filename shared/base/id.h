#pragma once

#include <string>

namespace atl {

// A new identifier: 26 characters of Crockford base 32, 48 bits of milliseconds then 80 random bits, so that
// identifiers sort by creation time (https://github.com/ulid/spec). Lower case, safe in paths, URLs and job names.
std::string new_id();

// Cryptographically random bytes as lower-case hex, 2 × byte_count characters. For secrets.
std::string random_hex(int byte_count);

}  // namespace atl
