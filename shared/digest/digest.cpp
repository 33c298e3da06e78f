#include "shared/digest/digest.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "shared/base/file.h"

namespace atl::digest {
namespace {

constexpr std::size_t kBlockBytes = 1U << 20;

std::string to_hex(const unsigned char* bytes, std::size_t count) {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string hex;
    hex.reserve(2 * count);
    for (std::size_t i = 0; i < count; ++i) {
        hex.push_back(kDigits[bytes[i] >> 4]);
        hex.push_back(kDigits[bytes[i] & 15]);
    }
    return hex;
}

}  // namespace

struct Sha256::Impl {
    Impl() : context(EVP_MD_CTX_new()) {
        check(context != nullptr && EVP_DigestInit_ex(context, EVP_sha256(), nullptr) == 1, "OpenSSL has no SHA-256");
    }
    ~Impl() { EVP_MD_CTX_free(context); }
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;

    EVP_MD_CTX* context;
    bool finished = false;
};

Sha256::Sha256() : impl_(std::make_unique<Impl>()) {}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;

void Sha256::update(std::string_view bytes) {
    check(!impl_->finished, "Sha256::update after finish");
    check(EVP_DigestUpdate(impl_->context, bytes.data(), bytes.size()) == 1, "EVP_DigestUpdate failed");
}

std::string Sha256::finish() {
    check(!std::exchange(impl_->finished, true), "Sha256::finish called twice");
    unsigned char bytes[EVP_MAX_MD_SIZE];
    unsigned int count = 0;
    check(EVP_DigestFinal_ex(impl_->context, bytes, &count) == 1, "EVP_DigestFinal_ex failed");
    return to_hex(bytes, count);
}

std::string sha256(std::string_view bytes) {
    Sha256 hash;
    hash.update(bytes);
    return hash.finish();
}

Result<std::string> sha256_file(const std::filesystem::path& path,
                                const std::function<void(std::int64_t bytes)>& on_read) {
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) return file_error(path, "open");
    Sha256 hash;
    std::vector<char> block(kBlockBytes);
    for (;;) {
        const ssize_t got = ::read(fd.get(), block.data(), block.size());
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return file_error(path, "read");
        if (got == 0) return hash.finish();
        hash.update({block.data(), static_cast<std::size_t>(got)});
        if (on_read) on_read(got);
    }
}

bool is_sha256(std::string_view text) {
    const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
    return text.size() == 64 && std::all_of(text.begin(), text.end(), is_hex);
}

}  // namespace atl::digest
