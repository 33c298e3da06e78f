// docs/reference/errors.md is made from the tables of codes and causes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "services/cli/output.h"
#include "shared/base/error_words.h"
#include "shared/http/message.h"
#include "tests/reference/page.h"

namespace atl {
namespace {

constexpr const char* kErrorsIntroduction = R"(# Errors

When a service rejects a request, it answers with a problem document (RFC 9457, `application/problem+json`):

```json
{"type": "urn:atoll:problem:invalid-argument", "title": "The request is wrong", "status": 422,
 "detail": "must be from 1 to 1000", "field": "limit", "cause": "service", "request_id": "01KC…"}
```

`type` ends in the code, `cause` says who rejected the request and why, `field` names the part that is wrong, and `request_id`
appears in the service's log. Programs should rely on code and cause; `detail` is for people and may change. `atoll` prints the
message and exits with the status listed below, with 130 after Ctrl-C, or with 141 when the reader of its output is gone. This
page is generated from the tables in `shared/base` by `tests/reference`.

)";

std::string make_errors_page() {
    std::string page = kErrorsIntroduction;
    page +=
        "## Codes\n\n| code | HTTP status | exit status of `atoll` | retry may help | meaning |\n"
        "|---|---|---|---|---|\n";
    for (const auto& [code, word] : error_codes())
        page += fmt::format("| `{}` | {} | {} | {} | {}. |\n", word, http::http_status(code),
                            cli::exit_status({code, "", ""}), is_transient(code) ? "yes" : "no", meaning(code));
    page +=
        "\nA path that is called by a method it does not take answers 405 with the code `method-not-allowed` and "
        "`Allow`; "
        "`atoll` calls none.\n";
    page += "\n## Causes\n\n| cause | meaning |\n|---|---|\n";
    for (const auto& [cause, word] : causes()) page += fmt::format("| `{}` | {}. |\n", word, meaning(cause));
    return page;
}

TEST(ErrorsReferenceTest, ThePageIsAsTheTables) {
    reference::expect_page("errors.md", make_errors_page());
}

}  // namespace
}  // namespace atl
