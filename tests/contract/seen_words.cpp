#include "tests/contract/seen_words.h"

#include "shared/service/testing/schema_check.h"

namespace atl::contract {
namespace {

using json::Json;

constexpr const char* kAlternatives[] = {"oneOf", "anyOf", "allOf"};

// A path as a part of a JSON pointer.
std::string escape(std::string path) {
    for (std::size_t at = 0; (at = path.find('/', at)) != std::string::npos; at += 2) path.replace(at, 1, "~1");
    return path;
}

// The schema of the JSON that a GET answers with, nullptr where it answers with none.
const Json* schema_of_get(const Json& item) {
    const auto get = item.find("get");
    if (get == item.end() || !get->at("responses").contains("200")) return nullptr;
    const Json& response = get->at("responses").at("200");
    const auto content = response.find("content");
    if (content == response.end() || !content->contains("application/json")) return nullptr;
    const Json& json = content->at("application/json");
    return json.contains("schema") ? &json.at("schema") : nullptr;
}

std::string place_of(const std::string& path) {
    return "#/paths/" + escape(path) + "/get";
}

std::string word_at(const std::string& place, const Json& word) {
    return place + ": " + (word.is_string() ? word.get<std::string>() : word.dump());
}

}  // namespace

const Json& SeenWords::resolve(const Json& schema, std::string& place) const {
    const auto reference = schema.find("$ref");
    if (reference == schema.end()) return schema;
    place = reference->get<std::string>();
    return document_.at(Json::json_pointer(place.substr(1)));
}

void SeenWords::look(const std::string& path, const Json& answer) {
    if (const Json* schema = schema_of_get(document_.at("paths").at(path))) collect(*schema, place_of(path), answer);
}

void SeenWords::collect(const Json& given, std::string place, const Json& value) {
    const Json& schema = resolve(given, place);
    if (schema.contains("enum") || schema.contains("const")) seen_.insert(word_at(place, value));
    for (const char* key : kAlternatives)
        for (const Json& one : schema.value(key, Json::array()))
            if (service::schema_faults(document_, one, value, "").empty()) collect(one, place, value);
    if (value.is_array() && schema.contains("items"))
        for (const Json& item : value) collect(schema.at("items"), place + "/items", item);
    if (!value.is_object()) return;
    const Json properties = schema.value("properties", Json::object());
    const Json others = schema.value("additionalProperties", Json());
    for (const auto& [key, member] : value.items()) {
        if (properties.contains(key))
            collect(properties.at(key), place + "/" + key, member);
        else if (others.is_object())
            collect(others, place + "/*", member);
    }
}

void SeenWords::expect(const Json& given, std::string place, std::set<std::string>& visited,
                       std::set<std::string>& wanted) const {
    const Json& schema = resolve(given, place);
    if (!visited.insert(place + "\n" + schema.dump()).second) return;
    for (const Json& word : schema.value("enum", Json::array()))
        if (!word.is_null()) wanted.insert(word_at(place, word));
    if (schema.contains("const")) wanted.insert(word_at(place, schema.at("const")));
    for (const char* key : kAlternatives)
        for (const Json& one : schema.value(key, Json::array())) expect(one, place, visited, wanted);
    if (schema.contains("items")) expect(schema.at("items"), place + "/items", visited, wanted);
    const Json properties = schema.value("properties", Json::object());
    for (const auto& [key, member] : properties.items()) expect(member, place + "/" + key, visited, wanted);
    const Json others = schema.value("additionalProperties", Json());
    if (others.is_object()) expect(others, place + "/*", visited, wanted);
}

std::set<std::string> SeenWords::unseen() const {
    std::set<std::string> wanted;
    std::set<std::string> visited;
    for (const auto& [path, item] : document_.at("paths").items())
        if (const Json* schema = schema_of_get(item)) expect(*schema, place_of(path), visited, wanted);
    for (const std::string& word : seen_) wanted.erase(word);
    return wanted;
}

}  // namespace atl::contract
