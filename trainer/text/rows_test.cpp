#include "trainer/text/rows.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "shared/base/file.h"

namespace atl::text {
namespace {

using nlohmann::json;

struct FoundRows {
    std::vector<std::string> rows;  // "place row", the place without the directory
    std::vector<RecordPosition> ends;
    std::string error;
};

class RowsTest : public testing::Test {
  protected:
    InputFile write(const std::string& name, const std::string& bytes, InputFormat format) {
        const auto path = directory_.path() / name;
        check(write_file_atomic(path, bytes).ok(), "cannot write a test's file");
        return {path, format};
    }
    std::string without_directory(std::string text) const {
        const std::string directory = directory_.path().string() + "/";
        for (auto at = text.find(directory); at != std::string::npos; at = text.find(directory))
            text.erase(at, directory.size());
        return text;
    }
    FoundRows read(const std::vector<InputFile>& files, std::size_t block_bytes, const RecordPosition& from = {}) {
        FoundRows found;
        RecordReader reader(files, {.block_bytes = block_bytes, .record_bytes_max = 1 << 20});
        if (const Status started = reader.start_at(from); !started.ok()) {
            found.error = without_directory(started.error().message);
            return found;
        }
        for (;;) {
            const auto block = reader.next();
            Status status = block.ok() ? Status() : Status(block.error());
            if (block.ok() && !block->has_value()) return found;
            if (block.ok()) {
                const auto keep = [&](const json& row, const std::string& where) {
                    found.rows.push_back(without_directory(where) + " " + row.dump());
                    return Status();
                };
                status = for_each_row(**block, files[(*block)->file].path, true, keep);
                found.ends.push_back((*block)->end);
            }
            if (status.ok()) continue;
            found.error = without_directory(status.error().message);
            return found;
        }
    }
    // The same rows whatever the size of a block, and from the end of any block on.
    std::vector<std::string> rows(const std::vector<InputFile>& files) {
        const FoundRows whole = read(files, 1 << 20);
        EXPECT_EQ(whole.error, "");
        for (const std::size_t block_bytes : {1U, 2U, 3U, 7U, 16U, 64U}) {
            const FoundRows parts = read(files, block_bytes);
            EXPECT_EQ(parts.rows, whole.rows) << block_bytes << ": " << parts.error;
            for (const RecordPosition& end : parts.ends) {
                const FoundRows rest = read(files, block_bytes, end);
                EXPECT_EQ(rest.error, "");
                const auto first = whole.rows.size() - std::min(rest.rows.size(), whole.rows.size());
                EXPECT_EQ(rest.rows,
                          std::vector(whole.rows.begin() + static_cast<std::ptrdiff_t>(first), whole.rows.end()))
                    << block_bytes << " from " << end.file << ":" << end.offset;
            }
        }
        return whole.rows;
    }
    std::string error(const std::string& bytes, InputFormat format) {
        return read({write("bad", bytes, format)}, 4096).error;
    }

    TemporaryDirectory directory_;
};

using Texts = std::vector<std::string>;

TEST_F(RowsTest, ATableHasARowForEachRecordWithItsLine) {
    EXPECT_EQ(rows({write("a.csv", "\xef\xbb\xbfid,text\r\n1,\"due, tre\r\n\"\"quattro\"\"\"\r\n\r\n5,sei\r\n7,",
                          InputFormat::kCsv)}),
              (Texts{R"(a.csv:2 {"id":"1","text":"due, tre\r\n\"quattro\""})", R"(a.csv:5 {"id":"5","text":"sei"})",
                     R"(a.csv:6 {"id":"7","text":""})"}));
    EXPECT_EQ(rows({write("b.tsv", "text\tn\ncittà, \"x\"\t3\n", InputFormat::kTsv)}),
              (Texts{R"(b.tsv:2 {"n":"3","text":"città, \"x\""})"}));
    EXPECT_EQ(rows({write("c.csv", "\n\n\"te\nxt\";n\na;1", InputFormat::kCsv)}),
              (Texts{R"(c.csv:5 {"n":"1","te\nxt":"a"})"}));
    EXPECT_EQ(rows({write("d.csv", "text", InputFormat::kCsv), write("e.csv", "", InputFormat::kCsv),
                    write("f.csv", ",text\n0,a\n", InputFormat::kCsv)}),
              (Texts{R"(f.csv:2 {"":"0","text":"a"})"}));
}

TEST_F(RowsTest, AnArrayHasARowForEachElementWithItsNumber) {
    EXPECT_EQ(rows({write("a.json",
                          "\n[\n {\"text\": \"a]},\\\"\", \"n\": [1, {}]},\n\n\"due\" ,\n"
                          "{\"n\": 123456789012345678901234567890}]\n \n",
                          InputFormat::kJsonArray)}),
              (Texts{R"(a.json:3: element 1 {"n":[1,{}],"text":"a]},\""})", R"(a.json:5: element 2 {"text":"due"})",
                     R"(a.json:6: element 3 {"n":"123456789012345678901234567890"})"}));
    EXPECT_EQ(rows({write("b.json", "[]", InputFormat::kJsonArray), write("c.json", " [ ] ", InputFormat::kJsonArray),
                    write("d.jsonl", "{\"a\":1}\n\n{\"a\":2}", InputFormat::kJsonLines),
                    write("e.json", "[\"x\"]", InputFormat::kJsonArray)}),
              (Texts{R"(d.jsonl:1 {"a":1})", R"(d.jsonl:3 {"a":2})", R"(e.json:1: element 1 {"text":"x"})"}));
}

