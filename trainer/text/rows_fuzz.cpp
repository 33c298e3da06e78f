// libFuzzer target: a byte that chooses the format, one for the size of a block, then any bytes as a file of the input.
// Seeds: those bytes before files of each format.
//   CC=clang-19 CXX=clang++-19 cmake -B build/fuzz -G Ninja -DATOLL_FUZZ=ON -DATOLL_SERVICES=OFF -DATOLL_TESTS=OFF
//   ninja -C build/fuzz rows_fuzz && build/fuzz/bin/rows_fuzz -max_total_time=60 CORPUS SEEDS
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "shared/base/file.h"
#include "trainer/text/rows.h"

namespace {

using namespace atl::text;

struct Seen {
    std::vector<std::string> rows;  // with their places
    std::string error;
    RecordPosition middle;  // the end of some block
};

Seen read(const InputFile& file, std::size_t block_bytes, const RecordPosition& from) {
    Seen seen;
    RecordReader reader({file}, {.block_bytes = block_bytes, .record_bytes_max = 1 << 20});
    if (!reader.start_at(from).ok()) std::abort();
    for (std::size_t blocks = 1;; blocks *= 2) {
        const auto block = reader.next();
        if (!block.ok()) seen.error = block.error().message;
        if (!block.ok() || !block->has_value()) return seen;
        const auto keep = [&](const nlohmann::json& row, const std::string& where) {
            seen.rows.push_back(where + " " + row.dump());
            return atl::Status();
        };
        const atl::Status status = for_each_row(**block, file.path, true, keep);
        if (!status.ok()) seen.error = status.error().message;
        if (!status.ok()) return seen;
        if ((blocks & 5) != 0) seen.middle = (*block)->end;
    }
}

}  // namespace

// The rows are the same whatever the size of a block, and from the end of a block on; so is whether there is an error.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 2) return 0;
    const std::string bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
    (void)tell_format("a", bytes);
    const atl::UniqueFd fd(::memfd_create("rows", 0));
    if (::write(fd.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) std::abort();
    const InputFile file{"/proc/self/fd/" + std::to_string(fd.get()), static_cast<InputFormat>(data[0] % 6)};
    const Seen whole = read(file, 1 << 20, {});
    const Seen parts = read(file, 1 + data[1] % 64, {});
    if (whole.error.empty() != parts.error.empty()) std::abort();
    if (!whole.error.empty()) return 0;
    if (whole.rows != parts.rows) std::abort();
    const Seen rest = read(file, 1 << 20, parts.middle);
    if (!rest.error.empty() || rest.rows.size() > whole.rows.size()) std::abort();
    if (!std::equal(rest.rows.rbegin(), rest.rows.rend(), whole.rows.rbegin())) std::abort();
    return 0;
}
