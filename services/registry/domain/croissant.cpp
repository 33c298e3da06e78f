#include "services/registry/domain/croissant.h"

#include <nlohmann/json.hpp>
#include <string>

namespace atl::registry {
namespace {

using json::Json;

// The context that the specification prescribes.
Json context() {
    return {{"@language", "en"},
            {"@vocab", "https://schema.org/"},
            {"citeAs", "cr:citeAs"},
            {"column", "cr:column"},
            {"conformsTo", "dct:conformsTo"},
            {"cr", "http://mlcommons.org/croissant/"},
            {"data", {{"@id", "cr:data"}, {"@type", "@json"}}},
            {"dataType", {{"@id", "cr:dataType"}, {"@type", "@vocab"}}},
            {"dct", "http://purl.org/dc/terms/"},
            {"extract", "cr:extract"},
            {"field", "cr:field"},
            {"fileObject", "cr:fileObject"},
            {"fileProperty", "cr:fileProperty"},
            {"fileSet", "cr:fileSet"},
            {"format", "cr:format"},
            {"includes", "cr:includes"},
            {"isLiveDataset", "cr:isLiveDataset"},
            {"jsonPath", "cr:jsonPath"},
            {"key", "cr:key"},
            {"md5", "cr:md5"},
            {"parentField", "cr:parentField"},
            {"path", "cr:path"},
            {"rai", "http://mlcommons.org/croissant/RAI/"},
            {"recordSet", "cr:recordSet"},
            {"references", "cr:references"},
            {"regex", "cr:regex"},
            {"repeated", "cr:repeated"},
            {"replace", "cr:replace"},
            {"sc", "https://schema.org/"},
            {"separator", "cr:separator"},
            {"source", "cr:source"},
            {"subField", "cr:subField"},
            {"transform", "cr:transform"}};
}

Json property(const char* name, const Json& value) {
    return {{"@type", "sc:PropertyValue"}, {"name", name}, {"value", value}};
}

Json token_files(const Json& version) {
    const std::string urn = "urn:atoll:dataset:" + version["dataset"].get<std::string>() + ":" +
                            std::to_string(version["version"].get<std::int64_t>());
    return {{"@type", "cr:FileObject"},
            {"@id", "tokens"},
            {"name", "tokens"},
            {"description", "The token files, train and validation; they stay at the facilities that hold a copy."},
            {"contentUrl", urn},
            {"encodingFormat", "application/x-safetensors"},
            {"sha256", version["fingerprint"]}};
}

Json rows() {
    return {{"@type", "cr:RecordSet"},
            {"@id", "rows"},
            {"name", "rows"},
            {"description", "One record a training sequence of seq_len tokens."},
            {"field",
             {{{"@type", "cr:Field"},
               {"@id", "rows/input_ids"},
               {"name", "rows/input_ids"},
               {"description", "Token numbers."},
               {"dataType", "sc:Integer"},
               {"repeated", true},
               {"source", {{"fileObject", {{"@id", "tokens"}}}, {"extract", {{"column", "input_ids"}}}}}}}}};
}

Json properties(const Json& dataset, const Json& version) {
    Json list = {property("template", dataset["template"])};
    for (const char* name : {"tokenizer_sha256", "seq_len", "batching"}) list.push_back(property(name, version[name]));
    for (const char* split : {"train", "validation"})
        for (const char* count : {"documents", "rows", "tokens"})
            list.push_back(property((std::string(split) + "_" + count).c_str(), version[split][count]));
    return list;
}

}  // namespace

Json croissant(const Json& dataset, const Json& version) {
    const std::string name = dataset["name"];
    const std::string description = dataset["description"];
    Json document = {{"@context", context()},
                     {"@type", "sc:Dataset"},
                     {"conformsTo", "http://mlcommons.org/croissant/1.0"},
                     {"name", name},
                     {"description", description.empty() ? "The dataset " + name + "." : description},
                     {"license", dataset["license"]},
                     {"inLanguage", dataset["language"]},
                     {"url", "urn:atoll:dataset:" + name},
                     {"dateCreated", dataset["created_at"]}};
    if (!dataset["source"].get<std::string>().empty()) document["isBasedOn"] = dataset["source"];
    if (version.is_null()) return document;
    document["version"] = std::to_string(version["version"].get<std::int64_t>()) + ".0.0";
    document["datePublished"] = version["created_at"];
    document["distribution"] = Json::array({token_files(version)});
    document["recordSet"] = Json::array({rows()});
    document["additionalProperty"] = properties(dataset, version);
    return document;
}

}  // namespace atl::registry