TEST_F(RowsTest, ATextIsADocumentAndALineIsOneWhereThatIsAsked) {
    const std::string text = "C'era una volta\r\n\n \nun re.\n";
    EXPECT_EQ(rows({write("a.txt", text, InputFormat::kText), write("b.txt", " \n", InputFormat::kText),
                    write("c.txt", "", InputFormat::kText)}),
              (Texts{R"(a.txt {"text":"C'era una volta\r\n\n \nun re.\n"})"}));
    EXPECT_EQ(rows({write("a.txt", text, InputFormat::kLines)}),
              (Texts{R"(a.txt:1 {"text":"C'era una volta"})", R"(a.txt:4 {"text":"un re."})"}));
}

TEST_F(RowsTest, WhatIsWrongIsNamedWithItsPlaceAndNothingIsQuoted) {
    const std::tuple<std::string, InputFormat, std::string> cases[] = {
        {"a,b\n1,2\nsecret\n", InputFormat::kCsv, "bad:3: the row has 1 field, the first line names 2 columns"},
        {"a\n1,secret\n", InputFormat::kCsv, "bad:2: the row has 2 fields, the first line names 1 column"},
        {"a,b\n1,2,secret\n", InputFormat::kCsv, "bad:2: the row has 3 fields, the first line names 2 columns"},
        {"a\n1\n\"secret\nx\n", InputFormat::kCsv, "bad:3: a quoted field is not closed"},
        {"a\n\"secret\" x\n", InputFormat::kCsv, "bad:2: something follows the closing quote"},
        {"a,a\n1,2\n", InputFormat::kCsv, "bad:1: the first line, which names the columns, has one name twice"},
        {"a\nsecret \xe8\n", InputFormat::kCsv, "bad:2: is not UTF-8: `iconv"},
        {"secret \xe8\n1\n", InputFormat::kCsv, "bad:1: is not UTF-8: `iconv"},
        {"a\n\"" + std::string(2U << 20, 'x'), InputFormat::kCsv, "bad:2: the row is longer than 1 MiB"},
        {"\"" + std::string(2U << 20, 'x'), InputFormat::kCsv,
         "bad:1: the first line, which names the columns, is longer"},
        {"[1, 2", InputFormat::kJsonArray, "bad:1: the file ends within the JSON array: its ] is missing"},
        {"[{\"a\": 1}\n,\n{\"a\": secret}]", InputFormat::kJsonArray, "bad:3: element 2: "},
        {"[{\"a\": 1},\n]", InputFormat::kJsonArray, "bad:2: element 2: is empty: there is a comma too many"},
        {"[1,,2]", InputFormat::kJsonArray, "bad:1: element 2: is empty"},
        {"[1]\n[2]", InputFormat::kJsonArray, "bad:2: something follows the end of the JSON array"},
        {"[1]," + std::string(100, ' ') + "\n", InputFormat::kJsonArray, "bad:1: something follows the end"},
        {"secret", InputFormat::kJsonArray, "bad:1: the file does not begin with the [ of a JSON array"},
        {" \n", InputFormat::kJsonArray, "bad:2: there is no JSON array in the file"},
        {"[\"" + std::string(2U << 20, 'x'), InputFormat::kJsonArray,
         "bad:1: element 1 of the array is longer than 1 MiB"},
        {"{\"a\": 1}\n{\"b\": secret}\n", InputFormat::kJsonLines, "bad:2: "},
        {std::string(2U << 20, 'x'), InputFormat::kJsonLines, "bad:1: the line is longer than 1 MiB"},
        {std::string(2U << 20, 'x'), InputFormat::kText,
         "bad as one document is longer than 1 MiB: --input-format lines"},
        {"secret \xff", InputFormat::kText, "bad: is not UTF-8"},
        {"a\nsecret \xff", InputFormat::kLines, "bad:2: is not UTF-8"}};
    for (const auto& [bytes, format, expected] : cases) {
        const std::string said = error(bytes, format);
        EXPECT_TRUE(said.starts_with(expected)) << said << "\nin place of\n" << expected;
        EXPECT_EQ(said.find("secret"), std::string::npos) << said;
    }
    const std::string pythons = error("{\"secret\": NaN}\n", InputFormat::kJsonLines);
    EXPECT_TRUE(pythons.ends_with("; NaN and Infinity, which Python writes, are not JSON: null is")) << pythons;
    EXPECT_EQ(pythons.find("secret"), std::string::npos) << pythons;
}

}  // namespace
}  // namespace atl::text
