// Loads a model's weights as `train` does, in turns with a memcpy of the same bytes, and prints a JSON line: the median
// ratio of the rates with its quartiles. `load_bench MODEL [ROUNDS]`, at least 9 rounds.
//
// What is measured: the file's pages are in the page cache (each is asked for before every load; what share there is,
// is printed). Both sides write into memory that was got just before and is touched by nothing else, so that its pages
// come in while it is written; as much memory was got, written and given back right before that, so that the kernel has
// free huge pages for both and need not make any (that, and not the copying, is what the time went into otherwise).
// The share of huge pages that each side got is printed: rates of rounds with other shares do not compare.
// Which side is first changes from round to round.
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "shared/base/mapped_file.h"
#include "trainer/comm/comm.h"
#include "trainer/model_io/weights_io.h"
#include "trainer/train/prepare.h"

namespace {

using namespace atl;

constexpr int kRoundsMin = 9;

struct Times {
    double wall_s;
    double cpu_s;  // of this thread: what a busy machine disturbs less
    double huge;   // share of the memory written that is in huge pages
};

double now_s(clockid_t clock) {
    timespec time{};
    ::clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Bytes of this process in huge pages.
double huge_bytes() {
    std::ifstream file("/proc/self/smaps_rollup");
    for (std::string line; std::getline(file, line);)
        if (line.starts_with("AnonHugePages:")) return std::atof(line.c_str() + 14) * 1024;
    return 0;
}

template <class Work>
Times timed(double bytes, Work&& work) {
    const double huge = huge_bytes();
    const double wall = now_s(CLOCK_MONOTONIC), cpu = now_s(CLOCK_THREAD_CPUTIME_ID);
    work();
    const double wall_end = now_s(CLOCK_MONOTONIC), cpu_end = now_s(CLOCK_THREAD_CPUTIME_ID);
    return {wall_end - wall, cpu_end - cpu, (huge_bytes() - huge) / bytes};
}

// Leaves the kernel with that much free memory in the pages that the backend asks for.
void free_some_memory(std::int64_t bytes, kernels::Backend& backend) {
    const auto memory = backend.allocate(bytes).value();
    std::memset(memory.data(), 1, static_cast<std::size_t>(bytes));
}

// Reads the directory's weights, so that they are in the page cache; the share of their pages that is.
double warm_page_cache(const std::filesystem::path& directory) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    double pages = 0, cached = 0;
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
        if (entry.path().extension() != ".safetensors") continue;
        std::ifstream file(entry.path(), std::ios::binary);
        std::vector<char> buffer(1 << 20);
        while (file.read(buffer.data(), static_cast<std::streamsize>(buffer.size()))) continue;
        const auto mapped = MappedFile::open(entry.path()).value();
        std::vector<unsigned char> resident((mapped.bytes().size() + page - 1) / page);
        auto* const start = const_cast<std::byte*>(mapped.bytes().data());
        check(::mincore(start, mapped.bytes().size(), resident.data()) == 0, "mincore");
        pages += static_cast<double>(resident.size());
        cached += static_cast<double>(
            std::count_if(resident.begin(), resident.end(), [](unsigned char state) { return (state & 1) != 0; }));
    }
    return cached / pages;
}

Times load_once(const model_io::ModelDirectory& directory, kernels::Backend& backend) {
    auto arena = tensor::Arena::measuring();
    parallel::ParameterStore::lay_out(arena, directory.model, parallel::ParallelLayout{}, nullptr, {});
    const std::int64_t bytes = arena.peak_bytes();
    free_some_memory(bytes, backend);
    arena = tensor::Arena(backend.allocate(bytes).value());
    auto store = parallel::ParameterStore::lay_out(arena, directory.model, parallel::ParallelLayout{}, nullptr, {});
    const auto alone = comm::make_self();
    return timed(static_cast<double>(bytes),
                 [&] { check(load_weights(directory, store, backend, *alone, false).ok(), "cannot load"); });
}

