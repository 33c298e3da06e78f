#include "trainer/tokenizer/decoder_steps.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "trainer/tokenizer/byte_alphabet.h"
#include "trainer/tokenizer/growth.h"
#include "trainer/tokenizer/utf8.h"

namespace atl::tokenizer {
namespace {

std::string joined(const std::vector<std::string>& tokens) {
    std::string text;
    for (const std::string& token : tokens) text += token;
    return text;
}

std::size_t bytes_of(const std::vector<std::string>& tokens) {
    std::size_t bytes = 0;
    for (const std::string& token : tokens) bytes += token.size();
    return bytes;
}

std::string with_replaced(std::string_view rest, const std::string& pattern, const std::string& content) {
    std::string result;
    for (std::size_t at = 0; (at = rest.find(pattern)) != std::string_view::npos;
         rest.remove_prefix(at + pattern.size()))
        result.append(rest.substr(0, at)).append(content);
    return result.append(rest);
}

// How long all tokens are after a Replace.
std::size_t bytes_replaced(const std::vector<std::string>& tokens, const DecoderStep& step) {
    std::size_t matches = 0;
    for (const std::string_view token : tokens)
        for (std::size_t at = 0; (at = token.find(step.pattern, at)) != std::string_view::npos;
             at += step.pattern.size())
            ++matches;
    return bytes_of(tokens) - matches * step.pattern.size() + matches * step.content.size();
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
    const std::string_view text = token;
    std::size_t begin = 0;
    for (std::size_t i = 0; i < step.start && text.substr(begin).starts_with(step.pattern); ++i)
        begin += step.pattern.size();
    std::size_t end = text.size();
    for (std::size_t i = 0; i < step.stop && text.substr(begin, end - begin).ends_with(step.pattern); ++i)
        end -= step.pattern.size();
    token = token.substr(begin, end - begin);
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
    const std::size_t bytes_max = grown_bytes_max(bytes_of(tokens));
    for (const DecoderStep& step : steps) {
        if (step.kind == DecoderStep::Kind::kReplace && bytes_replaced(tokens, step) > bytes_max) break;
        apply(step, tokens);
    }
    return joined(tokens);
}

}  // namespace atl::tokenizer
