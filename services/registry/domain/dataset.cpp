#include "services/registry/domain/dataset.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>

#include "shared/digest/digest.h"
#include "shared/prompt/template.h"
#include "shared/run_settings/chat_templates.h"
#include "shared/service/names.h"

namespace atl::registry {
namespace {

constexpr std::size_t kLineBytesMax = 200;
constexpr std::size_t kTextBytesMax = 10000;
constexpr std::size_t kPathBytesMax = 1024;
constexpr std::size_t kWantedCopiesMax = 4096;
constexpr std::size_t kTokenizerFilesMax = 16;
constexpr std::size_t kStatisticsBytesMax = 65536;
constexpr std::int64_t kSeqLenMax = 1 << 20;
constexpr std::int64_t kCountMax = std::int64_t{1} << 50;

// The shape of a language tag (RFC 5646 section 2.1): a primary subtag of 2 to 3 letters, then subtags of 1 to 8
// letters or digits. Whether a subtag is registered is not checked.
bool is_language_tag(std::string_view tag) {
    for (bool first = true;; first = false) {
        const std::size_t end = std::min(tag.find('-'), tag.size());
        const std::string_view part = tag.substr(0, end);
        const bool letters =
            std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isalpha(c) != 0; });
        const bool alnum = std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isalnum(c) != 0; });
        if (first ? !letters || part.size() < 2 || part.size() > 3 : !alnum || part.empty() || part.size() > 8)
            return false;
        if (end == tag.size()) return true;
        tag.remove_prefix(end + 1);
    }
}

// What is wrong with a value, in the words of an error; empty: nothing.
using Fault = std::string (*)(const std::string&);

std::string fault_of_language(const std::string& text) {
    return is_language_tag(text) ? "" : "must be a BCP 47 language tag such as \"it\" or \"pt-BR\"";
}
std::string fault_of_license(const std::string& text) {
    return !text.empty() && text.size() <= kLineBytesMax ? "" : "must have 1 to 200 bytes";
}
std::string fault_of_text(const std::string& text) {
    return text.size() <= kTextBytesMax ? "" : "must have at most 10000 bytes";
}
// As atoll-trainer reads it at the facilities.
std::string fault_of_template(const std::string& text) {
    if (const auto chat = run_settings::chat_template_of(text))
        return run_settings::is_chat_template(*chat)
                   ? ""
                   : "must name a chat template: chat:auto, chatml, qwen2.5, llama3, llama2, mistral, gemma or zephyr";
    if (text.size() > kTextBytesMax) return fault_of_text(text);
    const auto parsed = prompt::Template::parse(text);
    return parsed.ok() ? "" : parsed.error().message;
}

std::string checked(json::ObjectReader& reader, const char* key, std::string value, Fault fault) {
    if (const std::string why = fault(value); !why.empty()) reader.fail(key, why);
    return value;
}

std::optional<std::string> optional_string(json::ObjectReader& reader, const json::Json& body, const char* key,
                                           Fault fault) {
    if (!body.contains(key)) return std::nullopt;
    return checked(reader, key, reader.required_string(key), fault);
}

std::string required_sha256(json::ObjectReader& reader, const char* key) {
    std::string text = reader.required_string(key);
    if (!digest::is_sha256(text)) reader.fail(key, "must be 64 lower-case hexadecimal characters");
    return text;
}

Result<SplitCounts> parse_split(const json::Json& value, const char* name, std::int64_t rows_min,
                                std::int64_t seq_len) {
    json::ObjectReader reader(value, name);
    SplitCounts counts;
    counts.documents = reader.required_integer("documents", 0, kCountMax);
    counts.rows = reader.required_integer("rows", rows_min, kCountMax);
    counts.tokens = reader.required_integer("tokens", rows_min, kCountMax);
    if (counts.rows < kCountMax / seq_len && counts.tokens > counts.rows * seq_len)
        reader.fail("tokens", "must be at most rows times seq_len");
    ATOLL_RETURN_IF_ERROR(reader.finish());
    return counts;
}

// {"tokenizer.json": "<sha256>", …}
json::Json required_digests(json::ObjectReader& reader, const char* key) {
    const json::Json& files = reader.required_object(key);
    if (files.size() > kTokenizerFilesMax) reader.fail(key, "names more files than a tokenizer has");
    for (const auto& [file, sha256] : files.items())
        if (!sha256.is_string() || !digest::is_sha256(sha256.get<std::string>()) || file.size() > kLineBytesMax)
            reader.fail(key, "must give a sha256 for each file");
    return files;
}

