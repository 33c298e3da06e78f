#include "shared/auth/certificate.h"

#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>

namespace atl::auth {

Status check_certificate(const std::string& certificate_pem, const std::string& key_pem) {
    const auto open = [](const std::string& text) {
        return std::unique_ptr<BIO, decltype(&BIO_free)>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())),
                                                         &BIO_free);
    };
    const auto ask_nobody = [](char*, int, int, void*) { return -1; };
    const std::unique_ptr<X509, decltype(&X509_free)> certificate(
        PEM_read_bio_X509(open(certificate_pem).get(), nullptr, ask_nobody, nullptr), &X509_free);
    if (!certificate) return invalid_argument("certificate", "is no certificate in PEM");
    const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
        PEM_read_bio_PrivateKey(open(key_pem).get(), nullptr, ask_nobody, nullptr), &EVP_PKEY_free);
    if (!key) return invalid_argument("key", "is no private key in PEM without a passphrase");
    if (X509_check_private_key(certificate.get(), key.get()) == 1) return {};
    return invalid_argument("key", "is not the key of that certificate");
}

}  // namespace atl::auth
