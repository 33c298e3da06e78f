// libFuzzer target: any bytes as a configuration of another program. other_config_test runs it on changed files as
// well.
//   CC=clang-19 CXX=clang++-19 cmake -B build/fuzz -G Ninja -DATOLL_FUZZ=ON -DATOLL_SERVICES=OFF -DATOLL_TESTS=OFF
//   ninja -C build/fuzz other_config_fuzz && build/fuzz/bin/other_config_fuzz -max_total_time=60 CORPUS
//   tests/fixtures/other_configs
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "shared/run_settings/other_config.h"
#include "shared/run_settings/run_settings.h"

// What is translated is a run.json that `train` takes.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace atl::run_settings;
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const auto other = recognize_config(text);
    if (!other) return 0;
    const auto made = translate_config(*other);
    if (!made.ok()) return made.error().message.empty() ? std::abort(), 0 : 0;
    RunConfig config;
    if (!assign_json(config, made->settings, kTrain).ok()) std::abort();
    for (const ConfigNote& note : made->notes)
        if (note.key.empty() || note.text.empty()) std::abort();
    return 0;
}