Result<json::Json> parse_tokenizer_files(const json::Json& value, bool names_model) {
    if (value.is_null()) return json::Json();
    json::ObjectReader reader(value, "tokenizer");
    json::Json files = {{"vocabulary", required_digests(reader, "vocabulary")},
                        {"settings", required_digests(reader, "settings")}};
    if (names_model) {
        files["model"] = service::required_name(reader, "model");
        files["version"] = required_sha256(reader, "version");
    }
    ATOLL_RETURN_IF_ERROR(reader.finish());
    return files;
}

bool holds_only_numbers(const json::Json& value) {
    if (value.is_structured()) return std::all_of(value.begin(), value.end(), holds_only_numbers);
    return value.is_number() || value.is_boolean() || value.is_null();
}

// The names of members are texts as well: short identifiers only.
bool has_only_plain_keys(const json::Json& value) {
    if (value.is_object())
        for (const auto& [key, child] : value.items())
            if (!service::is_name(key)) return false;
    return !value.is_structured() || std::all_of(value.begin(), value.end(), has_only_plain_keys);
}

}  // namespace

std::vector<std::string> fields_of(const std::string& template_text) {
    if (run_settings::chat_template_of(template_text)) return {"messages"};
    const auto parsed = prompt::Template::parse(template_text);
    return parsed.ok() ? parsed->fields() : std::vector<std::string>();
}

Result<DatasetSpec> parse_dataset(const json::Json& body) {
    json::ObjectReader reader(body);
    DatasetSpec spec;
    spec.name = service::required_name(reader, "name");
    spec.language = checked(reader, "language", reader.required_string("language"), fault_of_language);
    spec.license = checked(reader, "license", reader.required_string("license"), fault_of_license);
    spec.description = checked(reader, "description", reader.string_or("description", ""), fault_of_text);
    spec.template_text = checked(reader, "template", reader.required_string("template"), fault_of_template);
    spec.source = checked(reader, "source", reader.string_or("source", ""), fault_of_text);
    ATOLL_RETURN_IF_ERROR(reader.finish());
    return spec;
}

Result<DatasetPatch> parse_patch(const json::Json& body) {
    json::ObjectReader reader(body);
    DatasetPatch patch;
    if (body.is_object()) {
        patch.language = optional_string(reader, body, "language", fault_of_language);
        patch.license = optional_string(reader, body, "license", fault_of_license);
        patch.description = optional_string(reader, body, "description", fault_of_text);
        patch.template_text = optional_string(reader, body, "template", fault_of_template);
        patch.source = optional_string(reader, body, "source", fault_of_text);
    }
    ATOLL_RETURN_IF_ERROR(reader.finish());
    return patch;
}

bool changes_meaning(const DatasetSpec& dataset, const DatasetPatch& patch) {
    return patch.template_text.value_or(dataset.template_text) != dataset.template_text ||
           patch.language.value_or(dataset.language) != dataset.language;
}

DatasetSpec patched(DatasetSpec dataset, const DatasetPatch& patch) {
    if (patch.language) dataset.language = *patch.language;
    if (patch.license) dataset.license = *patch.license;
    if (patch.description) dataset.description = *patch.description;
    if (patch.template_text) dataset.template_text = *patch.template_text;
    if (patch.source) dataset.source = *patch.source;
    return dataset;
}

namespace {

Result<std::optional<DatasetIdentity>> parse_identity(const json::Json& value) {
    if (value.is_null()) return std::optional<DatasetIdentity>();
    json::ObjectReader reader(value, "prepared_for");
    DatasetIdentity identity;
    identity.created_by = reader.required_string("created_by");
    identity.created_at = reader.required_string("created_at");
    identity.language = reader.required_string("language");
    identity.template_text = reader.required_string("template");
    ATOLL_RETURN_IF_ERROR(reader.finish());
    return std::optional(std::move(identity));
}

}  // namespace

