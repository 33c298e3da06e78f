#include "shared/service/testing/schema_check.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <set>

namespace atl::service {
namespace {

using json::Json;
using Faults = std::vector<std::string>;

// Those that say nothing about a value, and those that are looked at below.
const std::set<std::string> kKeywords = {"contentMediaType",
                                         "default",
                                         "description",
                                         "examples",
                                         "title",
                                         "$ref",
                                         "allOf",
                                         "oneOf",
                                         "type",
                                         "enum",
                                         "const",
                                         "pattern",
                                         "format",
                                         "minLength",
                                         "maxLength",
                                         "minimum",
                                         "maximum",
                                         "items",
                                         "minItems",
                                         "maxItems",
                                         "properties",
                                         "required",
                                         "additionalProperties"};

bool has_type(const Json& value, const std::string& type) {
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (type == "string") return value.is_string();
    if (type == "integer") return value.is_number_integer();
    if (type == "number") return value.is_number();
    if (type == "boolean") return value.is_boolean();
    return type == "null" && value.is_null();
}

bool has_one_type(const Json& value, const Json& types) {
    if (types.is_string()) return has_type(value, types);
    return std::any_of(types.begin(), types.end(), [&](const Json& type) { return has_type(value, type); });
}

std::size_t count_characters(const std::string& text) {
    const auto begins_character = [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; };
    return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins_character));
}

class SchemaChecker {
  public:
    SchemaChecker(const Json& document, Faults& faults) : document_(document), faults_(faults) {}

    void check(const Json& schema, const Json& value, const std::string& where) {
        check_fit(schema, value, where);
        if (!value.is_object()) return;
        std::set<std::string> described;
        if (is_open(schema, described)) return;
        for (const auto& member : value.items())
            if (!described.contains(member.key())) fault(where + "." + member.key(), "is not described");
    }

  private:
    void fault(const std::string& where, const std::string& what) { faults_.push_back(where + ": " + what); }

    // Collects the members that a schema names. True when it says itself what becomes of others, or names none.
    bool is_open(const Json& schema, std::set<std::string>& named) const {
        const Json properties = schema.value("properties", Json::object());
        for (const auto& member : properties.items()) named.insert(member.key());
        bool speaks_of_others = schema.contains("additionalProperties");
        for (const Json& part : find_parts(schema)) {
            is_open(part, named);
            speaks_of_others = speaks_of_others || part.contains("additionalProperties");
        }
        return speaks_of_others || named.empty();
    }

    // The schemas that stand for the same value as this one.
    std::vector<Json> find_parts(const Json& schema) const {
        std::vector<Json> parts;
        if (schema.contains("$ref"))
            if (const Json* target = resolve_reference(document_, schema)) parts.push_back(*target);
        for (const char* key : {"allOf", "oneOf"})
            for (const Json& part : schema.value(key, Json::array())) parts.push_back(part);
        return parts;
    }

    void check_fit(const Json& schema, const Json& value, const std::string& where) {
        for (const auto& [keyword, ignored] : schema.items())
            if (!kKeywords.contains(keyword)) fault(where, "its schema has the keyword " + keyword + ", unknown here");
        check_composition(schema, value, where);
        if (schema.contains("type") && !has_one_type(value, schema["type"]))
            return fault(where, "is " + value.dump() + ", not of type " + schema["type"].dump());
        if (schema.contains("const") && value != schema["const"]) fault(where, "is not " + schema["const"].dump());
        if (const Json values = schema.value("enum", Json(nullptr));
            values.is_array() && std::find(values.begin(), values.end(), value) == values.end())
            fault(where, "is " + value.dump() + ", none of " + values.dump());
        if (value.is_string()) check_text(schema, value.get<std::string>(), where);
        if (value.is_number()) check_number(schema, value.get<double>(), where);
        if (value.is_array()) check_array(schema, value, where);
        if (value.is_object()) check_object(schema, value, where);
    }

    void check_composition(const Json& schema, const Json& value, const std::string& where) {
        if (schema.contains("$ref")) {
            const Json* target = resolve_reference(document_, schema);
            if (target == nullptr) return fault(where, "its schema's $ref leads nowhere");
            check_fit(*target, value, where);
        }
        for (const Json& part : schema.value("allOf", Json::array())) check_fit(part, value, where);
        if (!schema.contains("oneOf")) return;
        const auto fits = [&](const Json& part) {
            Faults faults;
            SchemaChecker(document_, faults).check_fit(part, value, where);
            return faults.empty();
        };
        const auto count = std::count_if(schema["oneOf"].begin(), schema["oneOf"].end(), fits);
        if (count != 1) fault(where, "fits " + std::to_string(count) + " schemas of oneOf");
    }

    void check_text(const Json& schema, const std::string& text, const std::string& where) {
        static const std::regex date_time(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d))");
        if (const std::string format = schema.value("format", ""); !format.empty()) {
            if (format != "date-time")
                fault(where, "its schema has the format " + format + ", unknown here");
            else if (!std::regex_match(text, date_time))
                fault(where, "is \"" + text + "\", no date and time of RFC 3339");
        }
        if (schema.contains("pattern") && !std::regex_search(text, std::regex(schema["pattern"].get<std::string>())))
            fault(where, "is \"" + text + "\", unlike " + schema["pattern"].dump());
        const std::size_t length = count_characters(text);
        if (length < schema.value("minLength", std::size_t{0}) || length > schema.value("maxLength", SIZE_MAX))
            fault(where, "has " + std::to_string(length) + " characters");
    }

    void check_number(const Json& schema, double number, const std::string& where) {
        if (number < schema.value("minimum", number) || number > schema.value("maximum", number))
            fault(where, "is " + Json(number).dump() + ", outside its range");
    }

    void check_array(const Json& schema, const Json& values, const std::string& where) {
        if (values.size() < schema.value("minItems", std::size_t{0}) ||
            values.size() > schema.value("maxItems", SIZE_MAX))
            fault(where, "has " + std::to_string(values.size()) + " items");
        if (!schema.contains("items")) return;
        for (std::size_t i = 0; i < values.size(); ++i)
            check(schema["items"], values[i], where + "[" + std::to_string(i) + "]");
    }

    void check_object(const Json& schema, const Json& object, const std::string& where) {
        for (const Json& name : schema.value("required", Json::array()))
            if (!object.contains(name.get<std::string>())) fault(where + "." + name.get<std::string>(), "is missing");
        const Json properties = schema.value("properties", Json::object());
        const Json others = schema.value("additionalProperties", Json(true));
        for (const auto& [name, value] : object.items()) {
            const std::string at = where + "." + name;
            if (properties.contains(name)) {
                check(properties[name], value, at);
            } else if (others.is_object()) {
                check(others, value, at);
            } else if (others == false) {
                fault(at, "may not be there");
            }
        }
    }

    const Json& document_;
    Faults& faults_;
};

}  // namespace

std::vector<std::string> schema_faults(const Json& document, const Json& schema, const Json& value,
                                       const std::string& where) {
    Faults faults;
    SchemaChecker(document, faults).check(schema, value, where);
    return faults;
}

const Json* resolve_reference(const Json& document, const Json& object) {
    if (!object.contains("$ref")) return &object;
    const std::string reference = object["$ref"].get<std::string>();
    if (reference.rfind("#/", 0) != 0) return nullptr;
    const Json::json_pointer pointer(reference.substr(1));
    return document.contains(pointer) ? &document.at(pointer) : nullptr;
}

}  // namespace atl::service
