// Loads a model's weights as `train` does, in turns with a memcpy of the same bytes, and prints a JSON line: the median
// ratio of the rates with its quartiles. `load_bench MODEL [ROUNDS]`; the page cache is warmed first.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "trainer/comm/comm.h"
#include "trainer/train/job.h"
#include "trainer/train/weights_io.h"

namespace {

using namespace atl;

struct Times {
    double wall_s;
    double cpu_s;  // of this thread: what a busy machine disturbs less
};

double now_s(clockid_t clock) {
    timespec time{};
    ::clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

template <class Work>
Times timed(Work&& work) {
    const Times start{now_s(CLOCK_MONOTONIC), now_s(CLOCK_THREAD_CPUTIME_ID)};
    work();
    return {now_s(CLOCK_MONOTONIC) - start.wall_s, now_s(CLOCK_THREAD_CPUTIME_ID) - start.cpu_s};
}

// Both write into memory that was just got from the backend: its pages come in while it is written.
Times load_once(const train::ModelDirectory& directory, kernels::Backend& backend) {
    auto arena = tensor::Arena::measuring();
    train::ParameterStore::lay_out(arena, directory.model, train::Division{}, nullptr);
    arena = tensor::Arena(backend.allocate(arena.peak_bytes()).value());
    const auto store = train::ParameterStore::lay_out(arena, directory.model, train::Division{}, nullptr);
    return timed([&] { check(load_weights(*directory.weights, store, backend).ok(), "cannot load"); });
}

Times copy_once(const std::vector<char>& bytes, kernels::Backend& backend) {
    const auto memory = backend.allocate(static_cast<std::int64_t>(bytes.size())).value();
    return timed([&] { std::memcpy(memory.data(), bytes.data(), bytes.size()); });
}

double quantile(std::vector<double> values, double q) {
    std::sort(values.begin(), values.end());
    return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1))];
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
    std::printf("\"%s\": {\"memcpy_gb_s\": %.2f, \"load_gb_s\": %.2f, \"ratio\": %.2f, \"quartiles\": [%.2f, %.2f]}",
                name, quantile(copy_rates, 0.5), quantile(load_rates, 0.5), quantile(ratios, 0.5),
                quantile(ratios, 0.25), quantile(ratios, 0.75));
}

std::int64_t bytes_of(const checkpoint::WeightReader& weights) {
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
    const int rounds = argc > 2 ? std::atoi(argv[2]) : 9;
    const auto backend = kernels::make_cpu_backend(1).value();
    auto directory = train::open_model(argv[1]);
    if (!directory.ok()) return std::fprintf(stderr, "%s\n", directory.error().message.c_str()), 2;
    const std::vector<char> bytes(static_cast<std::size_t>(bytes_of(*directory->weights)), 1);
    load_once(*directory, *backend);
    std::vector<Times> copies, loads;
    for (int round = 0; round < rounds; ++round) {
        copies.push_back(copy_once(bytes, *backend));
        loads.push_back(load_once(*directory, *backend));
    }
    const double gigabytes = static_cast<double>(bytes.size()) * 1e-9;
    std::printf("{\"file_gb\": %.3f, ", gigabytes);
    print("wall", &Times::wall_s, copies, loads, gigabytes);
    std::printf(", ");
    print("cpu", &Times::cpu_s, copies, loads, gigabytes);
    std::printf("}\n");
}
