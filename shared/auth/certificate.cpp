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

constexpr std::chrono::hours kLongLifetime{20L * 365 * 24};

// Whose name and key stand below a certificate; its own where it vouches for itself.
struct Signer {
    X509* certificate = nullptr;
    EVP_PKEY* key = nullptr;
};

struct Subject {
    const std::string& name;
    const std::vector<std::string>& hosts;
    bool signs_others = false;
    std::chrono::seconds lifetime{};
};

bool fill_and_sign(X509* certificate, EVP_PKEY* key, const Subject& subject, const Signer& signer) {
    std::uint64_t serial = 0;
    X509_NAME* name = X509_get_subject_name(certificate);
    return RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof serial) == 1 &&
           X509_set_version(certificate, X509_VERSION_3) == 1 &&
           ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate), serial >> 1U) == 1 &&
           X509_gmtime_adj(X509_getm_notBefore(certificate), -24L * 3600) != nullptr &&
           X509_gmtime_adj(X509_getm_notAfter(certificate), subject.lifetime.count()) != nullptr &&
           X509_set_pubkey(certificate, key) == 1 &&
           X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8,
                                      reinterpret_cast<const unsigned char*>(subject.name.c_str()), -1, -1, 0) == 1 &&
           X509_set_issuer_name(certificate, X509_get_subject_name(signer.certificate)) == 1 &&
           add_extension(certificate, NID_basic_constraints,
                         subject.signs_others ? "critical,CA:TRUE" : "critical,CA:FALSE") &&
           (subject.hosts.empty() ||
            add_extension(certificate, NID_subject_alt_name, alternative_names(subject.hosts))) &&
           X509_sign(certificate, signer.key, EVP_sha256()) > 0;
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

PrivateKey read_key(const std::string& pem) {
    return {PEM_read_bio_PrivateKey(open_text(pem).get(), nullptr, ask_nobody, nullptr), &EVP_PKEY_free};
}

// The key, where there is one, and the certificate.
Result<std::string> write_pem(EVP_PKEY* key, X509* certificate) {
    const std::unique_ptr<BIO, decltype(&BIO_free)> text(BIO_new(BIO_s_mem()), &BIO_free);
    if (!text ||
        (key != nullptr &&
         PEM_write_bio_PKCS8PrivateKey(text.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1) ||
        PEM_write_bio_X509(text.get(), certificate) != 1)
        return internal_error("OpenSSL cannot write a certificate");
    char* bytes = nullptr;
    const long size = BIO_get_mem_data(text.get(), &bytes);
    return std::string(bytes, static_cast<std::size_t>(size));
}

// A new key and its certificate; without a signer it vouches for itself.
Result<std::string> make_key_and_certificate(const Subject& subject, Signer signer) {
    const PrivateKey key(EVP_EC_gen("P-256"), &EVP_PKEY_free);
    const Certificate certificate(X509_new(), &X509_free);
    if (signer.key == nullptr) signer = {certificate.get(), key.get()};
    if (!key || !certificate || !fill_and_sign(certificate.get(), key.get(), subject, signer))
        return internal_error("OpenSSL cannot make a certificate");
    return write_pem(key.get(), certificate.get());
}

}  // namespace

Result<std::string> make_credentials(const std::string& name, const std::vector<std::string>& hosts) {
    return make_key_and_certificate({name, hosts, true, kLongLifetime}, {});
}

Result<std::string> make_authority(const std::string& name) {
    return make_key_and_certificate({name, {}, true, kLongLifetime}, {});
}

Result<std::string> issue_credentials(const std::string& authority_pem, const std::string& name,
                                      const std::vector<std::string>& hosts, std::chrono::seconds lifetime) {
    const Certificate authority = read_certificate(authority_pem);
    const PrivateKey key = read_key(authority_pem);
    if (!authority || !key || X509_check_private_key(authority.get(), key.get()) != 1)
        return invalid_argument("authority", "is no key and certificate in PEM");
    ATOLL_TRY(const std::string pair,
              make_key_and_certificate({name, hosts, false, lifetime}, {authority.get(), key.get()}));
    ATOLL_TRY(const std::string shown, write_pem(nullptr, authority.get()));
    return pair + shown;
}

bool is_issued_by(const std::string& authority_pem, const std::string& pem) {
    const Certificate authority = read_certificate(authority_pem);
    const Certificate certificate = read_certificate(pem);
    return authority && certificate && X509_verify(certificate.get(), X509_get0_pubkey(authority.get())) == 1;
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
    const PrivateKey key = read_key(key_pem);
    if (!key) return invalid_argument("key", "is no private key in PEM without a passphrase");
    if (X509_check_private_key(certificate.get(), key.get()) == 1) return {};
    return invalid_argument("key", "is not the key of that certificate");
}

}  // namespace atl::auth
