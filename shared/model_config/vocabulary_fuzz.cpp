// libFuzzer target: any bytes as the files of a tokenizer; the first byte says which.
//   CC=clang-19 CXX=clang++-19 cmake -B build/fuzz -G Ninja -DATOLL_FUZZ=ON -DATOLL_SERVICES=OFF -DATOLL_TESTS=OFF
//   ninja -C build/fuzz vocabulary_fuzz && build/fuzz/bin/vocabulary_fuzz -max_total_time=60 -timeout=5 CORPUS
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "shared/base/file.h"
#include "shared/model_config/vocabulary.h"

// What is taken names its file, and pieces without ids of their own have those of their places.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace atl;
    static const TemporaryDirectory directory("vocabulary-fuzz");
    constexpr std::array kFiles = {"tokenizer.json", "tokenizer.model",       "vocab.json",
                                   "merges.txt",     "tokenizer_config.json", "added_tokens.json"};
    if (size == 0) return 0;
    const char* file = kFiles.at(data[0] % kFiles.size());
    for (const char* name : kFiles) std::filesystem::remove(directory.path() / name);
    const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
    if (!write_file_atomic(directory.path() / file, bytes).ok()) std::abort();
    // What stands beside a vocabulary is read with one.
    if (file[0] != 't' && std::string_view(file) != "vocab.json")
        if (!write_file_atomic(directory.path() / "vocab.json", R"({"a": 0})").ok()) std::abort();
    const auto found = model_config::read_vocabulary(directory.path());
    if (!found.ok()) return found.error().message.empty() ? std::abort(), 0 : 0;
    if (!*found) return 0;
    if ((*found)->file == "tokenizer.model")
        for (std::size_t i = 0; i < (*found)->tokens.size(); ++i)
            if ((*found)->tokens[i].second != static_cast<std::int64_t>(i)) std::abort();
    return 0;
}
