#include "services/dispatch/domain/training_settings.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <map>
#include <string_view>
#include <vector>

#include "shared/base/spelling.h"
#include "shared/run_settings/run_settings.h"

namespace atl::dispatch {
namespace {

using json::Json;

// key -> its row of the trainer's table: {"key", "type", "min", "max", "choices", "built", "needs"}.
const std::map<std::string, Json>& table() {
    static const std::map<std::string, Json> rows = [] {
        std::map<std::string, Json> by_key;
        const Json list = json::parse(run_settings::table_json()).value();
        for (const Json& row : list) by_key[row.at("key")] = row;
        return by_key;
    }();
    return rows;
}

// Why a key of the trainer's is not a job's; empty: it is.
std::string_view not_of_a_job(std::string_view key) {
    for (const std::string_view own : {"model", "data", "out", "val_data", "resume", "overwrite", "adapter"})
        if (key == own) return "is set by dispatch, not by a job";
    if (key == "offload_dir") return "is the site's: set TMPDIR in the facility's environment";
    if (key.starts_with("lora_")) return "adapters as updates of a federation are not built yet";
    return {};
}

// A quantised base is frozen under adapters.
bool needs_adapters(std::string_view key, const Json& value) {
    return key == "quantize" && value != "none";
}

// Only what a job may set.
std::string near_key(const std::string& key) {
    std::vector<std::string> keys;
    for (const auto& [known, row] : table())
        if (not_of_a_job(known).empty()) keys.push_back(known);
    return did_you_mean(key, keys);
}

std::string text_of(const Json& value) {
    return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string list_of(const Json& texts) {
    std::string list;
    for (const Json& text : texts)
        list += (list.empty() ? "" : ", ") + (text == "" ? std::string("(empty)") : text.get<std::string>());
    return list;
}

std::string number_text(double number) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", number);
    return text;
}

bool has_type(const std::string& type, const Json& value) {
    if (type == "integer") return value.is_number_integer();
    if (type == "number") return value.is_number();
    return type == "boolean" ? value.is_boolean() : value.is_string();
}

const char* type_name(const std::string& type) {
    if (type == "integer") return "must be an integer";
    if (type == "number") return "must be a number";
    return type == "boolean" ? "must be true or false" : "must be a string";
}

// Of texts by their letters, of numbers by their value.
bool is_built(const Json& built, const Json& value) {
    return std::any_of(built.begin(), built.end(), [&](const Json& one) {
        const std::string& text = one.get_ref<const std::string&>();
        if (!value.is_number()) return text_of(value) == text;
        double number = 0;
        std::from_chars(text.data(), text.data() + text.size(), number);
        return number == value.get<double>();
    });
}

Status check_value(const Json& row, const Json& value, const std::string& field) {
    const std::string& type = row.at("type").get_ref<const std::string&>();
    if (!has_type(type, value)) return invalid_argument(field, type_name(type));
    const Json built = row.value("built", row.value("choices", Json::array()));
    if (!built.empty() && !is_built(built, value)) {
        const Json choices = row.value("choices", Json::array());
        const bool is_known = choices.empty() || std::find(choices.begin(), choices.end(), value) != choices.end();
        return invalid_argument(field, (is_known ? "'" + text_of(value) + "' is not built yet; the trainer has: "
                                                 : std::string("must be one of ")) +
                                           list_of(built));
    }
    if (!row.contains("min")) return {};
    const double number = value.get<double>();
    const double min = row["min"];
    const double max = row["max"];
    if (!std::isfinite(number) || number < min || number > max)
        return invalid_argument(field, "must be from " + number_text(min) + " to " + number_text(max));
    return {};
}

// The settings of one training, with the names of the fields where they stand.
class Together {
  public:
    Together(const Json& settings, const Json& overrides, std::int64_t ranks, const std::string& path)
        : settings_(settings), overrides_(overrides), ranks_(ranks), path_(path) {}

    Status check() const {
        ATOLL_RETURN_IF_ERROR(check_length());
        ATOLL_RETURN_IF_ERROR(check_needs());
        ATOLL_RETURN_IF_ERROR(check_batch());
        return check_groups();
    }

