#include <algorithm>
#include <cmath>
#include <numbers>
#include <string_view>
#include <vector>

#include "shared/model_config/config_reader.h"

namespace atl::model_config {
namespace {

constexpr std::string_view kBuilt = "default, linear, dynamic, llama3 and yarn are";

std::int64_t parse_old_length(ConfigReader& reader, const ModelConfig& config) {
    return reader.integer("original_max_position_embeddings", config.max_position_embeddings, 1, INT64_C(1) << 40);
}

// How much YaRN sharpens attention at this factor: the square root of 1/t in section 3.4 of the paper.
double yarn_sharpness(double factor, double mscale) {
    return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

// A factor that is null follows from the lengths, as in transformers.
double parse_yarn_factor(ConfigReader& reader, const ModelConfig& config, const RopeConfig& rope) {
    std::optional<double> from_lengths;
    if (reader.is_null("factor"))
        from_lengths = static_cast<double>(config.max_position_embeddings) /
                       static_cast<double>(rope.original_max_position_embeddings);
    return reader.positive("factor", from_lengths);
}

void parse_yarn(ConfigReader& reader, const ModelConfig& config, RopeConfig& rope) {
    rope.kind = RopeKind::kYarn;
    rope.original_max_position_embeddings = parse_old_length(reader, config);
    rope.beta_fast = reader.positive("beta_fast", rope.beta_fast);
    rope.beta_slow = reader.positive("beta_slow", rope.beta_slow);
    rope.truncate = reader.boolean("truncate", true);
    if (reader.is_null("truncate")) reader.fail("truncate", "must be true or false");  // transformers: false
    // Another way to write attention_factor, which transformers passes over and vLLM multiplies with.
    if (reader.positive("attn_factor", 1.0) != 1.0)
        reader.fail("attn_factor", "is not 1, and programs differ in what it means: give attention_factor instead");
    rope.factor = parse_yarn_factor(reader, config, rope);
    const double factor = rope.factor;
    const double above = reader.positive("mscale", 1.0), below = reader.positive("mscale_all_dim", 1.0);
    // As in transformers one of the two alone means nothing.
    const bool both = reader.has("mscale") && reader.has("mscale_all_dim");
    const double sharpness =
        both ? yarn_sharpness(factor, above) / yarn_sharpness(factor, below) : yarn_sharpness(factor, 1.0);
    rope.attention_factor = reader.positive("attention_factor", sharpness);
    if (rope.beta_fast < rope.beta_slow) reader.fail("beta_fast", "must not be below beta_slow");
    if (rope.theta <= 1.0) reader.fail("rope_theta", "must be above 1 for rope type 'yarn'");
}

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
        rope.original_max_position_embeddings = parse_old_length(reader, config);
        if (rope.high_freq_factor <= rope.low_freq_factor)
            reader.fail("high_freq_factor", "must exceed low_freq_factor");
    } else if (kind == "yarn") {
        return parse_yarn(reader, config, rope);
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
    if (rope.kind == RopeKind::kYarn)
        used.insert(used.end(), {"beta_fast", "beta_slow", "attention_factor", "attn_factor", "mscale",
                                 "mscale_all_dim", "truncate", "finetuned"});  // the last one is a note
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

// The pair of channels that turns so many times over the context of pretraining; not a whole number.
double yarn_pair(const ModelConfig& config, double rotations) {
    const double old_length = static_cast<double>(config.rope.original_max_position_embeddings);
    return static_cast<double>(config.head_dim) * std::log(old_length / (rotations * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(config.rope.theta));
}

// YaRN's (Peng et al., arXiv:2309.00071): pairs that turn beta_fast times or more stay, those that turn beta_slow times
// or less are divided by the factor, those between are blended by their number.
double yarn_frequency(double frequency, std::int64_t pair, const ModelConfig& config) {
    const RopeConfig& rope = config.rope;
    double first = yarn_pair(config, rope.beta_fast), last = yarn_pair(config, rope.beta_slow);
    if (rope.truncate) first = std::floor(first), last = std::ceil(last);
    first = std::max(first, 0.0);
    last = std::min(last, static_cast<double>(config.head_dim - 1));
    if (first == last) last += 0.001;
    const double divided = std::clamp((static_cast<double>(pair) - first) / (last - first), 0.0, 1.0);
    return frequency / rope.factor * divided + frequency * (1.0 - divided);
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
        return invalid_argument("rope_scaling", "conflicts with rope_parameters: remove one of them");
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
        if (rope.kind == RopeKind::kYarn) frequency = yarn_frequency(frequency, pair, *this);
        frequencies.push_back(static_cast<float>(frequency));
    }
    return frequencies;
}

}  // namespace atl::model_config