Result<VersionSpec> parse_version(const json::Json& body) {
    json::ObjectReader reader(body);
    VersionSpec spec;
    spec.tokenizer_sha256 = required_sha256(reader, "tokenizer_sha256");
    spec.seq_len = reader.required_integer("seq_len", 1, kSeqLenMax);
    spec.batching = reader.required_string("batching");
    if (spec.batching != "packing" && spec.batching != "padding")
        reader.fail("batching", "must be \"packing\" or \"padding\"");
    const json::Json& train = reader.required_object("train");
    const json::Json& validation = reader.required_object("validation");
    spec.fingerprint = required_sha256(reader, "fingerprint");
    const json::Json& statistics = reader.object_or_null("statistics");
    const json::Json& tokenizer = reader.object_or_null("tokenizer");
    const json::Json& prepared_for = reader.object_or_null("prepared_for");
    spec.tokenizer_reader = reader.integer_or("tokenizer_reader", 0, 0, INT32_MAX);
    ATOLL_RETURN_IF_ERROR(reader.finish());
    ATOLL_TRY(spec.prepared_for, parse_identity(prepared_for));
    ATOLL_TRY(spec.tokenizer, parse_tokenizer_files(tokenizer, /*names_model=*/true));
    ATOLL_TRY(spec.train, parse_split(train, "train", 1, spec.seq_len));
    ATOLL_TRY(spec.validation, parse_split(validation, "validation", 0, spec.seq_len));
    spec.statistics = statistics.is_null() ? json::Json::object() : statistics;
    if (!holds_only_numbers(spec.statistics) || !has_only_plain_keys(spec.statistics) ||
        spec.statistics.dump().size() > kStatisticsBytesMax)
        return invalid_argument("statistics",
                                "must hold numbers under plain names, at most 64 KiB; texts stay at the "
                                "facility");
    return spec;
}

json::Json to_json(const VersionSpec& spec) {
    const auto split = [](const SplitCounts& counts) -> json::Json {
        return {{"documents", counts.documents}, {"rows", counts.rows}, {"tokens", counts.tokens}};
    };
    return {{"tokenizer_sha256", spec.tokenizer_sha256},
            {"tokenizer", spec.tokenizer},
            {"tokenizer_reader", spec.tokenizer_reader},
            {"seq_len", spec.seq_len},
            {"batching", spec.batching},
            {"train", split(spec.train)},
            {"validation", split(spec.validation)},
            {"fingerprint", spec.fingerprint},
            {"statistics", spec.statistics}};
}

Result<CopySpec> parse_copy(const json::Json& body) {
    json::ObjectReader reader(body);
    CopySpec spec;
    spec.path = reader.required_string("path");
    spec.fingerprint = reader.string_or("fingerprint", "");
    if (!service::is_safe_relative_path(spec.path) || spec.path.size() > kPathBytesMax)
        reader.fail("path", "must be relative to the facility's work directory, without empty, \".\" or \"..\" parts");
    ATOLL_RETURN_IF_ERROR(reader.finish());
    return spec;
}

Result<WantedCopies> parse_wanted_copies(const json::Json& body) {
    json::ObjectReader reader(body);
    WantedCopies wanted;
    const json::Json& list = reader.required_array("copies");
    if (list.size() > kWantedCopiesMax) reader.fail("copies", "must be at most " + std::to_string(kWantedCopiesMax));
    const json::Json& tokenizer = reader.object_or_null("tokenizer");
    wanted.tokenizer_reader = reader.integer_or("tokenizer_reader", 0, 0, INT32_MAX);
    ATOLL_RETURN_IF_ERROR(reader.finish());
    ATOLL_TRY(wanted.tokenizer, parse_tokenizer_files(tokenizer, /*names_model=*/false));
    for (std::size_t i = 0; i < list.size(); ++i) {
        json::ObjectReader item(list[i], "copies[" + std::to_string(i) + "]");
        WantedCopy copy;
        copy.dataset = service::required_name(item, "dataset");
        copy.facility = service::required_name(item, "facility");
        copy.version = item.integer_or("version", 0, 1, INT32_MAX);
        ATOLL_RETURN_IF_ERROR(item.finish());
        wanted.copies.push_back(std::move(copy));
    }
    return wanted;
}

Result<std::int64_t> parse_version_number(const std::string& text) {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size() || number < 1 || number > INT32_MAX)
        return invalid_argument("version", "must be a number from 1");
    return number;
}

}  // namespace atl::registry
