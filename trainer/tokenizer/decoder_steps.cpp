#include "trainer/tokenizer/decoder_steps.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "trainer/tokenizer/byte_alphabet.h"
#include "trainer/tokenizer/utf8.h"

namespace atl::tokenizer {
namespace {

std::string joined(const std::vector<std::string>& tokens) {
    std::string text;
    for (const std::string& token : tokens) text += token;
    return text;
}

// A tokenizer.json is input, too: steps that double a token each would fill the memory. Such a one stays as it is.
constexpr std::size_t kTokenBytesMax = 1U << 20;

std::string with_replaced(std::string_view text, const std::string& pattern, const std::string& content) {
    std::string result;
    std::string_view rest = text;
    for (std::size_t at = 0; (at = rest.find(pattern)) != std::string_view::npos;
         rest.remove_prefix(at + pattern.size())) {
        result.append(rest.substr(0, at)).append(content);
        if (result.size() > text.size() + kTokenBytesMax) return std::string(text);
    }
    return result.append(rest);
}

// The byte of a token "<0x0A>". ("+A" is a number to the reference, too.)
std::optional<char> fallback_byte(const std::string& token) {
    const auto value = [](char c) {
        return std::isdigit(static_cast<unsigned char>(c)) != 0 ? c - '0' : (c | 0x20) - 'a' + 10;
    };
    const auto is_digit = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>' || !is_digit(token[4])) return std::nullopt;
    if (token[3] != '+' && !is_digit(token[3])) return std::nullopt;
    return static_cast<char>((token[3] == '+' ? 0 : value(token[3]) * 16) + value(token[4]));
}

// Neighbours "<0x…>" become the text of their bytes, U+FFFD for each where that is not UTF-8.
std::vector<std::string> without_fallback_bytes(std::vector<std::string> tokens) {
    std::vector<std::string> result;
    std::string bytes;
    const auto finish_bytes = [&] {
        if (is_utf8(bytes)) {
            if (!bytes.empty()) result.push_back(bytes);
        } else {
            result.insert(result.end(), bytes.size(), "\xef\xbf\xbd");
        }
        bytes.clear();
    };
    for (std::string& token : tokens) {
        if (const auto byte = fallback_byte(token)) {
            bytes += *byte;
            continue;
        }
        finish_bytes();
        result.push_back(std::move(token));
    }
    finish_bytes();
    return result;
}

void strip(std::string& token, const DecoderStep& step) {
    for (std::size_t i = 0; i < step.start && token.starts_with(step.pattern); ++i) token.erase(0, step.pattern.size());
    for (std::size_t i = 0; i < step.stop && token.ends_with(step.pattern); ++i)
        token.resize(token.size() - step.pattern.size());
}

// What is not written in the alphabet of bytes stands for itself.
std::vector<std::string> from_byte_level(const std::vector<std::string>& tokens) {
    std::string bytes;
    for (const std::string& token : tokens) bytes += bytes_of_alphabet(token).value_or(token);
    return {with_utf8_replaced(bytes)};
}

void apply(const DecoderStep& step, std::vector<std::string>& tokens) {
    switch (step.kind) {
        case DecoderStep::Kind::kReplace:
            for (std::string& token : tokens) token = with_replaced(token, step.pattern, step.content);
            break;
        case DecoderStep::Kind::kByteFallback:
            tokens = without_fallback_bytes(std::move(tokens));
            break;
        case DecoderStep::Kind::kFuse:
            tokens = {joined(tokens)};
            break;
        case DecoderStep::Kind::kStrip:
            for (std::string& token : tokens) strip(token, step);
            break;
        case DecoderStep::Kind::kMetaspace:
            for (std::size_t i = 0; i < tokens.size(); ++i)
                tokens[i] = with_replaced(tokens[i], step.pattern, i == 0 && step.drops_first ? "" : " ");
            break;
        case DecoderStep::Kind::kByteLevel:
            tokens = from_byte_level(tokens);
            break;
    }
}

}  // namespace

std::string decode_tokens(const std::vector<DecoderStep>& steps, std::vector<std::string> tokens) {
    for (const DecoderStep& step : steps) apply(step, tokens);
    return joined(tokens);
}

}  // namespace atl::tokenizer
