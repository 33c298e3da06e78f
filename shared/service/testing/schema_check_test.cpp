#include "shared/service/testing/schema_check.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace atl::service {
namespace {

using json::Json;

const Json kSchemas = {
    {"components",
     {{"schemas",
       {{"Named", {{"type", "object"}, {"properties", {{"name", {{"type", "string"}}}}}, {"required", {"name"}}}}}}}}};
const Json kNamed = {{"$ref", "#/components/schemas/Named"}};

// Where the faults are: of "value.name: is missing", "value.name".
std::vector<std::string> faulty(const Json& schema, const Json& value) {
    std::vector<std::string> places;
    for (const std::string& fault : schema_faults(kSchemas, schema, value, "value"))
        places.push_back(fault.substr(0, fault.find(": ")));
    return places;
}

using Places = std::vector<std::string>;

TEST(SchemaCheckTest, ValuesOfTheRightTypeFit) {
    EXPECT_EQ(faulty({{"type", {"string", "null"}}}, nullptr), Places());
    EXPECT_EQ(faulty({{"type", "integer"}, {"minimum", 1}}, 1), Places());
    EXPECT_EQ(faulty({{"type", "number"}}, 1), Places());
    EXPECT_EQ(faulty({{"enum", {"a", "b"}}}, "b"), Places());
    EXPECT_EQ(faulty({{"type", "string"}, {"format", "date-time"}}, "2024-02-29T23:59:60.5Z"), Places());
    EXPECT_EQ(faulty({{"type", "array"}, {"items", kNamed}}, {{{"name", "x"}}}), Places());
    EXPECT_EQ(faulty({{"type", "object"}}, {{"anything", 1}}), Places());
}

TEST(SchemaCheckTest, EachKeywordFindsWhatDoesNotFit) {
    for (const auto& [schema, value] : std::vector<std::pair<Json, Json>>{
             {{{"type", "string"}}, 1},
             {{{"type", "integer"}}, 1.5},
             {{{"type", {"string", "null"}}}, 1},
             {{{"const", "a"}}, "b"},
             {{{"enum", {"a", "b"}}}, "c"},
             {{{"pattern", "^[0-9]+$"}}, "1x"},
             {{{"minLength", 2}}, "ü"},
             {{{"maxLength", 1}}, "ab"},
             {{{"format", "date-time"}}, "2024-02-29 12:00:00"},
             {{{"minimum", 1}}, 0},
             {{{"maximum", 1}}, 2},
             {{{"minItems", 1}}, Json::array()},
             {{{"maxItems", 1}}, {1, 2}},
             {{{"oneOf", {{{"const", 1}}, {{"type", "integer"}}}}}, 1},
             {{{"oneOf", {{{"const", 1}}, {{"const", 2}}}}}, 3},
             {{{"allOf", {{{"type", "integer"}}, {{"minimum", 1}}}}}, 0},
             {{{"$ref", "#/components/schemas/None"}}, 1},
             {{{"uniqueItems", true}}, {1, 1}},
             {{{"format", "uuid"}}, "x"},
         })
        EXPECT_EQ(faulty(schema, value), Places{"value"}) << schema;
}

TEST(SchemaCheckTest, MembersAreNamedWhereTheyStand) {
    EXPECT_EQ(faulty(kNamed, Json::object()), Places{"value.name"});
    EXPECT_EQ(faulty(kNamed, {{"name", 1}}), Places{"value.name"});
    EXPECT_EQ(faulty(kNamed, {{"name", "x"}, {"colour", 1}}), Places{"value.colour"}) << "what nobody described";
    EXPECT_EQ(faulty({{"items", kNamed}}, {{{"name", "x"}}, {{"name", 1}}}), Places{"value[1].name"});
    EXPECT_EQ(faulty({{"additionalProperties", {{"type", "string"}}}}, {{"a", "x"}, {"b", 1}}), Places{"value.b"});
}

TEST(SchemaCheckTest, AllOfIsFitByEachPartOnItsOwn) {
    const Json more = {{"type", "object"}, {"properties", {{"size", {{"type", "integer"}}}}}};
    const Json value = {{"name", "x"}, {"size", 1}};
    EXPECT_EQ(faulty({{"allOf", {kNamed, more}}}, value), Places());
    EXPECT_EQ(faulty({{"allOf", {kNamed, more}}}, {{"name", "x"}, {"colour", 1}}), Places{"value.colour"});
    Json closed = kSchemas["components"]["schemas"]["Named"];
    closed["additionalProperties"] = false;
    EXPECT_EQ(faulty({{"allOf", {closed, more}}}, value), Places{"value.size"}) << "that part forbids what others add";
}

}  // namespace
}  // namespace atl::service
