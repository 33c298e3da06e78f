#include "trainer/data/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <stdexcept>
#include <utility>

namespace atl::data {
namespace {

// Unicode's White_Space, what \s means to Oniguruma. PCRE2's own \s has U+180E too.
constexpr char kSpaceMembers[] =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";

// Writes \s and \S out; everything else the two dialects share.
Result<std::string> translate(const std::string& expression) {
    std::string result;
    bool in_class = false;
    for (std::size_t i = 0; i < expression.size(); ++i) {
        const char c = expression[i];
        if (c != '\\' || i + 1 == expression.size()) {
            if (c == '[') in_class = true;
            if (c == ']') in_class = false;
            result += c;
            continue;
        }
        const char escaped = expression[++i];
        if (escaped == 's') {
            result += in_class ? std::string(kSpaceMembers) : "[" + std::string(kSpaceMembers) + "]";
        } else if (escaped == 'S' && in_class) {
            return invalid_argument(
                "pre_tokenizer",
                "pre_tokenizer: \\S inside a class is not supported in a pre-tokenizer: " + expression);
        } else if (escaped == 'S') {
            result += "[^" + std::string(kSpaceMembers) + "]";
        } else {
            result += c;
            result += escaped;
        }
    }
    return result;
}

std::string message_of(int code) {
    PCRE2_UCHAR text[256];
    ::pcre2_get_error_message(code, text, sizeof text);
    return reinterpret_cast<const char*>(text);
}

}  // namespace

const char* const kGpt2Expression = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

struct PreTokenizer::Impl {
    explicit Impl(pcre2_code* compiled) : code(compiled) {}
    ~Impl() { ::pcre2_code_free(code); }
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;
    pcre2_code* code;
};

PreTokenizer::PreTokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PreTokenizer::~PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;

Result<PreTokenizer> PreTokenizer::compile(const std::string& expression) {
    ATOLL_TRY(const std::string translated, translate(expression));
    int code = 0;
    PCRE2_SIZE position = 0;
    pcre2_code* compiled = ::pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                           PCRE2_UTF | PCRE2_UCP, &code, &position, nullptr);
    if (compiled == nullptr)
        return invalid_argument("pre_tokenizer", "pre_tokenizer: the expression is not understood (" +
                                                     message_of(code) + "): " + expression);
    ::pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE);  // without it matching is slower, not different
    return PreTokenizer(std::make_unique<Impl>(compiled));
}

void PreTokenizer::split(std::string_view text, std::vector<std::string_view>& words) const {
    const std::unique_ptr<pcre2_match_data, decltype(&::pcre2_match_data_free)> match(
        ::pcre2_match_data_create(1, nullptr), &::pcre2_match_data_free);
    check(match != nullptr, "pcre2_match_data_create: out of memory");
    std::size_t done = 0;  // the end of the last word
    std::size_t at = 0;
    while (at < text.size()) {
        const int found = ::pcre2_match(impl_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                                        PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, match.get(), nullptr);
        if (found == PCRE2_ERROR_NOMATCH) break;
        // The expression is input, too: one that runs away ends the work, not the program.
        if (found < 0)
            throw std::runtime_error("pre_tokenizer: the expression cannot be matched: " + message_of(found));
        const PCRE2_SIZE* range = ::pcre2_get_ovector_pointer(match.get());
        if (range[0] > done) words.push_back(text.substr(done, range[0] - done));
        words.push_back(text.substr(range[0], range[1] - range[0]));
        done = at = range[1];
    }
    if (done < text.size()) words.push_back(text.substr(done));
}

}  // namespace atl::data
