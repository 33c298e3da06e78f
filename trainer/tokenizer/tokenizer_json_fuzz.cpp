// libFuzzer target: any bytes as a tokenizer.json. Seeds: tests/fixtures/tokenizers/{gpt2,llama3}/tokenizer.json, and
// one of each kind from `python tests/numerics/make_tokenizer_kinds_goldens.py --seeds SEEDS`.
//   CC=clang-19 CXX=clang++-19 cmake -B build/fuzz -G Ninja -DATOLL_FUZZ=ON -DATOLL_SERVICES=OFF -DATOLL_TESTS=OFF
//   ninja -C build/fuzz tokenizer_json_fuzz
//   build/fuzz/bin/tokenizer_json_fuzz -dict=trainer/tokenizer/tokenizer_json_fuzz.dict -max_total_time=60 CORPUS SEEDS
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "trainer/tokenizer/bpe_tokenizer.h"

// A tokenizer that opens gives ids of its vocabulary, and decodes them.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace atl::tokenizer;
    const auto tokenizer = BpeTokenizer::from_json({reinterpret_cast<const char*>(data), size}, {});
    if (!tokenizer.ok()) return 0;
    for (const char* text : {"", "Il treno  parte\n", "<tool>citt\xc3\xa0 it's 12345", "\xff\xc3 \t\xe2\x80\x83x",
                             "\xe2\x96\x81 a\xe2\x96\x81\xe2\x96\x81"
                             "e \xe4\xb8\x80!?"}) {
        std::vector<std::int32_t> ids;
        if (!(*tokenizer)->encode(text, ids).ok()) return 0;  // an expression beyond PCRE2's limits
        for (const std::int32_t id : ids)
            if (id < 0 || id >= (*tokenizer)->vocab_size()) std::abort();
        (*tokenizer)->decode(ids);  // of any length: its steps may replace letters by texts
        ids.clear();
        if (!(*tokenizer)->encode_behind(text, ids).ok()) return 0;
    }
    return 0;
}