Times copy_once(const std::vector<char>& bytes, kernels::Backend& backend) {
    const auto size = static_cast<std::int64_t>(bytes.size());
    free_some_memory(size, backend);
    const auto memory = backend.allocate(size).value();
    return timed(static_cast<double>(size), [&] { std::memcpy(memory.data(), bytes.data(), bytes.size()); });
}

double quantile(std::vector<double> values, double q) {
    std::sort(values.begin(), values.end());
    return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1))];
}

double huge_share(const std::vector<Times>& times, double q) {
    std::vector<double> shares;
    for (const Times& one : times) shares.push_back(one.huge);
    return quantile(shares, q);
}

// Rates and their ratio by one of the clocks.
void print(const char* name, double Times::* time, const std::vector<Times>& copies, const std::vector<Times>& loads,
           double gigabytes) {
    std::vector<double> ratios, copy_rates, load_rates;
    for (std::size_t i = 0; i < copies.size(); ++i) {
        copy_rates.push_back(gigabytes / (copies[i].*time));
        load_rates.push_back(gigabytes / (loads[i].*time));
        ratios.push_back(load_rates.back() / copy_rates.back());
    }
    std::printf("\"%s\": {\"memcpy_gb_s\": %.2f, \"load_gb_s\": %.2f, \"ratio\": %.2f, \"quartiles\": [%.2f, %.2f], ",
                name, quantile(copy_rates, 0.5), quantile(load_rates, 0.5), quantile(ratios, 0.5),
                quantile(ratios, 0.25), quantile(ratios, 0.75));
    std::printf("\"ratio_of_best\": %.2f}", quantile(load_rates, 1) / quantile(copy_rates, 1));
}

std::int64_t bytes_of(const weights::WeightReader& weights) {
    std::int64_t bytes = 0;
    for (const auto& tensor : weights.tensors()) {
        std::int64_t elements = 1;
        for (const std::int64_t extent : tensor.shape) elements *= extent;
        bytes += elements * safetensors::size_bytes(tensor.dtype);
    }
    return bytes;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) return std::fprintf(stderr, "load_bench MODEL [ROUNDS]\n"), 2;
    const int rounds = std::max(kRoundsMin, argc > 2 ? std::atoi(argv[2]) : kRoundsMin);
    const auto backend = kernels::make_cpu_backend(1).value();
    auto directory = model_io::open_model_directory(argv[1]);
    if (!directory.ok()) return std::fprintf(stderr, "%s\n", describe(directory.error()).c_str()), 2;
    const std::vector<char> bytes(static_cast<std::size_t>(bytes_of(*directory->weights)), 1);
    std::vector<Times> copies, loads;
    double cached = 1;
    for (int round = -1; round < rounds; ++round) {  // the first does not count
        const auto copy = [&] { copies.push_back(copy_once(bytes, *backend)); };
        if (round % 2 == 0) copy();
        cached = std::min(cached, warm_page_cache(argv[1]));
        loads.push_back(load_once(*directory, *backend));
        if (round % 2 != 0) copy();
        if (round < 0) copies.clear(), loads.clear();
    }
    const double gigabytes = static_cast<double>(bytes.size()) * 1e-9;
    std::printf("{\"file_gb\": %.3f, \"rounds\": %d, \"page_cache_share_min\": %.3f, ", gigabytes, rounds, cached);
    std::printf("\"huge_page_share\": {\"memcpy\": [%.2f, %.2f], \"load\": [%.2f, %.2f]}, ", huge_share(copies, 0),
                huge_share(copies, 1), huge_share(loads, 0), huge_share(loads, 1));
    print("wall", &Times::wall_s, copies, loads, gigabytes);
    std::printf(", ");
    print("cpu", &Times::cpu_s, copies, loads, gigabytes);
    std::printf("}\n");
}
