// libFuzzer target: any bytes as a tokenizer_config.json, a NUL, a special_tokens_map.json, a NUL and an
// added_tokens.json, beside the vocabulary of one token a byte. Seeds: those files of tests/fixtures/tokenizers/opt.
//   CC=clang-19 CXX=clang++-19 cmake -B build/fuzz -G Ninja -DATOLL_FUZZ=ON -DATOLL_SERVICES=OFF -DATOLL_TESTS=OFF
//   (cd tests/fixtures/tokenizers/opt; cat tokenizer_config.json; printf '\0'; cat special_tokens_map.json; printf
//   '\0';
//    cat added_tokens.json) > SEEDS/opt
//   ninja -C build/fuzz tokenizer_config_fuzz && build/fuzz/bin/tokenizer_config_fuzz -max_total_time=60 CORPUS SEEDS
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "trainer/tokenizer/bpe_tokenizer.h"
#include "trainer/tokenizer/tokenizer_config.h"
#include "trainer/tokenizer/tokenizer_json.h"

namespace {

using namespace atl::tokenizer;

atl::json::Json next_file(std::string_view& input) {
    const std::size_t nul = std::min(input.find('\0'), input.size());
    auto object = atl::json::parse(input.substr(0, nul));
    input.remove_prefix(std::min(nul + 1, input.size()));
    return object.ok() && object->is_object() ? std::move(object).value() : atl::json::Json();
}

// A token for each byte, in the alphabet that tokenizers write bytes in.
BpeParts make_parts() {
    BpeParts parts;
    std::int32_t next = 0x100;
    for (std::int32_t byte = 0; byte < 256; ++byte) {
        const bool prints = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
        const std::int32_t code = prints ? byte : next++;
        std::string token;
        if (code >= 0x80) token += static_cast<char>(0xc0 | code >> 6);
        token += static_cast<char>(code >= 0x80 ? 0x80 | (code & 0x3f) : code);
        parts.vocab.emplace(std::move(token), byte);
    }
    parts.pre_tokenizer.push_back({.kind = PreTokenizerStep::Kind::kByteLevel});
    return parts;
}

}  // namespace

// A tokenizer that opens gives ids of its vocabulary, and decodes them.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::string_view input(reinterpret_cast<const char*>(data), size);
    ConfigFiles files;
    for (atl::json::Json* file : {&files.main, &files.special_tokens, &files.added_tokens}) *file = next_file(input);
    const auto config = parse_tokenizer_config(files);
    BpeParts parts = make_parts();
    if (!config.ok() || !apply_config(*config, parts).ok()) return 0;
    const auto tokenizer = BpeTokenizer::create(parts);
    if (!tokenizer.ok()) return 0;
    for (const char* text : {"", "Il treno  parte\n", " <tool>  citt\xc3\xa0</s> <mask>", "\xff\xc3 \t\xe2\x80\x83x"}) {
        std::vector<std::int32_t> ids;
        if (!(*tokenizer)->encode(text, ids).ok()) std::abort();
        for (const std::int32_t id : ids)
            if (id < 0 || id >= (*tokenizer)->vocab_size()) std::abort();
        if ((*tokenizer)->decode(ids).size() > (size + 64) * (ids.size() + 1)) std::abort();
    }
    return 0;
}
