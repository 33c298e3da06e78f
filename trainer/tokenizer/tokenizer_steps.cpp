#include "trainer/tokenizer/tokenizer_steps.h"

#include <utility>

#include "trainer/tokenizer/tokenizer_fields.h"
#include "trainer/tokenizer/utf8.h"

namespace atl::tokenizer {
namespace {

using fields::bad;
using fields::member;
using json::Json;

std::string type_of(const Json& step) {
    return fields::text_or_empty(member(step, "type"));
}

Error unsupported_step(const char* field, const Json& step) {
    return bad(field, "\"" + type_of(step) + "\" is not supported");
}

// Calls read(step) for the step, or for each of a Sequence, in whose member `key` they are.
template <class Read>
Status for_each_step(const char* field, const char* key, const Json& step, Read&& read) {
    if (step.is_null()) return {};
    if (type_of(step) != "Sequence") return read(step);
    const Json& steps = member(step, key);
    if (!steps.is_array()) return bad(field, std::string("a Sequence lacks its ") + key);
    for (const Json& inner : steps) ATOLL_RETURN_IF_ERROR(for_each_step(field, key, inner, read));
    return {};
}

// {"String": …} or {"Regex": …}
Result<PatternText> read_pattern(const char* field, const Json& step) {
    const Json& pattern = member(step, "pattern");
    const Json& text = member(pattern, "String");
    const Json& expression = member(pattern, "Regex");
    if (text.is_string() && expression.is_null()) return PatternText{text.get<std::string>(), false};
    if (expression.is_string() && text.is_null()) return PatternText{expression.get<std::string>(), true};
    return bad(field, "the pattern of a " + type_of(step) + " is neither a String nor a Regex");
}

// The member `key`, one character.
Result<std::string> read_character(const char* field, const Json& step, const char* key) {
    const std::string text = fields::text_or_empty(member(step, key));
    if (text.empty() || static_cast<std::size_t>(utf8_length(text)) != text.size())
        return bad(field, std::string("the ") + key + " of a " + type_of(step) + " is not one character");
    return text;
}

Status read_normalizer_step(const Json& step, BpeParts& result) {
    constexpr const char* kField = "normalizer";
    const std::string type = type_of(step);
    NormalizerStep read;
    if (const auto form = parse_normal_form(type)) {
        read.form = *form;
    } else if (type == "Prepend") {
        read.kind = NormalizerStep::Kind::kPrepend;
        const Json& content = member(step, "prepend");
        if (!content.is_string()) return bad(kField, "a Prepend lacks its prepend");
        read.content = content.get<std::string>();
    } else if (type == "Replace") {
        read.kind = NormalizerStep::Kind::kReplace;
        ATOLL_TRY(read.pattern, read_pattern(kField, step));
        const Json& content = member(step, "content");
        if (!content.is_string()) return bad(kField, "a Replace lacks its content");
        read.content = content.get<std::string>();
    } else {
        return unsupported_step(kField, step);
    }
    result.normalizer.push_back(std::move(read));
    return {};
}

constexpr const char* kPreTokenizer = "pre_tokenizer";

Result<SplitBehavior> read_behavior(const Json& step) {
    constexpr std::pair<const char*, SplitBehavior> kBehaviors[] = {
        {"Removed", SplitBehavior::kRemoved},
        {"Isolated", SplitBehavior::kIsolated},
        {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
        {"MergedWithNext", SplitBehavior::kMergedWithNext},
        {"Contiguous", SplitBehavior::kContiguous},
    };
    const Json& behavior = member(step, "behavior");
    if (behavior.is_null() && type_of(step) == "Punctuation") return SplitBehavior::kIsolated;
    for (const auto& [name, value] : kBehaviors)
        if (behavior == name) return value;
    return bad(kPreTokenizer, "the behavior " + behavior.dump() + " is not supported");
}

Result<PrependScheme> read_prepend_scheme(const Json& step) {
    constexpr std::pair<const char*, PrependScheme> kSchemes[] = {
        {"always", PrependScheme::kAlways}, {"first", PrependScheme::kFirst}, {"never", PrependScheme::kNever}};
    const Json& scheme = member(step, "prepend_scheme");
    const bool has_no_space = member(step, "add_prefix_space") == Json(false);  // as older files say it
    if (has_no_space && scheme != "never")
        return bad(type_of(step), "add_prefix_space is false, but prepend_scheme is not \"never\"");
    if (scheme.is_null()) return PrependScheme::kAlways;
    for (const auto& [name, value] : kSchemes)
        if (scheme == name) return value;
    return bad(type_of(step), "the prepend_scheme " + scheme.dump() + " is not supported");
}

// Absent means true, as in files from before the option.
bool is_true_or_absent(const Json& value) {
    return !value.is_boolean() || value.get<bool>();
}

Status read_pre_tokenizer_step(const Json& step, BpeParts& result) {
    const std::string type = type_of(step);
    PreTokenizerStep read;
    if (type == "Split") {
        ATOLL_TRY(read.pattern, read_pattern(kPreTokenizer, step));
        ATOLL_TRY(read.behavior, read_behavior(step));
        read.invert = fields::is_true(member(step, "invert"));
    } else if (type == "Digits") {
        read.kind = PreTokenizerStep::Kind::kDigits;
        const bool individual = fields::is_true(member(step, "individual_digits"));
        read.behavior = individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous;
    } else if (type == "Punctuation") {
        read.kind = PreTokenizerStep::Kind::kPunctuation;
        ATOLL_TRY(read.behavior, read_behavior(step));
    } else if (type == "Metaspace") {
        read.kind = PreTokenizerStep::Kind::kMetaspace;
        ATOLL_TRY(read.replacement, read_character(kPreTokenizer, step, "replacement"));
        ATOLL_TRY(read.prepend, read_prepend_scheme(step));
        read.splits = is_true_or_absent(member(step, "split"));
    } else if (type == "ByteLevel") {
        read.kind = PreTokenizerStep::Kind::kByteLevel;
        read.splits = is_true_or_absent(member(step, "use_regex"));
        result.add_prefix_space = fields::is_true(member(step, "add_prefix_space"));
    } else {
        return unsupported_step(kPreTokenizer, step);
    }
    result.pre_tokenizer.push_back(std::move(read));
    return {};
}

constexpr const char* kDecoder = "decoder";

Status read_strip(const Json& step, DecoderStep& read) {
    ATOLL_TRY(read.pattern, read_character(kDecoder, step, "content"));
    for (const auto& [key, count] : {std::pair("start", &read.start), std::pair("stop", &read.stop)}) {
        const Json& value = member(step, key);
        if (!value.is_number_unsigned()) return bad(kDecoder, std::string("the ") + key + " of a Strip is no count");
        *count = value.get<std::size_t>();
    }
    return {};
}

Status read_decoder_step(const Json& step, std::vector<DecoderStep>& steps) {
    const std::string type = type_of(step);
    DecoderStep read;
    if (type == "Replace") {
        read.kind = DecoderStep::Kind::kReplace;
        ATOLL_TRY(const PatternText pattern, read_pattern(kDecoder, step));
        if (pattern.is_expression || pattern.text.empty())
            return bad(kDecoder, "a Replace by a Regex or of the empty text is not supported");
        read.pattern = pattern.text;
        read.content = fields::text_or_empty(member(step, "content"));
    } else if (type == "ByteFallback") {
        read.kind = DecoderStep::Kind::kByteFallback;
    } else if (type == "Fuse") {
        read.kind = DecoderStep::Kind::kFuse;
    } else if (type == "Strip") {
        read.kind = DecoderStep::Kind::kStrip;
        ATOLL_RETURN_IF_ERROR(read_strip(step, read));
    } else if (type == "Metaspace") {
        read.kind = DecoderStep::Kind::kMetaspace;
        ATOLL_TRY(read.pattern, read_character(kDecoder, step, "replacement"));
        ATOLL_TRY(const PrependScheme scheme, read_prepend_scheme(step));
        read.drops_first = scheme != PrependScheme::kNever;
    } else if (type == "ByteLevel") {
        read.kind = DecoderStep::Kind::kByteLevel;
    } else {
        return unsupported_step(kDecoder, step);
    }
    steps.push_back(std::move(read));
    return {};
}

}  // namespace

Status read_normalizer(const Json& normalizer, BpeParts& result) {
    return for_each_step("normalizer", "normalizers", normalizer,
                         [&](const Json& step) { return read_normalizer_step(step, result); });
}

Status read_pre_tokenizer(const Json& pre_tokenizer, BpeParts& result) {
    return for_each_step(kPreTokenizer, "pretokenizers", pre_tokenizer,
                         [&](const Json& step) { return read_pre_tokenizer_step(step, result); });
}

Status read_decoder(const Json& decoder, BpeParts& result) {
    if (decoder.is_null()) return {};
    std::vector<DecoderStep>& steps = result.decoder.emplace();
    return for_each_step(kDecoder, "decoders", decoder,
                         [&](const Json& step) { return read_decoder_step(step, steps); });
}

}  // namespace atl::tokenizer
