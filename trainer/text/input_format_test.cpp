#include "trainer/text/input_format.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include "shared/base/file.h"
#include "shared/base/text.h"
#include "shared/run_settings/input_formats.h"

namespace atl::text {
namespace {

std::string told(const std::string& name, std::string_view head) {
    const auto format = tell_format(name, head);
    return format.ok() ? to_string(*format) : format.error().message;
}

TEST(InputFormatTest, JsonIsToldByItsFirstBytesWhateverTheName) {
    for (const char* name : {"a", "a.jsonl", "a.json", "a.txt", "a.json.gz", "a.csv"}) {
        EXPECT_EQ(told(name, "{\"text\": \"a\"}\n"), "jsonl") << name;
        EXPECT_EQ(told(name, "\xef\xbb\xbf \n{ \"text\": 1}"), "jsonl") << name;
        EXPECT_EQ(told(name, "[{\"text\": \"a\"}]"), "json") << name;
        EXPECT_EQ(told(name, "\n [\n\"a\"]"), "json") << name;
    }
    EXPECT_EQ(told("a.jsonl", "[1, 2]"), "json");
    EXPECT_EQ(told("a.json", "nothing of the kind"), "jsonl") << "its first line is refused then";
    EXPECT_EQ(told("a.jsonl", ""), "jsonl");
    EXPECT_EQ(told("a", " \n"), "jsonl");
}

TEST(InputFormatTest, TablesAndTextAreToldByTheirNames) {
    EXPECT_EQ(told("a.csv", "id,text\n"), "csv");
    EXPECT_EQ(told("A.CSV.GZ", "id,text\n"), "csv");
    EXPECT_EQ(told("a.tsv.zst", "id\ttext\n"), "tsv");
    EXPECT_EQ(told("a.tab", "[id]\ttext\n"), "tsv");
    for (const char* name : {"a.txt", "a.text.zstd", "README.md"})
        for (const char* head : {"C'era una volta", "[Musica] {a}", "{{ x }}", ""}) EXPECT_EQ(told(name, head), "text");
    const std::string unknown = told("corpus", "C'era una volta");
    for (const char* said : {"corpus is no JSON", "--input-format", "lines", "JSON array"})
        EXPECT_NE(unknown.find(said), std::string::npos) << unknown;
    EXPECT_EQ(*tell_format("corpus", "C'era", InputFormat::kLines), InputFormat::kLines);
}

TEST(InputFormatTest, WhatIsReadByNoneIsNamedWithTheWayOn) {
    using namespace std::string_literals;
    const std::tuple<std::string, std::string, std::string> cases[] = {
        {"PAR1\x15\x04"s, "is Parquet",
         "from_parquet(sys.argv[1]).to_json(sys.argv[2])' dir/a.jsonl dir/a.jsonl.jsonl`"},
        {"ARROW1\0\0\xff"s, "is an Arrow file", "read_feather(sys.argv[1])"},
        {"\xff\xff\xff\xff\x10\0\0\0"s, "is an Arrow stream", "from_file(sys.argv[1])"},
        {"PK\x03\x04\x14"s, "is a zip archive", "unpack it"},
        {"\xfd"
         "7zXZ\0\0\x04"s,
         "compressed by xz", "`xz -dc dir/a.jsonl | zstd > dir/a.jsonl.zst`"},
        {"BZh91AY&SY"s, "compressed by bzip2", "bzip2 -dc"},
        {"\x04\x22\x4d\x18\x64"s, "compressed by lz4", "lz4 -dc"},
        {"\x1f\x8b\x08"s, "compressed twice", "unpack it once"},
        {std::string(257, 'a') + "ustar", "is a tar archive", "unpack it"},
        {"%PDF-1.7"s, "is a PDF", "pdftotext"},
        {"SQLite format 3\0"s, "is an SQLite database", "sqlite3 -csv"},
        {"\xff\xfe{\0\"\0"s, "is UTF-16", "iconv -f UTF-16 -t UTF-8"},
        {"\xfe\xff\0{"s, "is UTF-16", "iconv"},
        {"{\"a\": \0}"s, "is binary", "taken are JSON lines"},
        {"{\n  \"data\": [\n"s, "one JSON object over several lines", "`jq -c . dir/a.jsonl > dir/a.jsonl.jsonl`"}};
    for (const auto& [head, what, advice] : cases) {
        const std::string said = told("dir/a.jsonl", head);
        EXPECT_NE(said.find(what), std::string::npos) << said;
        EXPECT_NE(said.find(advice), std::string::npos) << said;
        EXPECT_NE(said.find("taken are JSON lines, a JSON array, CSV, TSV and text"), std::string::npos) << said;
    }
}

TEST(InputFormatTest, ACommandThatConvertsQuotesTheName) {
    EXPECT_NE(told("my data's.parquet", "PAR1").find(" 'my data'\\''s.parquet' 'my data'\\''s.parquet'.jsonl`"),
              std::string::npos)
        << told("my data's.parquet", "PAR1");
    EXPECT_NE(told("a b.jsonl", "{\n").find("`jq -c . 'a b.jsonl' > 'a b.jsonl'.jsonl`"), std::string::npos);
    EXPECT_NE(told("a.xlsx", "PK\x03\x04").find("save its sheet as CSV"), std::string::npos);
}

TEST(InputFormatTest, NamesOfFormatsAreReadBack) {
    for (const char* name : {"jsonl", "json", "csv", "tsv", "text", "lines"})
        EXPECT_STREQ(to_string(**parse_input_format(name)), name);
    EXPECT_FALSE(parse_input_format("auto")->has_value());
    EXPECT_NE(parse_input_format("parquet").error().message.find("auto, jsonl"), std::string::npos);
    EXPECT_EQ(describe({{"a", InputFormat::kCsv}, {"b", InputFormat::kText}, {"c", InputFormat::kCsv}}),
              "3 files: 2 CSV, 1 text");
}

class OpenInputsTest : public testing::Test {
  protected:
    std::filesystem::path write(const std::string& name, const std::string& bytes) {
        const auto path = directory_.path() / name;
        std::filesystem::create_directories(path.parent_path());
        check(write_file_atomic(path, bytes).ok(), "cannot write a test's file");
        return path;
    }
    // Names below the directory, with their formats; or the error.
    std::string opened(const std::vector<std::string>& given, const InputChoice& choice = {}) {
        std::vector<std::filesystem::path> paths;
        for (const std::string& name : given) paths.push_back(directory_.path() / name);
        const auto files = open_inputs(paths, choice);
        if (!files.ok()) return files.error().field + ": " + files.error().message;
        std::string all;
        for (const InputFile& file : *files)
            all += file.path.lexically_relative(directory_.path()).string() + "=" + to_string(file.format) + " ";
        return all;
    }
    TemporaryDirectory directory_;
};

TEST_F(OpenInputsTest, DirectoriesAndPatternsAreSortedByNameAndHiddenFilesAreNone) {
    write("d/b.txt", "b");
    write("d/a/z.csv", "text\n");
    write("d/B.jsonl", "{}");
    write("d/_SUCCESS", "");
    write("d/.cache/x.bin", std::string(3, '\0'));
    write("d10.json", "[]");
    write("d2.json", "[]");
    write("a[1].txt", "a");
    EXPECT_EQ(opened({"d"}), "d/B.jsonl=jsonl d/a/z.csv=csv d/b.txt=text ");
    EXPECT_EQ(opened({"d*.json"}), "d10.json=json d2.json=json ");
    EXPECT_EQ(opened({"d2.json", "d10.json"}), "d2.json=json d10.json=json ") << "the order in which they are given";
    EXPECT_EQ(opened({"d*", "a[1].txt"}),
              "d/B.jsonl=jsonl d/a/z.csv=csv d/b.txt=text d10.json=json d2.json=json a[1].txt=text ")
        << "a name with a bracket is a file first";
    EXPECT_EQ(opened({"d/*.txt"}, {.format = InputFormat::kLines}), "d/b.txt=lines ");
    write("e/.h.txt", "h");
    EXPECT_EQ(opened({"e/.*"}), "e/.h.txt=text ") << "not the directory itself, nor the one above";
}

TEST_F(OpenInputsTest, TwoStarsStandForAnyNumberOfDirectories) {
    for (const char* name : {"d/0.jsonl", "d/s1/1.jsonl", "d/s1/s2/2.jsonl", "d/s1/s2/2.txt", "d/a[1]*/3.jsonl",
                             "d/.cache/4.jsonl", "d/_x/5.jsonl", "d/s1/.6.jsonl", "e/7.jsonl"})
        write(name, "{}");
    write("d/s1/s2/2.txt", "a text");
    std::filesystem::create_directories(directory_.path() / "d/empty");
    std::filesystem::create_directory_symlink("../e", directory_.path() / "d/link");
    std::filesystem::create_directory_symlink("..", directory_.path() / "d/s1/up");
    const std::string all = "d/0.jsonl=jsonl d/_x/5.jsonl=jsonl d/a[1]*/3.jsonl=jsonl d/s1/1.jsonl=jsonl ";
    const std::string text = "d/s1/s2/2.txt=text ";
    EXPECT_EQ(opened({"d/**/*.jsonl"}), all + "d/s1/s2/2.jsonl=jsonl ");
    EXPECT_EQ(opened({"d/**/**/*.jsonl"}), all + "d/s1/s2/2.jsonl=jsonl ");
    EXPECT_EQ(opened({"d/**"}), all + "d/s1/s2/2.jsonl=jsonl " + text) << "files alone";
    EXPECT_EQ(opened({"d/**/"}), opened({"d/**"}));
    EXPECT_EQ(opened({"d/**/*"}), opened({"d/**"}));
    EXPECT_EQ(opened({"**/s?/**/*.jsonl"}), "d/s1/1.jsonl=jsonl d/s1/s2/2.jsonl=jsonl ") << "each file once";
    EXPECT_EQ(opened({"d/link/**"}), "d/link/7.jsonl=jsonl ") << "a link that is named is followed";
    EXPECT_EQ(opened({"d/**.jsonl"}), "d/0.jsonl=jsonl ") << "within a name it is *";
    EXPECT_NE(opened({"d/**/s1"}).find("no file matches"), std::string::npos);
    EXPECT_NE(opened({"nowhere/**/*.jsonl"}).find("no file matches"), std::string::npos);
}

TEST_F(OpenInputsTest, TwoStarsAloneBeginWhereTheProgramRuns) {
    write("w/0.jsonl", "{}");
    write("w/s/1.jsonl", "{}");
    const auto before = std::filesystem::current_path();
    std::filesystem::current_path(directory_.path() / "w");
    const auto files = open_inputs({"**/*.jsonl"}, {});
    std::filesystem::current_path(before);
    ASSERT_TRUE(files.ok()) << files.error().message;
    ASSERT_EQ(files->size(), 2U);
    EXPECT_EQ((*files)[0].path, "0.jsonl");
    EXPECT_EQ((*files)[1].path, "s/1.jsonl");
}

TEST_F(OpenInputsTest, ARepositorysOwnFilesAreNoDataUnlessTheyAreNamed) {
    for (const char* name : {"d/README.md", "d/LICENSE", "d/licence.txt", "d/Notice", "d/COPYING", "d/config.json",
                             "d/dataset_infos.json", "d/dummy_data.zip", "d/.gitattributes", "d/s/ReadMe.txt"})
        write(name, "a text");
    for (const char* name : {"d/data.jsonl", "d/s/readme.jsonl", "d/s/license_texts.txt", "d/s/my.config.json"})
        write(name, "{}");
    const std::string data = "d/data.jsonl=jsonl ";
    const std::string more = "d/s/license_texts.txt=jsonl d/s/my.config.json=jsonl d/s/readme.jsonl=jsonl ";
    std::vector<std::string> left_out;
    const InputChoice choice = {.on_left_out = [&](const auto& files) {
        left_out.clear();
        for (const auto& file : files) left_out.push_back(file.filename());
    }};
    EXPECT_EQ(opened({"d"}, choice), data + more);
    EXPECT_EQ(join(left_out),
              "COPYING, LICENSE, Notice, README.md, config.json, dataset_infos.json, dummy_data.zip, licence.txt, "
              "ReadMe.txt");
    EXPECT_EQ(opened({"d/*.jsonl"}, choice), data);
    EXPECT_EQ(left_out, std::vector<std::string>());
    EXPECT_EQ(opened({"d/*"}), data + more);
    EXPECT_EQ(opened({"d/**"}), data + more);
    EXPECT_EQ(opened({"d/README.md"}, {.format = InputFormat::kText}), "d/README.md=text ");
    EXPECT_EQ(opened({"*/README.md"}, {.format = InputFormat::kText}), "d/README.md=text ");
    EXPECT_NE(opened({"d/READM[E].md"}).find("README.md; name a file itself to have it read"), std::string::npos);
    write("e/LICENSE", "a text");
    EXPECT_NE(opened({"e"}).find("e is a directory without data: LICENSE is left out"), std::string::npos);
}

TEST_F(OpenInputsTest, CompressedFilesAreToldByWhatTheyHold) {
    const auto path = directory_.path() / "data.bin";
    gzFile file = ::gzopen(path.c_str(), "wb");
    ::gzwrite(file, "[\"a\"]", 5);
    ::gzclose(file);
    EXPECT_EQ(opened({"data.bin"}), "data.bin=json ");
}

TEST_F(OpenInputsTest, WhatIsWrongIsNamedBeforeAnythingIsRead) {
    write("a.txt", "a");
    write("d/p.parquet", "PAR1\x15");
    std::filesystem::create_directories(directory_.path() / "empty");
    std::filesystem::create_symlink("a.txt", directory_.path() / "again.txt");
    std::filesystem::create_directories(directory_.path() / "links");
    std::filesystem::create_directory_symlink("../d", directory_.path() / "links/d");
    std::filesystem::create_directories(directory_.path() / "dangling");
    std::filesystem::create_symlink("nothing", directory_.path() / "dangling/a.txt");
    const auto expect = [&](const std::vector<std::string>& given, const std::string& said,
                            const InputChoice& choice = {}) {
        const std::string error = opened(given, choice);
        EXPECT_TRUE(error.starts_with("--input: ") || error.starts_with(directory_.path().string())) << error;
        EXPECT_NE(error.find(said), std::string::npos) << error;
    };
    expect({"a.txt", "a.txt"}, "a.txt is given twice: leave one out");
    expect({"a.txt", "./a.txt"}, "is given twice, the other time as");
    expect({"a.txt", "again.txt"}, "is given twice, the other time as");
    expect({"*.txt"}, "is given twice");
    expect({"nowhere"}, "nowhere");
    expect({"*.jsonl"}, "no file matches");
    expect({"empty"}, "is a directory without a file");
    expect({"dangling"}, "dangling/a.txt");
    expect({"links"}, "is a link to a directory");
    expect({"d"}, "p.parquet is Parquet");
    expect({"d"}, "p.parquet is Parquet", {.format = InputFormat::kCsv});
}

TEST(InputFormatTest, EachNameIsOneThatPreparationsMayGive) {
    for (const std::string_view name : run_settings::kInputFormats) {
        const auto format = parse_input_format(name);
        ASSERT_TRUE(format.ok()) << name;
        EXPECT_EQ(*format ? to_string(**format) : "auto", name);
    }
    EXPECT_EQ(run_settings::kInputFormats.size(), static_cast<std::size_t>(InputFormat::kLines) + 2) << "and auto";
}

}  // namespace
}  // namespace atl::text
