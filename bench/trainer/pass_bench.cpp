// Forward and backward passes of two Llamas on one thread, and how much of each is matrix products.
// pass_bench [--benchmark_filter=…]; counters: tokens/s and GFLOP/s of products and attention (backward counts twice).

#include <benchmark/benchmark.h>

#include <vector>

#include "trainer/model/initialize.h"
#include "trainer/model/testing/reference_driver.h"

namespace {

using namespace atl;

model::ModelConfig llama(std::int64_t hidden, std::int64_t layers, std::int64_t heads, std::int64_t feed_forward,
                         std::int64_t vocabulary) {
    model::ModelConfig config;
    config.vocab_size = vocabulary;
    config.hidden_size = hidden;
    config.intermediate_size = feed_forward;
    config.num_hidden_layers = layers;
    config.num_attention_heads = config.num_key_value_heads = heads;
    config.head_dim = hidden / heads;
    config.max_position_embeddings = 2048;
    return config;
}

void run(benchmark::State& state, const model::ModelConfig& config, model::BatchShape shape, bool train) {
    const auto backend = kernels::make_cpu_backend(static_cast<int>(state.range(0))).value();
    model::ReferenceDriver driver(model::make_model(config), *backend);
    for (const auto& unit : driver.model().units) {
        for (const auto& parameter : unit.parameters) model::initialize(parameter, 1, 0, driver.weight(parameter.name));
    }
    std::vector<std::int32_t> ids;
    for (std::int64_t i = 0; i < shape.tokens(); ++i) {
        ids.push_back(static_cast<std::int32_t>(i * 7919 % config.vocab_size));
    }
    const model::HostBatch rows{.shape = shape, .input_ids = ids, .labels = {}, .segment_ids = {}};
    for (auto _ : state)  // NOLINT(clang-analyzer-deadcode.DeadStores): the loop of every benchmark
        benchmark::DoNotOptimize(train ? driver.train(rows) : driver.evaluate(rows));
    const double passes = train ? 3.0 : 1.0, iterations = static_cast<double>(state.iterations());
    state.counters["tokens/s"] =
        benchmark::Counter(static_cast<double>(shape.tokens()) * iterations, benchmark::Counter::kIsRate);
    state.counters["GFLOP/s"] = benchmark::Counter(passes * driver.model().forward_flops(shape) * iterations * 1e-9,
                                                   benchmark::Counter::kIsRate);
}

void demo_size(benchmark::State& state) {
    run(state, llama(160, 5, 5, 432, 3072), {16, 128}, true);
}

void of_33_million(benchmark::State& state) {
    run(state, llama(512, 8, 8, 1376, 8000), {4, 256}, true);
}

void evaluate_33_million(benchmark::State& state) {
    run(state, llama(512, 8, 8, 1376, 8000), {4, 256}, false);
}

BENCHMARK(demo_size)->Arg(1)->Arg(2)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(of_33_million)->Arg(1)->Arg(2)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(evaluate_33_million)->Arg(1)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
