// libFuzzer target: any bytes as the zip archive that a PyTorch file is. torch_zip_test runs it on changed archives
// too.
//   CC=clang-19 CXX=clang++-19 cmake -B build/fuzz -G Ninja -DATOLL_FUZZ=ON -DATOLL_SERVICES=OFF -DATOLL_TESTS=OFF
//   ninja -C build/fuzz torch_zip_fuzz
//   for f in single zip64; do cp tests/fixtures/torch/$f/pytorch_model.bin SEEDS/$f; done
//   build/fuzz/bin/torch_zip_fuzz -max_total_time=60 CORPUS SEEDS
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "trainer/importer/torch_zip.h"

// Members are bytes of the archive, and none shares one with another.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto archive = std::as_bytes(std::span(data, size));
    const auto members = atl::importer::read_stored_zip(archive);
    if (!members.ok()) return 0;
    std::vector<std::span<const std::byte>> views;
    for (const auto& [name, view] : *members) views.push_back(view);
    std::ranges::sort(views, {}, [](const auto& view) { return view.data(); });
    const std::byte* end = archive.data();  // of the one before
    for (const auto& view : views) {
        if (view.data() < end) std::abort();
        end = view.data() + view.size();
    }
    if (end > archive.data() + archive.size()) std::abort();
    return 0;
}
