#include "services/dispatch/domain/preparation_spec.h"

#include <algorithm>
#include <set>

#include "shared/base/text.h"
#include "shared/run_settings/input_formats.h"
#include "shared/service/names.h"

namespace atl::dispatch {

using json::Json;
using json::ObjectReader;
using service::required_name;

namespace {

constexpr std::size_t kPathsMax = 1000;  // they become arguments of one command at the site
constexpr std::size_t kInputBytesMax = 64 << 10;

// ".*" and ".[.]" match ".." too.
bool may_match_parent(std::string_view path) {
    return std::ranges::any_of(split(path, '/'), [](std::string_view part) {
        return part.starts_with('.') && part.find_first_of("*?[") != std::string_view::npos;
    });
}

// Without what a shell's completion leaves: "./texts//a/" is "texts/a".
std::string without_empty_parts(std::string_view path) {
    std::string normal;
    for (const std::string_view part : split(path, '/'))
        if (!part.empty() && part != ".") normal += (normal.empty() ? "" : "/") + std::string(part);
    return (path.starts_with('/') ? "/" : "") + normal;
}

bool is_safe_path(std::string_view path) {
    if (path != trim(path)) return false;  // "a, b": a path with a space would be waited for without end
    return service::is_safe_relative_path(path.starts_with('/') ? path.substr(1) : path) && !may_match_parent(path);
}

// Fails the member unless each of its paths may be given to a command at the site.
void read_paths(ObjectReader& reader, const char* key, std::string& input) {
    std::vector<std::string> paths = input_paths(input);
    if (paths.empty() || paths.size() > kPathsMax || input.size() > kInputBytesMax)
        return reader.fail(key, "must be 1 to 1,000 paths at the site, separated by commas");
    for (std::string& path : paths) {
        const std::string given = path;
        path = without_empty_parts(given);
        if (!is_safe_path(path))
            return reader.fail(key, "has " + in_quotes(given) +
                                        ", which is no path that can be used here: a path has at most 4096 characters, "
                                        "no white space at its ends, no \"..\" part and no pattern that begins with a "
                                        "dot");
    }
    input = join(paths, ",");
}

// Documents for validation: files of their own, or else a part of the input.
void read_validation(ObjectReader& reader, const Json& value, PreparationSpec& spec) {
    spec.validation_input = reader.string_or("validation_input", "");
    if (!value.contains("validation_input") || value["validation_input"].is_null()) {
        spec.validation_percent = reader.integer_or("validation_percent", 5, 1, 99);
        return;
    }
    read_paths(reader, "validation_input", spec.validation_input);
    const std::vector<std::string> trained = input_paths(spec.input);
    const std::set<std::string> input(trained.begin(), trained.end());
    for (const std::string& own : input_paths(spec.validation_input))
        for (std::size_t end = own.size(); end != std::string::npos && end > 0; end = own.rfind('/', end - 1))
            if (input.contains(own.substr(0, end)))
                reader.fail("validation_input", "has " + own + ", which input has too: it would be trained on");
    if (value.contains("validation_percent") && !value["validation_percent"].is_null())
        reader.fail("validation_percent", "cannot be given together with validation_input: leave out one of them");
    (void)reader.integer_or("validation_percent", 0, 0, 99);
}

}  // namespace

Result<PreparationSpec> parse_preparation_spec(const Json& value) {
    ObjectReader reader(value);
    PreparationSpec spec;
    spec.facility = required_name(reader, "facility");
    spec.dataset = required_name(reader, "dataset");
    const Json& tokenizer = reader.required_object("tokenizer");
    spec.input = reader.required_string("input");
    read_paths(reader, "input", spec.input);
    spec.input_format = reader.string_or("input_format", "auto");
    if (std::ranges::find(run_settings::kInputFormats, spec.input_format) == run_settings::kInputFormats.end())
        reader.fail("input_format", "must be one of " + join(run_settings::kInputFormats));
    spec.seq_len = reader.required_integer("seq_len", 2, 1 << 24);
    spec.batching = reader.one_of("batching", {"packing", "padding"}, "packing");
    read_validation(reader, value, spec);
    ATOLL_RETURN_IF_ERROR(reader.finish());
    ObjectReader tokenizer_reader(tokenizer, "tokenizer");
    spec.tokenizer_model = required_name(tokenizer_reader, "model");
    spec.tokenizer_version = tokenizer_reader.required_string("version");
    if (!service::is_version_name(spec.tokenizer_version)) tokenizer_reader.fail("version", service::kVersionNameRule);
    ATOLL_RETURN_IF_ERROR(tokenizer_reader.finish());
    return spec;
}

std::vector<std::string> input_paths(const std::string& input) {
    return split_list(input);
}

Json to_json(const PreparationSpec& spec) {
    Json value = {{"facility", spec.facility},
                  {"dataset", spec.dataset},
                  {"tokenizer", {{"model", spec.tokenizer_model}, {"version", spec.tokenizer_version}}},
                  {"input", spec.input},
                  {"seq_len", spec.seq_len},
                  {"batching", spec.batching},
                  {"validation_percent", spec.validation_percent}};
    if (!spec.validation_input.empty()) value["validation_input"] = spec.validation_input;
    if (spec.input_format != "auto") value["input_format"] = spec.input_format;
    return value;
}

}  // namespace atl::dispatch
