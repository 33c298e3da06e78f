#include <algorithm>
#include <cmath>
#include <numbers>
#include <string_view>
#include <vector>

#include "trainer/model/batch.h"
#include "trainer/model/config.h"
#include "trainer/model/config_reader.h"

namespace atl::model {
namespace {

constexpr std::string_view kBuilt = "default, linear, dynamic and llama3 are";

void parse_kind(ConfigReader& reader, const std::string& kind, const ModelConfig& config, RopeConfig& rope) {
    if (kind == "default") return;
    if (kind == "linear") {
        rope.kind = RopeKind::kLinear;
    } else if (kind == "dynamic") {
        rope.kind = RopeKind::kDynamic;
        if (config.head_dim <= 2) reader.fail("rope_type", "'dynamic' needs a head_dim above 2");
    } else if (kind == "llama3") {
        rope.kind = RopeKind::kLlama3;
        rope.low_freq_factor = reader.positive("low_freq_factor", std::nullopt);
        rope.high_freq_factor = reader.positive("high_freq_factor", std::nullopt);
        rope.original_max_position_embeddings =
            reader.integer("original_max_position_embeddings", config.max_position_embeddings, 1, INT64_C(1) << 40);
        if (rope.high_freq_factor <= rope.low_freq_factor)
            reader.fail("high_freq_factor", "must exceed low_freq_factor");
    } else {
        return reader.fail("rope_type", "'" + kind + "' is not built: " + std::string(kBuilt));
    }
    rope.factor = reader.positive("factor", std::nullopt);
}

// `object` is rope_parameters, or rope_scaling with rope_theta beside it.
Result<RopeConfig> parse_object(const Json& object, const char* key, double theta, const ModelConfig& config) {
    if (!object.is_object()) return invalid_argument(key, "must be an object");
    ConfigReader reader(object, std::string(key) + ".");
    RopeConfig rope;
    rope.theta = reader.positive("rope_theta", theta);
    const std::string kind = reader.text("rope_type", reader.text("type", "default"));
    parse_kind(reader, kind, config, rope);
    std::vector<std::string_view> used = {"rope_type", "type", "rope_theta", "original_max_position_embeddings"};
    if (rope.kind != RopeKind::kDefault) used.push_back("factor");
    if (rope.kind == RopeKind::kLlama3) used.insert(used.end(), {"low_freq_factor", "high_freq_factor"});
    for (const auto& [name, value] : object.items()) {
        const bool neutral = name == "partial_rotary_factor" && value.is_number() && value.get<double>() == 1.0;
        if (std::find(used.begin(), used.end(), name) == used.end() && !neutral && !value.is_null()) {
            reader.fail(name.c_str(), "is not built for rope type '" + kind + "'");
        }
    }
    ATOLL_RETURN_IF_ERROR(reader.status());
    return rope;
}

// Llama 3's: high frequencies stay, low ones are divided by the factor, those between are blended.
double llama3_frequency(double frequency, const RopeConfig& rope) {
    const double old_length = static_cast<double>(rope.original_max_position_embeddings);
    const double wavelength = 2.0 * std::numbers::pi / frequency;
    if (wavelength < old_length / rope.high_freq_factor) return frequency;
    if (wavelength > old_length / rope.low_freq_factor) return frequency / rope.factor;
    const double smooth =
        (old_length / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
    return (1.0 - smooth) * frequency / rope.factor + smooth * frequency;
}

// Dynamic NTK: beyond the context of pretraining the base grows with the length, so that low frequencies are stretched
// and high ones stay.
double dynamic_theta(const ModelConfig& config, std::int64_t length) {
    const double stretch = static_cast<double>(std::max(length, config.max_position_embeddings)) /
                           static_cast<double>(config.max_position_embeddings);
    const double channels = static_cast<double>(config.head_dim);
    const double growth = config.rope.factor * stretch - (config.rope.factor - 1.0);
    return config.rope.theta * std::pow(growth, channels / (channels - 2.0));
}

}  // namespace

Result<RopeConfig> parse_rope(ConfigReader& reader, const ModelConfig& config) {
    const double theta = reader.positive("rope_theta", 10000.0);
    if (reader.has("rope_parameters") && reader.has("rope_scaling") &&
        reader.at("rope_parameters") != reader.at("rope_scaling")) {
        return invalid_argument("rope_scaling", "differs from rope_parameters: keep one of the two");
    }
    for (const char* key : {"rope_parameters", "rope_scaling"}) {
        if (reader.has(key)) return parse_object(reader.at(key), key, theta, config);
    }
    RopeConfig rope;
    rope.theta = theta;
    return rope;
}

std::vector<float> ModelConfig::rope_frequencies(std::int64_t length) const {
    const double theta = rope.kind == RopeKind::kDynamic ? dynamic_theta(*this, length) : rope.theta;
    std::vector<float> frequencies;
    for (std::int64_t pair = 0; pair < head_dim / 2; ++pair) {
        double frequency = std::pow(theta, -2.0 * static_cast<double>(pair) / static_cast<double>(head_dim));
        if (rope.kind == RopeKind::kLinear) frequency /= rope.factor;
        if (rope.kind == RopeKind::kLlama3) frequency = llama3_frequency(frequency, rope);
        frequencies.push_back(static_cast<float>(frequency));
    }
    return frequencies;
}

std::vector<float> make_rope_table(const ModelConfig& config, std::int64_t begin, std::int64_t end) {
    const std::vector<float> frequencies = config.rope_frequencies(end);
    std::vector<float> table(static_cast<std::size_t>((end - begin) * config.head_dim));
    float* row = table.data();
    for (std::int64_t position = begin; position < end; ++position, row += config.head_dim) {
        for (std::size_t i = 0; i < frequencies.size(); ++i) {
            // In fp32, as transformers multiplies; so the angles of far positions agree.
            const float angle = static_cast<float>(position) * frequencies[i];
            row[i] = std::cos(angle);
            row[frequencies.size() + i] = std::sin(angle);
        }
    }
    return table;
}

}  // namespace atl::model
