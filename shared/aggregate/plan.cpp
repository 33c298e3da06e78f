#include "shared/aggregate/plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "shared/adapter/adapter.h"
#include "shared/aggregate/variates.h"
#include "shared/model_config/token_counts.h"

namespace atl::aggregate {

Result<OpenedFile> read_header(const Input& input, const InputFile& file) {
    const auto named = [&](const Error& error) {
        return Error{error.code, input.name + "/" + file.path + ": " + error.message, file.path};
    };
    std::string head(8, '\0');
    if (file.bytes->size() < head.size()) return named(invalid_argument("", "too short for a safetensors file"));
    if (auto status = file.bytes->read(0, std::as_writable_bytes(std::span(head))); !status.ok()) return status.error();
    const auto length = safetensors::header_length(head, file.bytes->size());
    if (!length.ok()) return named(length.error());
    head.resize(8 + *length);
    ATOLL_RETURN_IF_ERROR(file.bytes->read(8, std::as_writable_bytes(std::span(head)).subspan(8)));
    auto header = safetensors::parse_header(std::string_view(head).substr(8), file.bytes->size());
    if (!header.ok()) return named(header.error());
    return OpenedFile{std::move(head), std::move(header).value()};
}

bool is_change(const Input& input) {
    return std::ranges::any_of(input.files, [](const InputFile& file) { return file.path == delta::kFile; });
}

namespace {

using safetensors::DType;
using safetensors::Header;
using safetensors::TensorInfo;

struct Found {
    TensorInfo info;
    Place place;
};
using TensorMap = std::map<std::string, Found, std::less<>>;

// Whether models in F16, BF16 and F32 may stand for one another in it.
bool may_become(DType dtype) {
    return is_floating(dtype) && dtype != DType::kF64;
}

bool is_exact(DType dtype) {
    return !is_floating(dtype) && dtype != DType::kF8E4M3 && dtype != DType::kF8E5M2;
}

Result<TensorMap> read_tensors(const Input& input, std::vector<OpenedFile>& opened) {
    if (input.files.empty()) return invalid_argument(input.name, input.name + " has no safetensors file");
    TensorMap tensors;
    for (std::size_t i = 0; i < input.files.size(); ++i) {
        ATOLL_TRY(OpenedFile file, read_header(input, input.files[i]));
        for (const TensorInfo& info : file.header.tensors) {
            const Place place{i, file.header.data_begin + info.begin, info.dtype};
            if (!tensors.emplace(info.name, Found{info, place}).second)
                return invalid_argument(info.name,
                                        input.name + " has tensor " + in_quotes(info.name) + " in two files");
        }
        opened.push_back(std::move(file));
    }
    return tensors;
}

// The tensors of the model that an input is a change of the base to. `base`: those of the base.
Result<TensorMap> read_changes(const Input& input, const std::optional<RoundBase>& start, const TensorMap& base,
                               std::vector<OpenedFile>& opened) {
    const std::string path = input.name + "/" + delta::kFile;
    if (!start)
        return invalid_argument(delta::kFile,
                                path + " is a change of a model: give the model that it was trained from");
    if (input.files.size() != 1)
        return invalid_argument(delta::kFile, path + " stands beside other weights of the same model");
    ATOLL_TRY(OpenedFile file, read_header(input, input.files.front()));
    const auto said = delta::describe(file.header);
    if (!said.ok()) return invalid_argument(said.error().field, path + ": " + said.error().message);
    if (!start->digest.empty() && said->base != start->digest)
        return invalid_argument(delta::kBaseKey, path + " is a change of another model (" + in_quotes(said->base) +
                                                     ") than " + start->base.name + " (" + in_quotes(start->digest) +
                                                     ")");
    TensorMap tensors;
    for (const TensorInfo& packed : file.header.tensors) {
        const auto of_base = base.find(packed.name);
        Found found{packed, {0, file.header.data_begin + packed.begin, DType::kF32, said->format}};
        if (of_base != base.end()) {
            const Status fits = delta::check_tensor(said->format, of_base->second.info, packed);
            if (!fits.ok()) return invalid_argument(packed.name, path + ": " + fits.error().message);
            found.info.dtype = DType::kF32;
            found.info.shape = of_base->second.info.shape;
        }
        tensors.emplace(packed.name, std::move(found));
    }
    opened.push_back(std::move(file));
    return tensors;
}

std::string describe(const TensorInfo& info) {
    std::string text = safetensors::to_string(info.dtype);
    text += "[";
    for (std::size_t i = 0; i < info.shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(info.shape[i]);
    return text + "]";
}

enum class Types { kMustAgree, kMayDiffer };  // of floating tensors; F64 always agrees: its sums are in fp64

// An adapter's matrices may have ranks of their own.
enum class Ranks { kMustAgree, kMayDiffer };

struct Fit {
    Types types;
    Ranks ranks;
};

bool same_shape(const TensorInfo& a, const TensorInfo& b, Ranks ranks) {
    if (a.shape == b.shape || ranks == Ranks::kMustAgree) return a.shape == b.shape;
    if (a.shape.size() != 2 || b.shape.size() != 2) return false;
    return (a.name.ends_with(adapter::kA) && a.shape[1] == b.shape[1]) ||
           (a.name.ends_with(adapter::kB) && a.shape[0] == b.shape[0]);
}

bool same_kind(const TensorInfo& a, const TensorInfo& b, Fit fit) {
    const bool agree =
        a.dtype == b.dtype || (fit.types == Types::kMayDiffer && may_become(a.dtype) && may_become(b.dtype));
    return agree && same_shape(a, b, fit.ranks);
}

Status check_same_tensors(const Input& first, const TensorMap& expected, const Input& other, const TensorMap& found,
                          Fit fit) {
    for (const auto& [name, tensor] : expected) {
        const auto at = found.find(name);
        if (at == found.end())
            return invalid_argument(name, other.name + " lacks tensor " + in_quotes(name) + " of " + first.name);
        const TensorInfo& here = at->second.info;
        if (!same_kind(here, tensor.info, fit))
            return invalid_argument(name, "tensor " + in_quotes(name) + " is " + describe(tensor.info) + " in " +
                                              first.name + " but " + describe(here) + " in " + other.name);
    }
    for (const auto& [name, tensor] : found) {
        if (!expected.contains(name))
            return invalid_argument(
                name, other.name + " has tensor " + in_quotes(name) + " that " + first.name + " does not have");
    }
    return {};
}

// What the trainer writes into an adapter's metadata about the frozen weights below it: adapters of one base add up,
// those of two do not, whatever their shapes.
constexpr std::array kTrainedOn = {"atoll.base_sha256", "atoll.base_quantization"};
using TrainedOn = std::map<std::string, std::string, std::less<>>;  // those that are there

TrainedOn trained_on(const std::vector<OpenedFile>& files) {
    TrainedOn told;
    for (const OpenedFile& file : files) {
        for (const char* key : kTrainedOn) {
            const auto at = file.header.metadata.find(key);
            if (at != file.header.metadata.end()) told.insert(*at);
        }
    }
    return told;
}

// The models that the output comes from: headers only.
struct Headers {
    std::vector<OpenedFile> layout;  // the files of the base, or of the first input where there is none
    std::vector<TensorMap> inputs;
    std::vector<TrainedOn> trained_on;  // of the inputs
    TensorMap base;
    std::vector<TensorMap> state;  // one a name of the strategy's; empty: it begins with zero
};

// Adds an input that goes with those before it and with the base.
Status read_input(const std::vector<Input>& inputs, const std::optional<RoundBase>& start, Ranks ranks,
                  Headers& headers) {
    const Input& input = inputs[headers.inputs.size()];
    std::vector<OpenedFile> opened;
    ATOLL_TRY(TensorMap tensors,
              is_change(input) ? read_changes(input, start, headers.base, opened) : read_tensors(input, opened));
    if (start) {
        ATOLL_RETURN_IF_ERROR(
            check_same_tensors(start->base, headers.base, input, tensors, {Types::kMayDiffer, ranks}));
    } else if (!headers.inputs.empty()) {
        ATOLL_RETURN_IF_ERROR(
            check_same_tensors(inputs[0], headers.inputs[0], input, tensors, {Types::kMustAgree, ranks}));
    }
    headers.trained_on.push_back(trained_on(opened));
    if (!start && headers.inputs.empty()) headers.layout = std::move(opened);
    headers.inputs.push_back(std::move(tensors));
    return {};
}

// All inputs that tell were trained on the same. At fault is who says something else than the round's base, which
// nobody can make say a lie once a round has made it, and where that is silent the one of whose kind there are fewer;
// of as many on each side nobody, as a lie in what no number depends on must not end a round. Where there is no round
// the later is named.
Status check_trained_on(const std::string& key, const std::vector<Input>& inputs, const Headers& headers,
                        const AggregatorOptions& options, const std::optional<RoundBase>& start) {
    const auto told = [&](const TrainedOn& by) {
        const auto at = by.find(key);
        return at == by.end() ? std::string() : at->second;
    };
    const auto told_by = [&](std::size_t input) { return told(headers.trained_on[input]); };
    const auto differ = [&](std::size_t odd, const std::string& usual, const std::string& usual_name) {
        report_fault(options, odd);
        return invalid_argument(key, inputs[odd].name + " was trained on other weights than " + usual_name + " (" +
                                         key + " " + in_quotes(told_by(odd)) + ", not " + in_quotes(usual) +
                                         "): only adapters of one base can be averaged");
    };
    const std::string of_base = start && start->is_jobs ? told(trained_on(headers.layout)) : std::string();
    for (std::size_t i = 0; !of_base.empty() && i < inputs.size(); ++i)
        if (!told_by(i).empty() && told_by(i) != of_base) return differ(i, of_base, "the round's base");
    if (!of_base.empty()) return {};
    std::map<std::string, std::vector<std::size_t>> telling;
    for (std::size_t i = 0; i < inputs.size(); ++i)
        if (!told_by(i).empty()) telling[told_by(i)].push_back(i);
    if (telling.size() < 2) return {};
    const auto fewer = [](const auto& a, const auto& b) {
        return std::pair(a.second.size(), b.second.front()) < std::pair(b.second.size(), a.second.front());
    };
    const auto& [odd, odd_ones] = *std::ranges::min_element(telling, fewer);
    const auto& [usual, usual_ones] = *std::ranges::max_element(telling, fewer);
    if (start && odd_ones.size() == usual_ones.size()) return {};
    return differ(odd_ones.front(), usual, inputs[usual_ones.front()].name);
}

Result<Headers> read_headers(const std::vector<Input>& inputs, const Strategy& strategy,
                             const AggregatorOptions& options, const std::optional<RoundBase>& start) {
    Headers headers;
    const Ranks ranks = strategy.is_of_adapters() ? Ranks::kMayDiffer : Ranks::kMustAgree;
    if (start) {
        if (is_change(start->base))
            return invalid_argument(delta::kFile, start->base.name + "/" + delta::kFile +
                                                      " is a change of a model, and no base for others");
        ATOLL_TRY(headers.base, read_tensors(start->base, headers.layout));
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        const Status status = read_input(inputs, start, ranks, headers);
        if (status.ok()) continue;
        report_fault(options, i);
        return status.error();
    }
    for (const char* key : kTrainedOn) ATOLL_RETURN_IF_ERROR(check_trained_on(key, inputs, headers, options, start));
    for (const std::string_view name : strategy.state()) {
        headers.state.emplace_back();
        const auto kept = start->state.find(name);
        if (kept == start->state.end()) continue;
        std::vector<OpenedFile> unused;
        ATOLL_TRY(headers.state.back(), read_tensors(kept->second, unused));
    }
    return headers;
}

// Where a state's copy of a tensor lies: it must be of this model, as the last step left it.
Result<Place> find_state(const TensorInfo& info, const TensorMap& state, const Input& from) {
    const auto at = state.find(info.name);
    if (at == state.end()) return invalid_argument(info.name, from.name + " lacks tensor " + in_quotes(info.name));
    if (at->second.info.shape != info.shape || at->second.info.dtype != DType::kF32)
        return invalid_argument(info.name, "tensor " + in_quotes(info.name) + " is " + describe(info) + " but " +
                                               describe(at->second.info) + " in " + from.name);
    return at->second.place;
}

Status check_makeable(const TensorInfo& info, const Strategy& strategy) {
    if (!is_floating(info.dtype) && !is_exact(info.dtype))
        return invalid_argument(info.name, "tensor " + in_quotes(info.name) + " is " +
                                               safetensors::to_string(info.dtype) + ", which cannot be averaged");
    if (info.dtype == DType::kF64 && !strategy.is_weighted_mean())
        return invalid_argument(info.name,
                                "tensor " + in_quotes(info.name) + " is F64: this strategy computes in fp32");
    return {};
}

// A file of the layout as the output has it.
OpenedFile with_dtype(const OpenedFile& layout, std::optional<DType> dtype) {
    if (!dtype) return layout;
    OpenedFile output{{}, layout.header};
    for (TensorInfo& info : output.header.tensors)
        if (may_become(info.dtype)) info.dtype = *dtype;
    output.head = safetensors::make_header(output.header.tensors, output.header.metadata);
    output.header.data_begin = output.head.size();
    return output;
}

std::uint64_t size_bytes(const OpenedFile& file) {
    std::uint64_t end = 0;
    for (const TensorInfo& info : file.header.tensors) end = std::max(end, info.end);
    return file.header.data_begin + end;
}

std::size_t widest_element(const Tensor& tensor, bool has_base) {
    std::size_t widest = tensor.state.empty() ? 1 : sizeof(float);
    if (has_base) widest = std::max<std::size_t>(widest, safetensors::size_bytes(tensor.base.dtype));
    for (const Place& place : tensor.inputs)
        widest = std::max<std::size_t>(widest, safetensors::size_bytes(place.dtype));
    return std::max<std::size_t>(widest, safetensors::size_bytes(tensor.info.dtype));
}

// The two matrices in one model.
Result<PlannedPair::Model> find_pair(const PlannedPair& pair, const TensorMap& tensors, const std::string& model) {
    const Found &a = tensors.find(pair.a)->second, &b = tensors.find(pair.b)->second;
    const bool fit = a.info.shape.size() == 2 && b.info.shape.size() == 2 && a.info.shape[0] == b.info.shape[1];
    if (!fit || a.info.shape[0] < 1)
        return invalid_argument(pair.a, "tensors " + in_quotes(pair.a) + " and " + in_quotes(pair.b) + " are " +
                                            describe(a.info) + " and " + describe(b.info) + " in " + model +
                                            ", which is no adapter");
    return PlannedPair::Model{a.place, b.place, static_cast<std::size_t>(a.info.shape[0])};
}

Result<PlannedPair> plan_pair(const std::string& module, const std::vector<Input>& inputs, const Headers& headers,
                              const Plan& plan) {
    PlannedPair pair;
    pair.a = module + std::string(adapter::kA);
    pair.b = module + std::string(adapter::kB);
    pair.layout = plan.start ? inputs.size() : 0;
    const TensorMap& layout = plan.start ? headers.base : headers.inputs.front();
    for (const std::string& name : {pair.a, pair.b})
        if (!layout.contains(name))
            return invalid_argument(name, (plan.start ? plan.start->base : inputs[0]).name + " lacks tensor " +
                                              in_quotes(name) + ": an adapter has both matrices");
    std::size_t ranks = 0;
    for (std::size_t i = 0; i < inputs.size() + (plan.start ? 1 : 0); ++i) {
        const bool is_base = i == inputs.size();
        const auto model =
            find_pair(pair, is_base ? headers.base : headers.inputs[i], (is_base ? plan.start->base : inputs[i]).name);
        if (!model.ok() && !is_base) report_fault(plan.options, i);
        ATOLL_RETURN_IF_ERROR(model);
        pair.models.push_back(*model);
        ranks += model->rank;
    }
    if (std::cmp_greater(ranks, kRanksMax))
        return invalid_argument(pair.a, "the ranks of " + in_quotes(pair.a) + " sum to " + std::to_string(ranks) +
                                            " over all models; product takes " + std::to_string(kRanksMax) +
                                            ": choose fedavg or lower the rank");
    pair.inputs = static_cast<std::size_t>(layout.find(pair.a)->second.info.shape[1]);
    pair.outputs = static_cast<std::size_t>(layout.find(pair.b)->second.info.shape[0]);
    const std::uint64_t numbers = pair_numbers(pair.inputs, pair.outputs, ranks, pair.start().rank);
    if (numbers > kPairNumbersMax)
        return invalid_argument(pair.a, "making " + in_quotes(pair.a) + " of all models would hold " +
                                            std::to_string(numbers) + " numbers; product takes " +
                                            std::to_string(kPairNumbersMax) + ": choose fedavg or lower the rank");
    return pair;
}

// The tensor's module, "base_model.model.model.layers.0.mlp.up_proj". kInvalidArgument where it is no adapter's matrix.
Result<std::string> module_of(const TensorInfo& info) {
    for (const std::string_view ending : {adapter::kA, adapter::kB})
        if (info.name.ends_with(ending) && is_floating(info.dtype))
            return info.name.substr(0, info.name.size() - ending.size());
    return invalid_argument(info.name, "tensor " + in_quotes(info.name) +
                                           " is neither lora_A nor lora_B of an adapter: product takes nothing else");
}

// Makes the tensor one of a pair, which is planned with the first of both.
Status plan_factor(const std::vector<Input>& inputs, const Headers& headers, Plan& plan, Tensor& tensor) {
    ATOLL_TRY(const std::string module, module_of(tensor.info));
    tensor.kind = TensorKind::kFactor;
    tensor.is_a = tensor.info.name.ends_with(adapter::kA);
    const auto known = std::ranges::find(plan.pairs, tensor.info.name, tensor.is_a ? &PlannedPair::a : &PlannedPair::b);
    tensor.made = static_cast<std::size_t>(known - plan.pairs.begin());
    if (known != plan.pairs.end()) return {};
    ATOLL_TRY(PlannedPair pair, plan_pair(module, inputs, headers, plan));
    plan.pairs.push_back(std::move(pair));
    return {};
}

// Where one tensor of the output comes from; `begin`: in the output file.
Result<Tensor> plan_tensor(const TensorInfo& info, std::uint64_t begin, const Headers& headers, const Plan& plan) {
    ATOLL_RETURN_IF_ERROR(check_makeable(info, *plan.strategy));
    Tensor tensor;
    tensor.info = info;
    tensor.kind = is_floating(info.dtype) ? TensorKind::kCombine : TensorKind::kCopy;
    tensor.begin = begin;
    tensor.end = begin + (info.end - info.begin);
    for (const TensorMap& input : headers.inputs) tensor.inputs.push_back(input.at(info.name).place);
    if (plan.start) tensor.base = headers.base.at(info.name).place;
    const auto names = plan.strategy->state();
    for (std::size_t i = 0; i < names.size() && tensor.kind == TensorKind::kCombine; ++i) {
        tensor.state.emplace_back();
        if (headers.state[i].empty() || tensor.begin == tensor.end) continue;
        ATOLL_TRY(tensor.state.back(), find_state(info, headers.state[i], plan.start->state.find(names[i])->second));
    }
    tensor.widest = widest_element(tensor, plan.start.has_value());
    if (plan.strategy->needs_token_counts() && tensor.kind == TensorKind::kCombine &&
        model_config::has_token_rows(info.name, info.shape))
        tensor.row_elements = static_cast<std::size_t>(info.shape[1]);
    return tensor;
}

Result<PlannedFile> plan_file(const OpenedFile& opened, const std::vector<Input>& inputs, const Headers& headers,
                              Plan& plan) {
    PlannedFile planned;
    for (const TensorInfo& info : opened.header.tensors) {
        ATOLL_TRY(Tensor tensor, plan_tensor(info, opened.header.data_begin + info.begin, headers, plan));
        if (plan.strategy->is_of_adapters()) ATOLL_RETURN_IF_ERROR(plan_factor(inputs, headers, plan, tensor));
        if (tensor.begin != tensor.end) planned.tensors.push_back(std::move(tensor));
    }
    planned.head = opened.head;
    return planned;
}

// One of the strategy's fp32 states of one file's tensors, in their order.
PlannedFile plan_state(const PlannedFile& model, std::size_t which) {
    PlannedFile planned;
    std::vector<TensorInfo> infos;
    for (const Tensor& tensor : model.tensors) {
        if (tensor.kind != TensorKind::kCombine) continue;
        planned.tensors.push_back(tensor);
        infos.push_back({tensor.info.name, DType::kF32, tensor.info.shape, 0, 0});
    }
    planned.head = safetensors::make_header(infos);
    std::uint64_t end = planned.head.size();
    for (std::size_t i = 0; i < infos.size(); ++i) {
        Tensor& tensor = planned.tensors[i];
        tensor.info = infos[i];
        tensor.kind = TensorKind::kState;
        tensor.made = which;
        tensor.begin = end;
        tensor.end = end += infos[i].end - infos[i].begin;
    }
    return planned;
}

// How many tokens the layout's embedding and head have rows for.
Result<std::int64_t> count_tokens(const std::vector<OpenedFile>& layout) {
    const TensorInfo* first = nullptr;
    for (const OpenedFile& file : layout)
        for (const TensorInfo& info : file.header.tensors) {
            if (!model_config::has_token_rows(info.name, info.shape)) continue;
            if (first == nullptr) first = &info;
            if (info.shape[0] != first->shape[0])
                return invalid_argument(info.name, "tensors " + in_quotes(first->name) + " and " +
                                                       in_quotes(info.name) +
                                                       " have rows for unlike numbers of tokens");
        }
    if (first != nullptr) return first->shape[0];
    return invalid_argument("strategy.row_weights", "the models have neither embedding nor head, whose rows it weighs");
}

// All of an input's counts are looked at, a piece at a time.
Result<TokenCounts> read_token_counts(const Input& input, std::int64_t tokens) {
    const std::string name = input.name + "/" + model_config::kTokenCountsFile;
    const auto wrong = [&](const std::string& what) {
        return invalid_argument(model_config::kTokenCountsFile, name + ": " + what);
    };
    if (!input.token_counts) return wrong("is missing, and the strategy weighs rows by it");
    ATOLL_TRY(const OpenedFile opened, read_header(input, {model_config::kTokenCountsFile, input.token_counts}));
    const Status fits = model_config::check_token_counts(opened.header, tokens);
    if (!fits.ok()) return wrong(fits.error().message);
    TokenCounts counts{opened.header.data_begin + opened.header.tensors.front().begin};
    constexpr std::int64_t kAtOnce = 16 << 10;
    std::vector<float> values;
    for (std::int64_t at = 0; at < tokens; at += std::ssize(values)) {
        values.resize(static_cast<std::size_t>(std::min(kAtOnce, tokens - at)));
        ATOLL_RETURN_IF_ERROR(input.token_counts->read(counts.offset + static_cast<std::uint64_t>(at) * sizeof(float),
                                                       std::as_writable_bytes(std::span(values))));
        for (std::size_t i = 0; i < values.size(); ++i) {
            if (!(values[i] >= 0 && std::isfinite(values[i])))
                return wrong("the count of token " + std::to_string(at + static_cast<std::int64_t>(i)) +
                             " is negative or not finite");
            counts.total += static_cast<double>(values[i]);
        }
    }
    return counts;
}

Status read_all_token_counts(const std::vector<Input>& inputs, const Headers& headers, Plan& plan) {
    if (!plan.strategy->needs_token_counts()) return {};
    ATOLL_TRY(const std::int64_t tokens, count_tokens(headers.layout));
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        const auto counts = read_token_counts(inputs[i], tokens);
        if (!counts.ok()) {
            report_fault(plan.options, i);
            return counts.error();
        }
        plan.token_counts.push_back(*counts);
    }
    return {};
}

Status check_weights(const std::vector<double>& weights, std::size_t count) {
    if (weights.size() != count)
        return invalid_argument("weights", "there are " + std::to_string(weights.size()) + " weights for " +
                                               std::to_string(count) + " inputs");
    const bool valid = std::all_of(weights.begin(), weights.end(), [](double w) { return std::isfinite(w) && w >= 0; });
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    if (!valid || !(sum > 0) || !std::isfinite(sum))
        return invalid_argument("weights", "must be finite, not negative, and not all zero");
    return {};
}

// The shares of the inputs in the mean of those that are there, and of all of these in the mean with the absent ones.
Status share_out(const std::vector<double>& weights, Plan& plan) {
    std::vector<double> all = weights;
    for (const double weight : plan.start ? plan.start->absent : std::vector<double>()) {
        if (!std::isfinite(weight) || weight < 0)
            return invalid_argument("absent", "weights must be finite and not negative");
        if (weight > 0) all.push_back(weight);
    }
    ATOLL_TRY(plan.shares, plan.strategy->share_out(all));
    if (all.size() == weights.size()) return {};
    plan.shares.resize(weights.size());
    plan.present = std::accumulate(plan.shares.begin(), plan.shares.end(), 0.0);
    for (double& share : plan.shares) share /= plan.present;
    return {};
}

std::string state_prefix(std::string_view state) {
    return std::string(state) + "/";
}

// The base that the strategy needs, and room in it for what the strategy keeps.
Status check_base(const Strategy& strategy, const std::optional<RoundBase>& start) {
    if (!strategy.needs_base()) return {};
    if (!start) return invalid_argument("strategy", "needs the model that the inputs were trained from");
    for (const std::string_view state : strategy.state())
        for (const InputFile& file : start->base.files)
            if (file.path.starts_with(state_prefix(state)))
                return invalid_argument(file.path, file.path + ": is where the strategy keeps its state");
    return {};
}

}  // namespace

bool is_floating(DType dtype) {
    return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 || dtype == DType::kF64;
}

void report_fault(const AggregatorOptions& options, std::size_t input) {
    if (options.on_fault) options.on_fault(input);
}

Result<Plan> make_plan(const StrategySpec& strategy, std::vector<Input> inputs, const std::vector<double>& weights,
                       const AggregatorOptions& options, std::optional<RoundBase> start) {
    if (inputs.empty()) return invalid_argument("inputs", "there is nothing to average");
    Plan plan;
    plan.start = std::move(start);
    plan.options = options;
    ATOLL_TRY(plan.strategy, make_strategy(strategy));
    ATOLL_RETURN_IF_ERROR(check_weights(weights, inputs.size()));
    plan.weights = weights;
    plan.measures = plan.start.has_value();
    plan.has_changes = std::ranges::any_of(inputs, is_change);
    plan.spec = strategy;
    ATOLL_RETURN_IF_ERROR(share_out(weights, plan));
    if (strategy.control_variate && !plan.start)
        return invalid_argument("strategy", "control variates need the model that the inputs were trained from");
    ATOLL_RETURN_IF_ERROR(check_base(*plan.strategy, plan.start));
    ATOLL_TRY(const Headers headers, read_headers(inputs, *plan.strategy, options, plan.start));
    ATOLL_RETURN_IF_ERROR(read_all_token_counts(inputs, headers, plan));
    const Input& layout = plan.start ? plan.start->base : inputs.front();
    for (std::size_t i = 0; i < headers.layout.size(); ++i) {
        const OpenedFile output = with_dtype(headers.layout[i], options.dtype);
        ATOLL_TRY(PlannedFile planned, plan_file(output, inputs, headers, plan));
        plan.files.push_back({layout.files[i].path, size_bytes(output)});
        plan.planned.push_back(std::move(planned));
    }
    const auto names = plan.strategy->state();
    for (std::size_t state = 0; state < names.size(); ++state)
        for (std::size_t i = 0; i < headers.layout.size(); ++i) {
            PlannedFile planned = plan_state(plan.planned[i], state);
            const std::uint64_t size = planned.tensors.empty() ? planned.head.size() : planned.tensors.back().end;
            plan.files.push_back({state_prefix(names[state]) + layout.files[i].path, size});
            plan.planned.push_back(std::move(planned));
        }
    plan.inputs = std::move(inputs);
    ATOLL_RETURN_IF_ERROR(plan_variates(plan));
    return plan;
}

}  // namespace atl::aggregate