  private:
    std::int64_t integer(const char* key) const { return settings_.value(key, std::int64_t{0}); }
    std::string ranks_text() const { return std::to_string(ranks_) + (ranks_ == 1 ? " rank" : " ranks"); }

    Status wrong(const std::string& key, const std::string& what) const {
        const bool is_own = overrides_.is_object() && overrides_.contains(key);
        const std::string field = (is_own ? path_ : "training") + "." + key;
        return invalid_argument(field, what);
    }

    Status check_length() const {
        if (integer("steps") > 0 && integer("epochs") > 0) return wrong("epochs", "give steps or epochs, not both");
        if (integer("steps") == 0 && integer("epochs") == 0)
            return wrong("steps", "say how long each round trains: steps or epochs, at least 1");
        if (integer("steps") > 0 && integer("warmup_steps") > integer("steps"))
            return wrong("warmup_steps", "are more than the " + std::to_string(integer("steps")) + " steps of a round");
        return {};
    }

    // A setting that means nothing unless another one has a certain value (any, where none is said).
    Status check_needs() const {
        for (const auto& [key, value] : settings_.items()) {
            const auto row = table().find(key);
            if (row == table().end() || !row->second.contains("needs")) continue;
            const std::string other = row->second["needs"][0], needed = row->second["needs"][1];
            const Json choices = table().at(other).value("choices", Json::array({""}));
            const std::string is = settings_.value(other, choices[0].get<std::string>());
            if (needed.empty() ? !is.empty() : is == needed) continue;
            return wrong(key, "means nothing without " + other + (needed.empty() ? "" : " " + needed));
        }
        return {};
    }

    // Rows of a step = ranks × grad_accum × batch_size, whichever of them are given.
    Status check_batch() const {
        const std::int64_t global = integer("global_batch_size");
        if (global == 0) return {};
        if (global % ranks_ != 0)
            return wrong("global_batch_size", std::to_string(global) + " rows do not divide over " + ranks_text());
        const std::int64_t of_rank = global / ranks_;
        const std::int64_t micro = integer("batch_size");
        const std::int64_t accumulation = integer("grad_accum");
        const bool fits = micro > 0 && accumulation > 0
                              ? micro <= of_rank && accumulation == of_rank / micro && of_rank % micro == 0
                              : of_rank % std::max<std::int64_t>({micro, accumulation, 1}) == 0;
        if (fits) return {};
        return wrong("global_batch_size", std::to_string(global) + " rows over " + ranks_text() + " are " +
                                              std::to_string(of_rank) +
                                              " a rank, which is not batch_size × grad_accum");
    }

    Status check_groups() const {
        const std::int64_t group = integer("shard_group");
        if (group == 0) return {};
        if (!settings_.value("sharding", "none").starts_with("hybrid_"))
            return wrong("shard_group", "belongs to the shardings hybrid_shard and hybrid_shard_zero2");
        if (group <= ranks_ && ranks_ % group == 0) return {};
        return wrong("shard_group", ranks_text() + " do not divide into groups of " + std::to_string(group));
    }

    const Json& settings_;
    const Json& overrides_;
    std::int64_t ranks_;
    const std::string& path_;
};

}  // namespace

Status check_training_settings(const Json& settings, const std::string& path) {
    if (settings.is_null()) return {};
    if (!settings.is_object()) return invalid_argument(path, "must be an object");
    for (const auto& [key, value] : settings.items()) {
        const std::string field = path + "." + key;
        const auto row = table().find(key);
        if (row == table().end()) return invalid_argument(field, "the trainer has no such setting" + near_key(key));
        if (const auto why = not_of_a_job(key); !why.empty()) return invalid_argument(field, std::string(why));
        ATOLL_RETURN_IF_ERROR(check_value(row->second, value, field));
        if (needs_adapters(key, value)) return invalid_argument(field, std::string(not_of_a_job("lora_rank")));
    }
    return {};
}

Status check_training_together(const Json& settings, const Json& overrides, std::int64_t ranks,
                               const std::string& path) {
    return Together(settings, overrides, ranks, path).check();
}

Json merge_training_settings(Json base, const Json& overrides) {
    if (base.is_null()) base = Json::object();
    if (overrides.is_object()) base.update(overrides);
    return base;
}

}  // namespace atl::dispatch
