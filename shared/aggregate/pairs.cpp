#include "shared/aggregate/pairs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "shared/aggregate/kernels.h"
#include "shared/aggregate/low_rank.h"

namespace atl::aggregate {
namespace {

// A matrix in one model.
struct Factor {
    std::size_t model;
    Place place;
    Place base;  // the same in the base; of a place that is a change of it
};

Status read_stored(const Plan& plan, std::size_t model, const Place& place, std::size_t first,
                   std::span<std::byte> raw) {
    const auto width = static_cast<std::size_t>(safetensors::size_bytes(place.dtype));
    const Status read = plan.model(model).files[place.file].bytes->read(place.offset + first * width, raw);
    if (!read.ok() && model < plan.inputs.size()) report_fault(plan.options, model);
    return read;
}

// Its elements from the `first` on, as its place has them, or as fp32 where that is a change.
Status read_elements(const Plan& plan, const Factor& of, std::size_t first, std::span<std::byte> raw,
                     Scratch& scratch) {
    if (!of.place.change) return read_stored(plan, of.model, of.place, first, raw);
    const auto width = static_cast<std::size_t>(safetensors::size_bytes(of.base.dtype));
    const std::size_t base = plan.inputs.size();
    const std::span<std::byte> of_base = scratch.raw_of(base).first(raw.size() / sizeof(float) * width);
    ATOLL_RETURN_IF_ERROR(read_stored(plan, base, of.base, first, of_base));
    const Status read = read_changed(plan.inputs[of.model], of.place, of.base.dtype, of_base, first, raw, scratch);
    if (!read.ok()) report_fault(plan.options, of.model);
    return read;
}

// Hands the numbers of a model's tensor to take(index, value), in order.
template <class Take>
Status read_values(const Plan& plan, const Factor& of, const std::string& name, std::size_t count, Scratch& scratch,
                   const Take& take) {
    const Place& place = of.place;
    const auto width = static_cast<std::size_t>(safetensors::size_bytes(place.dtype));
    const std::size_t block = std::max<std::size_t>(scratch.raw_bytes / width, 1);
    for (std::size_t first = 0; first < count; first += block) {
        const std::span<std::byte> raw = scratch.raw_of(0).first(std::min(block, count - first) * width);
        ATOLL_RETURN_IF_ERROR(read_elements(plan, of, first, raw, scratch));
        for (std::size_t at = 0; at * width < raw.size(); at += kTile) {
            const std::span<float> wide = std::span(scratch.wide).first(std::min(kTile, raw.size() / width - at));
            widen(place.dtype, wide.data(), &raw[at * width], wide.size());
            for (std::size_t i = 0; i < wide.size(); ++i) {
                if (!std::isfinite(wide[i])) {
                    if (of.model < plan.inputs.size()) report_fault(plan.options, of.model);
                    return non_finite(name, plan.model(of.model).name, first + at + i);
                }
                take(first + at + i, wide[i]);
            }
        }
    }
    return {};
}

Status read_a(const Plan& plan, const PlannedPair& pair, std::size_t model, std::span<float> columns,
              Scratch& scratch) {
    const PlannedPair::Model& from = pair.models[model];
    return read_values(plan, {model, from.a, pair.models.back().a}, pair.a, from.rank * pair.inputs, scratch,
                       [&](std::size_t at, float value) { columns[at] = value; });
}

Status read_b(const Plan& plan, const PlannedPair& pair, std::size_t model, std::span<float> columns,
              Scratch& scratch) {
    const PlannedPair::Model& from = pair.models[model];
    return read_values(
        plan, {model, from.b, pair.models.back().b}, pair.b, from.rank * pair.outputs, scratch,
        [&](std::size_t at, float value) { columns[at % from.rank * pair.outputs + at / from.rank] = value; });
}

// The first `count` models.
Result<AdapterPair> read_pair(const Plan& plan, const PlannedPair& pair, std::size_t count, Scratch& scratch) {
    AdapterPair read;
    std::size_t ranks = 0;
    for (std::size_t model = 0; model < count; ++model) {
        read.models.push_back({ranks, pair.models[model].rank});
        ranks += pair.models[model].rank;
    }
    read.a = TallMatrix(pair.inputs, ranks);
    read.b = TallMatrix(pair.outputs, ranks);
    for (std::size_t model = 0; model < count; ++model) {
        const std::size_t first = read.models[model].first;
        ATOLL_RETURN_IF_ERROR(
            read_a(plan, pair, model, std::span(read.a.values).subspan(first * pair.inputs), scratch));
        ATOLL_RETURN_IF_ERROR(
            read_b(plan, pair, model, std::span(read.b.values).subspan(first * pair.outputs), scratch));
    }
    return read;
}

double scale_of(const Plan& plan, const PlannedPair& pair, std::size_t model) {
    return plan.model(model).lora.of_rank(pair.models[model].rank);
}

// What of each model's B A is in the result's: its share, as far as its change counts, and of the base what is left.
std::vector<double> amounts_of(const Plan& plan, const PlannedPair& pair) {
    const double scale = scale_of(plan, pair, pair.layout);
    std::vector<double> amounts;
    double of_base = 0;
    for (std::size_t i = 0; i < plan.inputs.size(); ++i) {
        const double part = plan.factor(i, /*weighs_rows=*/false);
        of_base += plan.shares[i] * (1 - part);
        amounts.push_back(plan.shares[i] * part * (scale_of(plan, pair, i) / scale));
    }
    if (of_base > 0) amounts.push_back(of_base);
    return amounts;
}

std::vector<float> rows_of(const Matrix& matrix) {
    std::vector<float> values(matrix.values.size());
    for (std::size_t j = 0; j < matrix.columns; ++j)
        for (std::size_t i = 0; i < matrix.rows; ++i)
            values[i * matrix.columns + j] = static_cast<float>(matrix.column(j)[i]);
    return values;
}

Result<const Scratch::MadePair*> make_pair(const Plan& plan, std::size_t at, Scratch& scratch) {
    if (scratch.made_pair && scratch.made_pair->pair == at && scratch.made_pair->prepared == plan.prepared)
        return &*scratch.made_pair;
    scratch.made_pair.reset();
    const PlannedPair& pair = plan.pairs[at];
    std::vector<double> amounts = amounts_of(plan, pair);
    ATOLL_TRY(AdapterPair read, read_pair(plan, pair, amounts.size(), scratch));
    read.amounts = std::move(amounts);
    read.start_a = TallMatrix(pair.inputs, pair.start().rank);
    ATOLL_RETURN_IF_ERROR(read_a(plan, pair, pair.layout, read.start_a.values, scratch));
    const Nearest made = plan.strategy->combine_pair(read);
    scratch.made_pair = Scratch::MadePair{at,
                                          plan.prepared,
                                          {made.right.values.begin(), made.right.values.end()},
                                          rows_of(made.left),
                                          made.left_out,
                                          made.whole};
    return &*scratch.made_pair;
}

// Of the models' products, scaled: ⟨product i, product j⟩.
std::vector<double> scaled_products(const Plan& plan, const PlannedPair& pair, const AdapterPair& read) {
    std::vector<double> products = inner_products(read.b, read.a, read.models);
    const std::size_t count = read.models.size();
    for (std::size_t i = 0; i < count; ++i)
        for (std::size_t j = 0; j < count; ++j)
            products[i * count + j] *= scale_of(plan, pair, i) * scale_of(plan, pair, j);
    return products;
}

// Says which model makes a result that its type cannot hold.
Error blame(const Plan& plan, const Tensor& tensor, Scratch& scratch) {
    const PlannedPair& pair = plan.pairs[tensor.made];
    ATOLL_TRY(const AdapterPair read, read_pair(plan, pair, plan.inputs.size(), scratch));
    const std::vector<double> products = scaled_products(plan, pair, read);
    std::vector<double> norms;
    for (std::size_t i = 0; i < plan.inputs.size(); ++i)
        norms.push_back(std::sqrt(products[i * (plan.inputs.size() + 1)]));
    std::string why = "tensor " + in_quotes(tensor.info.name) + " of the adapter that the product makes overflows " +
                      safetensors::to_string(tensor.info.dtype);
    if (const auto outlier = find_outlier(norms)) {
        report_fault(plan.options, *outlier);
        why += "; " + plan.inputs[*outlier].name + " adds by far the most there";
    }
    return invalid_argument(tensor.info.name, why);
}

}  // namespace

Status make_factor(const Plan& plan, const Tensor& tensor, std::uint64_t first, std::span<std::byte> into,
                   Scratch& scratch) {
    ATOLL_TRY(const Scratch::MadePair* made, make_pair(plan, tensor.made, scratch));
    const auto width = static_cast<std::size_t>(safetensors::size_bytes(tensor.info.dtype));
    const std::span<const float> values =
        std::span(tensor.is_a ? made->a : made->b).subspan(first, into.size() / width);
    for (std::size_t at = 0; at < values.size(); at += kTile) {
        const std::span<const float> tile = values.subspan(at, std::min(kTile, values.size() - at));
        if (!round_into(tensor.info.dtype, &into[at * width], tile, std::span(scratch.wide).first(tile.size())))
            return blame(plan, tensor, scratch);
    }
    return {};
}

Status count_truncation(const Plan& plan, const Tensor& tensor, Scratch& scratch) {
    ATOLL_TRY(const Scratch::MadePair* made, make_pair(plan, tensor.made, scratch));
    scratch.truncation.left_out.add(made->left_out);
    scratch.truncation.whole.add(made->whole);
    return {};
}

namespace {

// What rounding may hide of a product's squares: it is small beside those of what is added up. Matrices that are huge
// and cancel one another have a product of nearly nothing, and would spoil whatever is made of them.
double hidden_squares(const Plan& plan, const PlannedPair& pair, const AdapterPair& read, std::size_t model) {
    constexpr double kRounding = 16 * std::numeric_limits<double>::epsilon();
    const double scale = scale_of(plan, pair, model);
    return kRounding * scale * scale * sum_of_squares(read.a, read.models[model]) *
           sum_of_squares(read.b, read.models[model]);
}

}  // namespace

Status measure_pair(const Plan& plan, const Tensor& tensor, std::span<ExactSum> sums, Scratch& scratch) {
    const PlannedPair& pair = plan.pairs[tensor.made];
    const std::size_t inputs = plan.inputs.size(), models = inputs + 1;
    ATOLL_TRY(const AdapterPair read, read_pair(plan, pair, models, scratch));
    const std::vector<double> products = scaled_products(plan, pair, read);
    const auto at = [&](std::size_t i, std::size_t j) { return products[i * models + j]; };
    // ⟨change i, change j⟩, a change being a model's product less the base's.
    const auto both = [&](std::size_t i, std::size_t j) {
        return at(i, j) - at(i, inputs) - at(inputs, j) + at(inputs, inputs);
    };
    for (std::size_t i = 0; i < inputs; ++i) {
        double with_others = 0, others = 0;
        for (std::size_t j = 0; j < inputs; ++j) {
            if (j == i) continue;
            with_others += both(i, j);
            for (std::size_t k = 0; k < inputs; ++k)
                if (k != i) others += both(j, k);
        }
        const std::span<ExactSum> own = sums.subspan(i * kSumsPerInput, kSumsPerInput);
        own[0].add(std::max(both(i, i), 0.0) + hidden_squares(plan, pair, read, i));
        own[1].add(with_others);
        own[2].add(std::max(others, 0.0));
    }
    const Columns& base = read.models[inputs];
    for (const TallMatrix* matrix : {&read.a, &read.b}) sums.back().add(sum_of_squares(*matrix, base));
    return {};
}

}  // namespace atl::aggregate
