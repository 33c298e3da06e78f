#include "shared/json/json.h"

#include <gtest/gtest.h>

#include "shared/json/bounded.h"
#include "shared/json/digits.h"

namespace atl::json {
namespace {

std::string parse_error(std::string_view text, int depth_max = 64) {
    const auto result = parse(text, depth_max);
    return result.ok() ? "" : result.error().message;
}

TEST(JsonParseTest, ValuesOfEveryKindAreRead) {
    const auto value = parse(R"({"a":[1,-2,2.5,true,null,"x\u00e8"],"b":{"c":{}}})");
    ASSERT_TRUE(value.ok()) << value.error().message;
    EXPECT_EQ(value->dump(), R"({"a":[1,-2,2.5,true,null,"xè"],"b":{"c":{}}})");
}

TEST(JsonParseTest, TheTextAfterTheValueIsRefused) {
    EXPECT_NE(parse_error("{} x"), "");
    EXPECT_NE(parse_error("1 /* comment */"), "");
    EXPECT_NE(parse_error(""), "");
    EXPECT_NE(parse_error("[1,]"), "");
}

TEST(JsonParseTest, InvalidUtf8IsRefused) {
    EXPECT_NE(parse_error("\"\xff\""), "");
    EXPECT_NE(parse_error("\"\xed\xa0\x80\""), "") << "a surrogate is not UTF-8";
}

TEST(JsonParseTest, AnErrorSaysWhereAndNeverWhatWasRead) {
    for (const char* text : {"{\"text\": \"secret\tword\"}", "{\"text\": \"secret\\ud800 word\"}", "{\"text\": secret}",
                             "{\"text\": \"secret", "[\"secret\" 1e999999]"}) {
        const std::string error = parse_error(text);
        EXPECT_NE(error.find("column"), std::string::npos) << error;
        EXPECT_EQ(error.find("secret"), std::string::npos) << error;
    }
}

TEST(JsonParseTest, ARepeatedKeyIsRefusedAndNamed) {
    EXPECT_EQ(parse_error(R"({"a":{"b":1,"b":2}})"), "not valid JSON: repeated key \"b\"");
    EXPECT_EQ(parse_error(R"([{"b":1},{"b":2}])"), "");
}

TEST(JsonParseTest, DepthIsBoundedWhileParsing) {
    EXPECT_EQ(parse_error("[[[]]]", 3), "");
    EXPECT_EQ(parse_error("[[[[]]]]", 3), "not valid JSON: more than 3 levels");
    EXPECT_NE(parse_error(std::string(1'000'000, '[')), "");
}

TEST(JsonParseTest, ValuesAreCountedWhileParsing) {
    EXPECT_TRUE(parse_bounded(R"({"a":[1,2]})", 4).ok());
    EXPECT_EQ(parse_bounded(R"({"a":[1,2]})", 3).error().message, "not valid JSON: more than 3 values");
    std::string many = "[";
    for (int i = 0; i < 1000; ++i) many += "{},";
    EXPECT_FALSE(parse_bounded(many, 100).ok()) << "also of what would be no JSON later";
}

TEST(JsonParseTest, ANumberThatDoesNotFitIsRefused) {
    EXPECT_NE(parse_error("1e999"), "");
}

struct Spec {
    std::string name;
    std::int64_t rounds = 0;
    double rate = 0;
    bool fast = false;
    std::string kind;
    Status status;
};

Spec read_spec(const Json& value, std::string path = "") {
    ObjectReader reader(value, std::move(path));
    Spec spec;
    spec.name = reader.required_string("name");
    spec.rounds = reader.integer_or("rounds", 1, 1, 10000);
    spec.rate = reader.number_or("rate", 0.5, 0, 1);
    spec.fast = reader.boolean_or("fast", false);
    spec.kind = reader.one_of("kind", {"a", "b"}, "a");
    spec.status = reader.finish();
    return spec;
}

Error error_of(const Json& value) {
    const Status status = read_spec(value).status;
    return status.ok() ? internal_error("no error") : status.error();
}

TEST(JsonParseTest, DigitsOfLargeIntegersMayBeKept) {
    for (const char* text : {"18446744073709551616", "-9223372036854775809", "100000000000000000000000000000000000001"})
        EXPECT_EQ(parse_keeping_digits(text).value(), Json(text)) << text;
    EXPECT_EQ(parse_keeping_digits("18446744073709551615").value(), Json(18446744073709551615U));
    EXPECT_EQ(parse_keeping_digits("-9223372036854775808").value().dump(), "-9223372036854775808");
    EXPECT_EQ(parse_keeping_digits("[1e20,1.5,18446744073709551616.0]").value().dump(),
              "[1e+20,1.5,1.8446744073709552e+19]");
}

TEST(ObjectReaderTest, PresentMembersAreReadAndAbsentOnesGetTheirFallback) {
    const Json value = {{"name", "x"}, {"rounds", 7}, {"rate", 1}, {"fast", true}, {"kind", "b"}};
    const Spec full = read_spec(value);
    EXPECT_TRUE(full.status.ok());
    EXPECT_EQ(full.name, "x");
    EXPECT_EQ(full.rounds, 7);
    EXPECT_EQ(full.rate, 1.0);
    EXPECT_TRUE(full.fast);
    EXPECT_EQ(full.kind, "b");
    const Json small = {{"name", "x"}, {"rounds", nullptr}};
    EXPECT_TRUE(read_spec(small).status.ok());
    EXPECT_EQ(read_spec(small).rounds, 1);
}

TEST(ObjectReaderTest, WrongValuesAreRefusedByTheirField) {
    const std::pair<Json, const char*> cases[] = {
        {{{"name", "x"}, {"rounds", "ten"}}, "rounds"},
        {{{"name", "x"}, {"rounds", 0}}, "rounds"},
        {{{"name", "x"}, {"rounds", 1.5}}, "rounds"},
        {{{"name", "x"}, {"rounds", 18446744073709551615U}}, "rounds"},
        {{{"name", "x"}, {"rate", 2}}, "rate"},
        {{{"name", "x"}, {"fast", 1}}, "fast"},
        {{{"name", "x"}, {"kind", "c"}}, "kind"},
        {{{"rounds", 1}}, "name"},
        {{{"nmae", "x"}}, "name"},
        {{{"name", "x"}, {"rouns", 1}}, "rouns"},
        {{{"name", "x"}, {"colour", 1}}, "colour"},
        {Json::array(), ""},
    };
    for (const auto& [value, field] : cases) {
        EXPECT_EQ(error_of(value).code, ErrorCode::kInvalidArgument) << value;
        EXPECT_EQ(error_of(value).field, field) << value;
    }
}

TEST(ObjectReaderTest, MessagesSayWhatWasExpectedAndWhatWasGiven) {
    EXPECT_EQ(error_of({{"name", "x"}, {"rounds", "ten"}}).message, "must be an integer from 1 to 10000, got \"ten\"");
    EXPECT_EQ(error_of({{"nmae", "x"}}).message, "is required (a string); there is \"nmae\"");
    EXPECT_EQ(error_of({{"name", "x"}, {"rouns", 1}}).message, "unknown field; did you mean rounds?");
}

TEST(ObjectReaderTest, NestedFieldsCarryTheirPathAndTheFirstErrorStays) {
    const Json value = {{"rounds", 0}, {"name", 1}};
    const Spec spec = read_spec(value, "job");
    ASSERT_FALSE(spec.status.ok());
    EXPECT_EQ(spec.status.error().field, "job.name");
}

TEST(ObjectReaderTest, UnknownMembersMayBeAllowed) {
    const Json value = {{"name", "x"}, {"added_later", 1}};
    ObjectReader reader(value);
    EXPECT_EQ(reader.required_string("name"), "x");
    reader.allow_unknown();
    EXPECT_TRUE(reader.finish().ok());
}

TEST(ObjectReaderTest, ALongValueIsShortenedInTheMessage) {
    const Json value = {{"name", "x"}, {"rounds", std::string(5000, 'y')}};
    EXPECT_LT(read_spec(value).status.error().message.size(), 200U);
}

}  // namespace
}  // namespace atl::json
