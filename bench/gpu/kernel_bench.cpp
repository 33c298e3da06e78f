// Operations of a backend against the limits of their device: kernel_bench DEVICE [--small] [--ceilings] [--seconds S].
// DEVICE is cuda, hip or cpu. First a copy and a large product in bf16 are measured, then each operation, and a JSON
// line is printed of each. `of_copy`: the fewest bytes that it can move over its time, over the copy's rate.
// `of_product`: its operations over its time, over the large product's rate. Shapes are those of Llama-2-7B with 4,096
// tokens; attention of 32 heads of 64 channels, 8 of keys and values, and 2,048 tokens as well; formats bf16, gradients
// of parameters fp32. --small: shapes for a CPU, to see that everything runs. --ceilings: the copy and the large
// product alone. After S seconds what was not measured is named.

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "bench/gpu/bench.h"

namespace {

using namespace atl;
using Json = nlohmann::ordered_json;

struct Options {
    std::string device;
    bool small = false, ceilings = false;
    double seconds = std::numeric_limits<double>::infinity();
};

std::optional<Options> parse(int count, char** arguments) {
    Options options;
    for (int i = 1; i < count; ++i) {
        const std::string_view argument = arguments[i];
        if (argument == "--small") {
            options.small = true;
        } else if (argument == "--ceilings") {
            options.ceilings = true;
        } else if (argument == "--seconds" && i + 1 < count) {
            options.seconds = std::atof(arguments[++i]);
        } else if (options.device.empty() && !argument.starts_with("-")) {
            options.device = argument;
        } else {
            return std::nullopt;
        }
    }
    return options.device.empty() ? std::nullopt : std::optional(options);
}

void print(const Json& line) {
    std::cout << line.dump() << std::endl;
}

double rate(bench::Bench& bench, const bench::Case& work) {
    const double seconds = bench.time(work.call);
    bench.forget_tensors();
    return (work.bytes + work.operations) / seconds;
}

struct Ceilings {
    double copy, product;  // a second
};

Ceilings measure_ceilings(bench::Bench& bench) {
    const double copy = rate(bench, bench::copy_case(bench));
    print({{"name", "copy"}, {"GB_per_s", copy / 1e9}});
    const double product = rate(bench, bench::large_product(bench));
    print({{"name", "product"}, {"TFLOP_per_s", product / 1e12}, {"size", bench.shapes.product}});
    return {copy, product};
}

void measure(bench::Bench& bench, const bench::NamedCase& named, const Ceilings& ceilings) {
    const bench::Case work = named.make(bench);
    const double seconds = bench.time(work.call);
    bench.forget_tensors();
    Json line = {{"name", std::string("kernel.") + named.name}, {"ms", seconds * 1e3}};
    if (work.bytes > 0) {
        line["bytes"] = work.bytes;
        line["GB_per_s"] = work.bytes / seconds / 1e9;
        line["of_copy"] = work.bytes / seconds / ceilings.copy;
    } else {
        line["operations"] = work.operations;
        line["TFLOP_per_s"] = work.operations / seconds / 1e12;
        line["of_product"] = work.operations / seconds / ceilings.product;
    }
    print(line);
}

int run(const Options& options) {
    const auto begin = std::chrono::steady_clock::now();
    auto opened = options.device == "cpu" ? kernels::make_cpu_backend(2) : kernels::make_gpu_backend(options.device, 0);
    if (!opened.ok()) {
        std::cerr << "kernel_bench: " << opened.error().message << '\n';
        return 1;
    }
    kernels::Backend& backend = **opened;
    print({{"name", "backend"}, {"text", backend.name()}});
    bench::Bench bench(backend, options.small ? bench::small_shapes() : bench::full_shapes());
    const Ceilings ceilings = measure_ceilings(bench);
    if (options.ceilings) return 0;
    for (const bench::NamedCase& named : bench::kernel_cases()) {
        const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
        if (spent.count() > options.seconds) {
            print({{"name", std::string("kernel.") + named.name}, {"left_out", "the time was over"}});
        } else {
            measure(bench, named, ceilings);
        }
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const auto options = parse(argc, argv);
    if (options) return run(*options);
    std::cerr << "usage: kernel_bench cuda|hip|cpu [--small] [--ceilings] [--seconds S]\n";
    return 2;
}
