#include "trainer/text/input_format.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "shared/base/shell.h"
#include "shared/base/text.h"

namespace atl::text {
namespace {

using std::string_view_literals::operator""sv;

constexpr std::string_view kTaken = "taken are JSON lines, a JSON array, CSV, TSV and text, each plain, gzip or zstd";

struct FormatName {
    InputFormat format;
    const char* name;
    const char* words;
};
constexpr std::array kNames = {FormatName{InputFormat::kJsonLines, "jsonl", "JSON lines"},
                               FormatName{InputFormat::kJsonArray, "json", "JSON array"},
                               FormatName{InputFormat::kCsv, "csv", "CSV"},
                               FormatName{InputFormat::kTsv, "tsv", "TSV"},
                               FormatName{InputFormat::kText, "text", "text"},
                               FormatName{InputFormat::kLines, "lines", "lines of text"}};

// What begins with bytes of its own and is none of ours. In `advice` FILE stands for the file.
struct Foreign {
    std::size_t at;
    std::string_view magic;
    const char* name;
    const char* advice;
};
constexpr const char* kParquetAdvice =
    R"(`python3 -c 'import sys, datasets as d; d.Dataset.from_parquet(sys.argv[1]).to_json(sys.argv[2])' FILE FILE.jsonl` converts it)";
constexpr const char* kArrowStreamAdvice =
    R"(`python3 -c 'import sys, datasets as d; d.Dataset.from_file(sys.argv[1]).to_json(sys.argv[2])' FILE FILE.jsonl` converts it)";
constexpr const char* kArrowFileAdvice =
    R"(`python3 -c 'import sys, pandas as p; p.read_feather(sys.argv[1]).to_json(sys.argv[2], orient="records", lines=True)' FILE FILE.jsonl` converts it)";
constexpr const char* kUtf16Advice = "`iconv -f UTF-16 -t UTF-8 FILE > FILE.utf8` converts it";
constexpr const char* kUnpack = "unpack it, and name what was in it";
constexpr std::array kForeign = {
    Foreign{0, "PAR1"sv, "Parquet", kParquetAdvice},
    Foreign{0, "ARROW1\0\0"sv, "an Arrow file", kArrowFileAdvice},
    Foreign{0, "\xff\xff\xff\xff"sv, "an Arrow stream", kArrowStreamAdvice},
    Foreign{0, "PK\x03\x04"sv, "a zip archive (or a spreadsheet)", kUnpack},
    Foreign{0,
            "\xfd"
            "7zXZ\0"sv,
            "compressed by xz", "`xz -dc FILE | zstd > FILE.zst` packs it anew"},
    Foreign{0, "BZh"sv, "compressed by bzip2", "`bzip2 -dc FILE | zstd > FILE.zst` packs it anew"},
    Foreign{0, "\x04\x22\x4d\x18"sv, "compressed by lz4", "`lz4 -dc FILE | zstd > FILE.zst` packs it anew"},
    Foreign{0, "\x1f\x8b"sv, "compressed twice", "unpack it once"},
    Foreign{0, "\x28\xb5\x2f\xfd"sv, "compressed twice", "unpack it once"},
    Foreign{0, "7z\xbc\xaf\x27\x1c"sv, "a 7z archive", kUnpack},
    Foreign{257, "ustar"sv, "a tar archive", kUnpack},
    Foreign{0, "%PDF-"sv, "a PDF", "`pdftotext FILE FILE.txt` converts it"},
    Foreign{0, "\x89HDF"sv, "HDF5", "write its texts as JSON lines"},
    Foreign{0, "Obj\x01"sv, "Avro", "write its rows as JSON lines"},
    Foreign{0, "SQLite format 3\0"sv, "an SQLite database",
            "`sqlite3 -csv -header FILE 'select …' > FILE.csv` converts it"},
    Foreign{0, "\xff\xfe"sv, "UTF-16", kUtf16Advice},
    Foreign{0, "\xfe\xff"sv, "UTF-16", kUtf16Advice}};

// What a zip archive is by its name.
const char* advice_for(const Foreign& foreign, const std::filesystem::path& path) {
    const std::string ending = path.extension().string();
    const bool is_sheet = foreign.magic.starts_with("PK") && (ending == ".xlsx" || ending == ".ods");
    return is_sheet ? "save its sheet as CSV" : foreign.advice;
}

Error refused(const std::filesystem::path& path, const std::string& what) {
    return invalid_argument("--input", path.string() + " " + what);
}

// By the name's ending: .jsonl and .ndjson are kJsonLines, .json, which may be either, kJsonArray.
std::optional<InputFormat> named_format(const std::filesystem::path& path) {
    std::string name = path.filename().string();
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    for (const std::string_view packed : {".gz"sv, ".zst"sv, ".zstd"sv})
        if (name.ends_with(packed)) name.resize(name.size() - packed.size());
    constexpr std::array<std::pair<std::string_view, InputFormat>, 9> kEndings = {{{".jsonl", InputFormat::kJsonLines},
                                                                                   {".ndjson", InputFormat::kJsonLines},
                                                                                   {".json", InputFormat::kJsonArray},
                                                                                   {".csv", InputFormat::kCsv},
                                                                                   {".tsv", InputFormat::kTsv},
                                                                                   {".tab", InputFormat::kTsv},
                                                                                   {".txt", InputFormat::kText},
                                                                                   {".text", InputFormat::kText},
                                                                                   {".md", InputFormat::kText}}};
    for (const auto& [ending, format] : kEndings)
        if (name.ends_with(ending)) return format;
    return std::nullopt;
}

// The first two characters that are no white space; '\0' where there are fewer.
std::array<char, 2> first_characters(std::string_view head) {
    std::array<char, 2> first = {'\0', '\0'};
    std::size_t at = head.find_first_not_of(" \t\r\n");
    for (std::size_t i = 0; i < first.size() && at != std::string_view::npos; ++i) {
        first.at(i) = head[at];
        at = head.find_first_not_of(" \t\r\n", at + 1);
    }
    return first;
}

// {"a": … on one line begins JSON lines, { alone an object over several lines.
bool is_open_brace_line(std::string_view head) {
    const std::size_t begin = head.find('{');
    const std::size_t next = head.find_first_not_of(" \t\r", begin + 1);
    return next != std::string_view::npos && head[next] == '\n';
}

}  // namespace

const char* to_string(InputFormat format) {
    return kNames.at(static_cast<std::size_t>(format)).name;
}

Result<std::optional<InputFormat>> parse_input_format(std::string_view name) {
    if (name == "auto") return std::optional<InputFormat>();
    for (const FormatName& known : kNames)
        if (name == known.name) return std::optional(known.format);
    return invalid_argument("input-format",
                            "must be auto, jsonl, json, csv, tsv, text or lines, not \"" + std::string(name) + "\"");
}

Status refuse_foreign(const std::filesystem::path& path, std::string_view head) {
    for (const Foreign& foreign : kForeign)
        if (head.size() > foreign.at && head.substr(foreign.at).starts_with(foreign.magic))
            return refused(path, std::string("is ") + foreign.name + ", which is not read: " +
                                     replace_all(advice_for(foreign, path), "FILE", shell_word(path.string())) + "; " +
                                     std::string(kTaken));
    if (head.find('\0') != std::string_view::npos) return refused(path, "is binary, no text; " + std::string(kTaken));
    return {};
}

Result<InputFormat> tell_format(const std::filesystem::path& path, std::string_view head,
                                std::optional<InputFormat> fallback) {
    ATOLL_RETURN_IF_ERROR(refuse_foreign(path, head));
    if (head.starts_with(kByteOrderMark)) head.remove_prefix(kByteOrderMark.size());
    const auto [first, second] = first_characters(head);
    const auto named = named_format(path);
    const bool is_json_name = named == InputFormat::kJsonLines || named == InputFormat::kJsonArray;
    if (first == '{' && (is_json_name || second == '"' || second == '}')) {
        if (!is_open_brace_line(head)) return InputFormat::kJsonLines;
        return refused(path, "is one JSON object over several lines, which is not read: `jq -c . " +
                                 shell_word(path.string()) + " > " + shell_word(path.string()) +
                                 ".jsonl` makes a line of each object, `jq -c '.NAME[]'` of "
                                 "those of the member NAME; " +
                                 std::string(kTaken));
    }
    if (first == '[' && (is_json_name || second == '{' || second == '"' || second == ']'))
        return InputFormat::kJsonArray;
    if (is_json_name) return InputFormat::kJsonLines;
    if (named) return *named;
    if (first == '\0') return fallback.value_or(InputFormat::kJsonLines);
    if (fallback) return *fallback;
    return refused(path,
                   "is no JSON, and its name does not say what else it is: give --input-format text (the file is a "
                   "document), lines (each line is one), csv or tsv; " +
                       std::string(kTaken));
}

std::string describe(const std::vector<InputFile>& files) {
    std::string kinds;
    for (const FormatName& known : kNames) {
        const auto count = std::ranges::count(files, known.format, &InputFile::format);
        if (count > 0) kinds += (kinds.empty() ? ": " : ", ") + std::to_string(count) + " " + known.words;
    }
    return std::to_string(files.size()) + (files.size() == 1 ? " file" : " files") + kinds;
}

}  // namespace atl::text
