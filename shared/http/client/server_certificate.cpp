#include "shared/http/client/server_certificate.h"

#include <curl/curl.h>

#include <memory>
#include <mutex>
#include <string_view>

namespace atl::http {
namespace {

struct FreeHandle {
    void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};

}  // namespace

Result<std::string> server_certificate(const std::string& url, std::chrono::milliseconds time_max) {
    static std::once_flag once;
    std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
    const std::unique_ptr<CURL, FreeHandle> handle(curl_easy_init());
    if (handle == nullptr) return unavailable("libcurl makes no handle");
    curl_easy_setopt(handle.get(), CURLOPT_URL, url.c_str());
    curl_easy_setopt(handle.get(), CURLOPT_CONNECT_ONLY, 1L);
    curl_easy_setopt(handle.get(), CURLOPT_CERTINFO, 1L);
    curl_easy_setopt(handle.get(), CURLOPT_SSL_VERIFYPEER, 0L);
    curl_easy_setopt(handle.get(), CURLOPT_SSL_VERIFYHOST, 0L);
    curl_easy_setopt(handle.get(), CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(handle.get(), CURLOPT_TIMEOUT_MS, static_cast<long>(time_max.count()));
    if (const CURLcode code = curl_easy_perform(handle.get()); code != CURLE_OK)
        return unavailable("no certificate from " + url + ": " + curl_easy_strerror(code));
    curl_certinfo* chain = nullptr;
    curl_easy_getinfo(handle.get(), CURLINFO_CERTINFO, &chain);
    constexpr std::string_view kCertificate = "Cert:";
    for (const curl_slist* line = chain != nullptr && chain->num_of_certs > 0 ? chain->certinfo[0] : nullptr;
         line != nullptr; line = line->next)
        if (const std::string_view text = line->data; text.starts_with(kCertificate))
            return std::string(text.substr(kCertificate.size()));
    return unavailable("no certificate from " + url);
}

}  // namespace atl::http
