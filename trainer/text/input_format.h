#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"

namespace atl::text {

inline constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// How the rows of a file are written; all of it UTF-8, with or without a byte order mark.
enum class InputFormat {
    kJsonLines,  // a JSON object a line
    kJsonArray,  // one JSON array of objects, or of texts: {"text": …} each
    kCsv,        // RFC 4180; the first line names the columns, and tells by which of , ; and tab they are separated
    kTsv,        // the same with tabs
    kText,       // the whole file is one document, {"text": …}
    kLines,      // each line is one
};
// As --input-format takes them: jsonl, json, csv, tsv, text, lines.
const char* to_string(InputFormat format);
// Nothing: "auto".
Result<std::optional<InputFormat>> parse_input_format(std::string_view name);

struct InputFile {
    std::filesystem::path path;
    InputFormat format = InputFormat::kJsonLines;
};

// Refuses what is certainly not one of the formats, by its first bytes, decompressed: kInvalidArgument names the file,
// what it is instead (Parquet, a zip archive, …), and a command that converts it.
Status refuse_foreign(const std::filesystem::path& path, std::string_view head);

// What a file is by its first bytes, decompressed, and where they leave it open by its name (.csv, .tsv, .txt, …).
// `fallback` is what it is where neither tells. kInvalidArgument: as refuse_foreign(), or neither tells.
Result<InputFormat> tell_format(const std::filesystem::path& path, std::string_view head,
                                std::optional<InputFormat> fallback = {});

struct InputChoice {
    std::optional<InputFormat> format = {};    // of all files; not given: as tell_format() tells
    std::optional<InputFormat> fallback = {};  // of files that tell_format() cannot tell
    // Called with the files that are no data, of which there may be none.
    std::function<void(const std::vector<std::filesystem::path>&)> on_left_out = {};
};

// The files that `given` names. A directory stands for all files in it and in the directories below, but for those
// whose name begins with "." or "_"; a path with * ? or [ that is no file, for all that it matches, where a part ** is
// any number of directories and only files match (bash's globstar). Of these a README, a licence, and what Hugging
// Face's datasets leaves out (config.json, dataset_infos.json, …) are no data, unless a path or a pattern's last part
// names them. What one of these stands for is sorted by path, byte by byte. Reads the first bytes of each file.
// kInvalidArgument: nothing matches, a file is named twice, or is none of the formats; kNotFound.
Result<std::vector<InputFile>> open_inputs(const std::vector<std::filesystem::path>& given, const InputChoice& choice);

// "3 files: 2 CSV, 1 text", for messages.
std::string describe(const std::vector<InputFile>& files);

}  // namespace atl::text
