#include "trainer/tokenizer/expression.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cctype>
#include <cstdint>
#include <utility>

#include "trainer/tokenizer/tokenizer_fields.h"

namespace atl::tokenizer {
namespace {

// Unicode's White_Space, what \s means to Oniguruma. PCRE2's own \s has U+180E too.
constexpr char kSpaceMembers[] =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";

// An expression, and the member of the tokenizer.json that errors name.
struct ExpressionText {
    const std::string& field;
    const std::string& text;

    Error unsupported(std::string_view what) const {
        return fields::bad(field, std::string(what) + " is not supported: " + text);
    }
};

// What `rest` begins with that the two dialects read differently, outside escapes; empty: nothing.
std::string foreign_form(std::string_view rest, bool in_class) {
    if (in_class) {
        for (const char* form : {"[", "&&"})  // a class within the class, an intersection
            if (rest.starts_with(form)) return std::string(form) + " inside a class";
        return {};
    }
    // An unescaped ] as a class's first, a verb, a possessive or lazy {n,m}, {0,m}.
    for (const char* form : {"[]", "[^]", "(*", "}+", "}?", "{,"})
        if (rest.starts_with(form)) return form;
    if (!rest.starts_with("(?")) return {};
    for (const char* form : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:"})
        if (rest.starts_with(form)) return {};
    return std::string(rest.substr(0, 4));
}

// The escape that `rest` begins with, as PCRE2 writes it.
Result<std::string> translate_escape(std::string_view rest, bool in_class, const ExpressionText& expression) {
    constexpr std::string_view kShared = "pPdDnrtfaeRAz";
    const char escaped = rest[1];
    const std::string members = kSpaceMembers;
    if (escaped == 's') return in_class ? members : "[" + members + "]";
    if (escaped == 'S' && in_class) return expression.unsupported("\\S inside a class");
    if (escaped == 'S') return "[^" + members + "]";
    const bool is_code = rest.starts_with("\\x{");
    const bool is_word = std::isalnum(static_cast<unsigned char>(escaped)) != 0;
    if (is_word && !is_code && kShared.find(escaped) == std::string_view::npos)
        return expression.unsupported(rest.substr(0, 2));
    const bool has_braces = is_code || ((escaped == 'p' || escaped == 'P') && rest.substr(2).starts_with('{'));
    const std::size_t end = has_braces ? rest.find('}') : 1;
    if (end == std::string_view::npos) return expression.unsupported(rest.substr(0, 3));
    return std::string(rest.substr(0, end + 1));
}

// From Oniguruma's dialect to PCRE2's: what both read alike stays, \s and \S are written out, and what they read
// differently is refused.
Result<std::string> translate(const ExpressionText& expression) {
    std::string result;
    bool in_class = false;
    for (std::string_view rest = expression.text; !rest.empty();) {
        if (const std::string form = foreign_form(rest, in_class); !form.empty()) return expression.unsupported(form);
        if (rest[0] == '\\' && rest.size() > 1) {
            ATOLL_TRY(const std::string escape, translate_escape(rest, in_class, expression));
            result += escape;
            const bool is_space = rest[1] == 's' || rest[1] == 'S';
            rest.remove_prefix(is_space ? 2 : escape.size());
            continue;
        }
        if (rest[0] == '[') in_class = true;
        if (rest[0] == ']') in_class = false;
        result += rest[0];
        rest.remove_prefix(1);
    }
    return result;
}

std::string pcre2_message(int code) {
    PCRE2_UCHAR text[256];
    ::pcre2_get_error_message(code, text, sizeof text);
    return reinterpret_cast<const char*>(text);
}

}  // namespace

const char* const kGpt2Expression = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

struct Expression::Impl {
    Impl(std::string named, pcre2_code* compiled) : field(std::move(named)), code(compiled) {}
    ~Impl() { ::pcre2_code_free(code); }
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;
    std::string field;
    pcre2_code* code;
};

Expression::Expression(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Expression::~Expression() = default;
Expression::Expression(Expression&&) noexcept = default;
Expression& Expression::operator=(Expression&&) noexcept = default;

Result<Expression> Expression::compile(const std::string& field, const std::string& text) {
    const ExpressionText expression{field, text};
    ATOLL_TRY(const std::string translated, translate(expression));
    int code = 0;
    PCRE2_SIZE position = 0;
    pcre2_code* compiled = ::pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                           PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &code, &position, nullptr);
    if (compiled == nullptr)
        return fields::bad(field, "the expression is not understood (" + pcre2_message(code) + "): " + text);
    Expression result(std::make_unique<Impl>(field, compiled));
    std::uint32_t matches_empty = 0;
    ::pcre2_pattern_info(compiled, PCRE2_INFO_MATCHEMPTY, &matches_empty);
    if (matches_empty != 0) return expression.unsupported("an expression that matches the empty text");
    ::pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE);  // without it matching is slower, not different
    return result;
}

// Calls use(begin, end) for each match.
template <class Use>
Status Expression::for_each_match(std::string_view text, Use&& use) const {
    const std::unique_ptr<pcre2_match_data, decltype(&::pcre2_match_data_free)> match(
        ::pcre2_match_data_create(1, nullptr), &::pcre2_match_data_free);
    check(match != nullptr, "pcre2_match_data_create: out of memory");
    std::size_t at = 0;
    while (at < text.size()) {
        const int found = ::pcre2_match(impl_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                                        PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, match.get(), nullptr);
        if (found == PCRE2_ERROR_NOMATCH) break;
        if (found < 0)  // the expression is input, too, and may run away
            return fields::bad(impl_->field, "the expression cannot be matched: " + pcre2_message(found));
        const PCRE2_SIZE* range = ::pcre2_get_ovector_pointer(match.get());
        use(range[0], range[1]);
        at = range[1];
    }
    return {};
}

Status Expression::find_matches(std::string_view text, std::vector<Match>& matches) const {
    return for_each_match(text, [&](std::size_t begin, std::size_t end) { matches.push_back({begin, end}); });
}

Status Expression::split(std::string_view text, std::vector<std::string_view>& words) const {
    std::size_t done = 0;  // the end of the last word
    ATOLL_RETURN_IF_ERROR(for_each_match(text, [&](std::size_t begin, std::size_t end) {
        if (begin > done) words.push_back(text.substr(done, begin - done));
        words.push_back(text.substr(begin, end - begin));
        done = end;
    }));
    if (done < text.size()) words.push_back(text.substr(done));
    return {};
}

}  // namespace atl::tokenizer
