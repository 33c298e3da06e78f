#include "shared/base/id.h"

#include <sys/random.h>

#include <chrono>
#include <cstdint>
#include <vector>

#include "shared/base/check.h"

namespace atl {
namespace {

void fill_random(void* bytes, std::size_t size) {
    check(::getrandom(bytes, size, 0) == static_cast<ssize_t>(size), "getrandom failed");
}

}  // namespace

std::string new_id() {
    static constexpr char kAlphabet[] = "0123456789abcdefghjkmnpqrstvwxyz";
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    auto milliseconds = static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
    std::uint8_t random[16];
    fill_random(random, sizeof random);
    std::string id(26, '0');
    for (int i = 9; i >= 0; --i, milliseconds >>= 5) id[static_cast<std::size_t>(i)] = kAlphabet[milliseconds & 31];
    for (std::size_t i = 0; i < 16; ++i) id[10 + i] = kAlphabet[random[i] & 31];
    return id;
}

std::string random_hex(int byte_count) {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(byte_count));
    fill_random(bytes.data(), bytes.size());
    std::string hex;
    for (const std::uint8_t byte : bytes) {
        hex.push_back(kDigits[byte >> 4]);
        hex.push_back(kDigits[byte & 15]);
    }
    return hex;
}

}  // namespace atl
