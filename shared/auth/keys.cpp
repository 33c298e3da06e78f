#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include <memory>

#include "shared/auth/auth.h"

namespace atl::auth {
namespace {

using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;

std::string read_text(BIO* bio) {
    char* data = nullptr;
    const long size = BIO_get_mem_data(bio, &data);
    return size > 0 ? std::string(data, static_cast<std::size_t>(size)) : std::string();
}

}  // namespace

Result<KeyPair> generate_keys() {
    const Key key(EVP_EC_gen("P-256"), &EVP_PKEY_free);
    const Bio private_bio(BIO_new(BIO_s_mem()), &BIO_free);
    const Bio public_bio(BIO_new(BIO_s_mem()), &BIO_free);
    if (!key || !private_bio || !public_bio) return internal_error("OpenSSL cannot generate a P-256 key");
    if (PEM_write_bio_PrivateKey(private_bio.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) != 1 ||
        PEM_write_bio_PUBKEY(public_bio.get(), key.get()) != 1)
        return internal_error("OpenSSL cannot write a P-256 key as PEM");
    return KeyPair{read_text(private_bio.get()), read_text(public_bio.get())};
}

Result<std::string> public_key_of(const std::string& private_pem) {
    const Bio private_bio(BIO_new_mem_buf(private_pem.data(), static_cast<int>(private_pem.size())), &BIO_free);
    const Bio public_bio(BIO_new(BIO_s_mem()), &BIO_free);
    if (!private_bio || !public_bio) return internal_error("OpenSSL has no memory for a key");
    const Key key(PEM_read_bio_PrivateKey(private_bio.get(), nullptr, nullptr, nullptr), &EVP_PKEY_free);
    if (!key || PEM_write_bio_PUBKEY(public_bio.get(), key.get()) != 1)
        return invalid_argument("private_key", "the private key is not in PEM");
    return read_text(public_bio.get());
}

}  // namespace atl::auth
