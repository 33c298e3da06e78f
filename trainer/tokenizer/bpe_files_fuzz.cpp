// libFuzzer target: any bytes as a vocab.json, a NUL and a merges.txt. Seed: tests/fixtures/tokenizers/opt.
//   CC=clang-19 CXX=clang++-19 cmake -B build/fuzz -G Ninja -DATOLL_FUZZ=ON -DATOLL_SERVICES=OFF -DATOLL_TESTS=OFF
//   (cd tests/fixtures/tokenizers/opt; cat vocab.json; printf '\0'; cat merges.txt) > SEEDS/opt
//   ninja -C build/fuzz bpe_files_fuzz && build/fuzz/bin/bpe_files_fuzz -max_total_time=60 CORPUS SEEDS
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "trainer/tokenizer/bpe_files.h"
#include "trainer/tokenizer/bpe_tokenizer.h"

// A tokenizer that opens gives ids of its vocabulary, and decodes them.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace atl::tokenizer;
    const std::string_view input(reinterpret_cast<const char*>(data), size);
    const std::size_t nul = std::min(input.find('\0'), size);
    TokenizerConfig config;
    config.roles = {{"eos_token", "<s>"}, {"pad_token", "a"}};
    const auto parts = parse_bpe_files(input.substr(0, nul), input.substr(std::min(nul + 1, size)), config);
    if (!parts.ok()) return 0;
    const auto tokenizer = BpeTokenizer::create(*parts);
    if (!tokenizer.ok()) return 0;
    for (const char* text : {"", "Il treno  parte\n", "<tool>citt\xc3\xa0 it's 12345", "\xff\xc3 \t\xe2\x80\x83x"}) {
        std::vector<std::int32_t> ids;
        if (!(*tokenizer)->encode(text, ids).ok()) return 0;
        for (const std::int32_t id : ids)
            if (id < 0 || id >= (*tokenizer)->vocab_size()) std::abort();
        if ((*tokenizer)->decode(ids).size() > (size + 64) * (ids.size() + 1)) std::abort();
    }
    return 0;
}
