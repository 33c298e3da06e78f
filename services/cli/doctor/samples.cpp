#include "services/cli/doctor/samples.h"

#include <cstdlib>
#include <optional>

#include "shared/base/text.h"

namespace atl::cli {
namespace {

// From `at`, behind the opening quote, to behind the closing one; nothing: there is none.
std::optional<std::string> read_quoted(std::string_view line, std::size_t& at) {
    std::string value;
    for (; at < line.size() && line[at] != '"'; ++at) {
        if (line[at] == '\\' && at + 1 < line.size()) ++at;
        value += line[at] == 'n' && line[at - 1] == '\\' ? '\n' : line[at];
    }
    if (at == line.size()) return std::nullopt;
    ++at;
    return value;
}

// name="value",… from `at`, behind the brace, to behind the closing one.
bool read_labels(std::string_view line, std::size_t& at, Sample& sample) {
    while (at < line.size() && line[at] != '}') {
        const auto equals = line.find("=\"", at);
        if (equals == std::string_view::npos) return false;
        const std::string name(line.substr(at, equals - at));
        at = equals + 2;
        auto value = read_quoted(line, at);
        if (!value) return false;
        sample.labels[name] = std::move(*value);
        if (at < line.size() && line[at] == ',') ++at;
    }
    return at++ < line.size();
}

std::optional<Sample> read_sample(std::string_view line) {
    Sample sample;
    std::size_t at = line.find_first_of("{ ");
    if (line.empty() || line[0] == '#' || at == std::string_view::npos) return std::nullopt;
    sample.metric = line.substr(0, at);
    if (line[at++] == '{' && !read_labels(line, at, sample)) return std::nullopt;
    const std::string rest(line.substr(std::min(at, line.size())));
    char* end = nullptr;
    sample.value = std::strtod(rest.c_str(), &end);
    return end == rest.c_str() ? std::nullopt : std::optional(sample);
}

}  // namespace

std::vector<Sample> read_samples(std::string_view exposition) {
    std::vector<Sample> samples;
    for (const std::string_view line : split(exposition, '\n'))
        if (auto sample = read_sample(line)) samples.push_back(std::move(*sample));
    return samples;
}

}  // namespace atl::cli
