#include "shared/auth/certificate.h"

#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <cctype>
#include <ctime>
#include <memory>

namespace atl::auth {
namespace {

using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using PrivateKey = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

bool add_extension(X509* certificate, int id, const std::string& value) {
    const std::unique_ptr<X509_EXTENSION, decltype(&X509_EXTENSION_free)> extension(
        X509V3_EXT_conf_nid(nullptr, nullptr, id, value.c_str()), &X509_EXTENSION_free);
    return extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1;
}

// "IP:127.0.0.1,DNS:kafka"
std::string alternative_names(const std::vector<std::string>& hosts) {
    std::string names;
    for (const std::string& host : hosts) {
        const bool is_number = !host.empty() && std::isdigit(static_cast<unsigned char>(host.back())) != 0;
        names += (names.empty() ? "" : ",") + std::string(is_number ? "IP:" : "DNS:") + host;
    }
    return names;
}

bool fill_and_sign(X509* certificate, EVP_PKEY* key, const std::string& name, const std::vector<std::string>& hosts) {
    constexpr long kLifetimeS = 20L * 365 * 24 * 3600;
    std::uint64_t serial = 0;
    X509_NAME* subject = X509_get_subject_name(certificate);
    return RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof serial) == 1 &&
           X509_set_version(certificate, X509_VERSION_3) == 1 &&
           ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate), serial >> 1U) == 1 &&
           X509_gmtime_adj(X509_getm_notBefore(certificate), -24L * 3600) != nullptr &&
           X509_gmtime_adj(X509_getm_notAfter(certificate), kLifetimeS) != nullptr &&
           X509_set_pubkey(certificate, key) == 1 &&
           X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8,
                                      reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0) == 1 &&
           X509_set_issuer_name(certificate, subject) == 1 &&
           add_extension(certificate, NID_basic_constraints, "critical,CA:TRUE") &&
           add_extension(certificate, NID_subject_alt_name, alternative_names(hosts)) &&
           X509_sign(certificate, key, EVP_sha256()) > 0;
}

std::unique_ptr<BIO, decltype(&BIO_free)> open_text(const std::string& text) {
    return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), &BIO_free};
}

int ask_nobody(char*, int, int, void*) {  // for a passphrase
    return -1;
}

Certificate read_certificate(const std::string& pem) {
    return {PEM_read_bio_X509(open_text(pem).get(), nullptr, ask_nobody, nullptr), &X509_free};
}

}  // namespace

Result<std::string> make_credentials(const std::string& name, const std::vector<std::string>& hosts) {
    const PrivateKey key(EVP_EC_gen("P-256"), &EVP_PKEY_free);
    const Certificate certificate(X509_new(), &X509_free);
    const std::unique_ptr<BIO, decltype(&BIO_free)> text(BIO_new(BIO_s_mem()), &BIO_free);
    if (!key || !certificate || !text || !fill_and_sign(certificate.get(), key.get(), name, hosts) ||
        PEM_write_bio_PKCS8PrivateKey(text.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) != 1 ||
        PEM_write_bio_X509(text.get(), certificate.get()) != 1)
        return internal_error("OpenSSL cannot make a certificate");
    char* bytes = nullptr;
    const long size = BIO_get_mem_data(text.get(), &bytes);
    return std::string(bytes, static_cast<std::size_t>(size));
}

Result<std::int64_t> certificate_end_s(const std::string& pem) {
    const Certificate certificate = read_certificate(pem);
    if (!certificate) return invalid_argument("certificate", "is no certificate in PEM");
    std::tm end{};
    if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate.get()), &end) != 1)
        return invalid_argument("certificate", "has no end that can be read");
    return ::timegm(&end);
}

Status check_certificate(const std::string& certificate_pem, const std::string& key_pem) {
    const Certificate certificate = read_certificate(certificate_pem);
    if (!certificate) return invalid_argument("certificate", "is no certificate in PEM");
    const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
        PEM_read_bio_PrivateKey(open_text(key_pem).get(), nullptr, ask_nobody, nullptr), &EVP_PKEY_free);
    if (!key) return invalid_argument("key", "is no private key in PEM without a passphrase");
    if (X509_check_private_key(certificate.get(), key.get()) == 1) return {};
    return invalid_argument("key", "is not the key of that certificate");
}

}  // namespace atl::auth
