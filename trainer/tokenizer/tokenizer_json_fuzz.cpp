// libFuzzer target: any bytes as a tokenizer.json. Seeds: tests/fixtures/tokenizers/{gpt2,llama3}/tokenizer.json.
//   CC=clang-19 CXX=clang++-19 cmake -B build/fuzz -G Ninja -DATOLL_FUZZ=ON -DATOLL_SERVICES=OFF -DATOLL_TESTS=OFF
//   ninja -C build/fuzz tokenizer_json_fuzz
//   build/fuzz/bin/tokenizer_json_fuzz -dict=trainer/tokenizer/tokenizer_json_fuzz.dict -max_total_time=60 CORPUS SEEDS
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "trainer/tokenizer/byte_level_tokenizer.h"

// A tokenizer that opens gives ids of its vocabulary, and decodes them.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace atl::tokenizer;
    const auto tokenizer = ByteLevelTokenizer::from_json({reinterpret_cast<const char*>(data), size}, {});
    if (!tokenizer.ok()) return 0;
    for (const char* text : {"", "Il treno  parte\n", "<tool>citt\xc3\xa0 it's 12345", "\xff\xc3 \t\xe2\x80\x83x"}) {
        std::vector<std::int32_t> ids;
        if (!(*tokenizer)->encode(text, ids).ok()) return 0;  // an expression beyond PCRE2's limits
        for (const std::int32_t id : ids)
            if (id < 0 || id >= (*tokenizer)->vocab_size()) std::abort();
        if ((*tokenizer)->decode(ids).size() > (size + 64) * (ids.size() + 1)) std::abort();
    }
    return 0;
}
