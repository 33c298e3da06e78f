#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/result.h"
#include "trainer/text/record_reader.h"
#include "trainer/tokenize/row_builder.h"

namespace atl::tokenize {

// What a run of `tokenize` had done after one of its parts, and where it goes on.
struct PartRecord {
    text::RecordPosition next;
    RowBuilder::State rows;
    std::int64_t documents = 0;
    std::int64_t bytes = 0;           // of rendered text
    std::int64_t elements = 0;        // of each column
    std::vector<std::string> sha256;  // of what this part added to each column

    std::string to_line() const;  // JSON
    static Result<PartRecord> parse(std::string_view line);
};

inline constexpr std::string_view kDataInfo = "data.json";  // the file that tells a data directory

// Whether a data directory has a file of this name.
bool is_data_file(std::string_view name);

// The directory OUT.partial, in which a data directory comes to be: data/ (what OUT will be), spool/, run.json (what
// the result depends on), parts.jsonl (a PartRecord a line, written when what it tells of is on the disk). One process
// works in it at a time; when that is killed, the next one finds the parts. Not thread-safe.
class PartialRun {
  public:
    // Parts are kept when run.json is `description`; those of a run with other input or options are dropped. kConflict:
    // another process is at work in it.
    static Result<PartialRun> open(const std::filesystem::path& target, const nlohmann::json& description);

    // What an earlier process left, oldest first. A torn or wrong line ends them.
    const std::vector<PartRecord>& parts() const { return parts_; }
    Status keep(std::size_t count);  // the first parts; forgets the others
    Status add(const PartRecord& part);

    std::filesystem::path data() const { return path_ / "data"; }
    std::filesystem::path spool() const { return path_ / "spool"; }

    // data/ becomes OUT, in the place of a data directory that is there; the rest goes. kConflict: OUT is neither that
    // nor empty.
    Status put_in_place();
    Status discard();  // the directory goes, unless others put something there

  private:
    PartialRun() = default;
    Status create();
    Status begin_anew(const std::string& description);

    std::filesystem::path target_;
    std::filesystem::path path_;
    UniqueFd lock_;
    UniqueFd journal_;
    std::vector<PartRecord> parts_;
};

}  // namespace atl::tokenize
