#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"
#include "trainer/text/input_format.h"

namespace atl::tokenize {

enum class Batching {
    kPacking,  // documents one after another, cut into full rows; segment_ids tell them apart
    kPadding,  // one document a row, truncated or padded; labels are -100 on the padding
};
const char* to_string(Batching batching);
Result<Batching> parse_batching(std::string_view name);

// Which documents to keep. A document is in the validation part when the first 8 bytes (big endian) of the sha256 of
// its rendered text, modulo 100, are below validation_percent.
enum class Split { kAll, kTrain, kValidation };
const char* to_string(Split split);
Result<Split> parse_split(std::string_view name);

// Which tokens the loss counts: all, or those of the answers that the template marks (shared/prompt/template.h); in a
// conversation these are what the assistant says, each time or the last time.
enum class LossOn { kAll, kAnswer, kLastAnswer };
const char* to_string(LossOn loss_on);
Result<LossOn> parse_loss_on(std::string_view name);

// The command `tokenize`.
struct TokenizeOptions {
    std::filesystem::path tokenizer;                // a directory with a tokenizer
    std::vector<std::filesystem::path> inputs;      // files, directories and patterns: trainer/text/input_format.h
    std::optional<text::InputFormat> input_format;  // of all of them; not given: as each one tells
    std::optional<std::string> text_template;       // not given: "{{text}}"
    // Of conversations: "auto", a name or a JSON file (trainer/tokenize/chat_choice.h), in the place of text_template;
    // empty: the rows are no conversations.
    std::string chat_template;
    std::filesystem::path out;  // the data directory to make, in the place of one that is there
    std::int64_t seq_len = 0;   // tokens a row
    Batching batching = Batching::kPacking;
    std::optional<LossOn> loss_on;  // not given: the answers when there are any, else all
    // Cut documents to seq_len tokens; else a longer one goes on in the next row. Not given: only when padding.
    std::optional<bool> truncate;
    Split split = Split::kAll;
    int validation_percent = 0;
    int threads = 0;                     // 0: one a core that this process may use
    std::int64_t part_bytes = 32 << 20;  // of input, after which what is done is made safe against a kill
    std::function<void()> on_part;       // called when it is (tests)
};

struct TokenizeReport {
    std::int64_t documents = 0;  // kept by the split
    std::int64_t others = 0;     // of the other split, as far as this process read them
    std::int64_t rows = 0;
    std::int64_t tokens = 0;            // without padding
    std::int64_t targets = 0;           // tokens that the loss counts, where attention stays inside documents
    std::int64_t without_end = 0;       // documents that no end token ends, as the tokenizer names none
    std::int64_t longer = 0;            // documents longer than a row
    std::int64_t truncated = 0;         // those among them that were cut to it
    std::int64_t tokens_truncated = 0;  // tokens that cutting lost
    std::int64_t bytes = 0;             // of rendered text
    double wall_s = 0;                  // of this process
    std::int64_t parts_found = 0;       // that an earlier process had done
    std::string fingerprint;            // sha256 of data.safetensors
};

// Writes a data directory (trainer/README.md describes it). The bytes depend on the input and the options, not on the
// number of threads. `out` appears complete or not at all. A process that was killed leaves its parts in OUT.partial,
// and the same call goes on behind them. kInvalidArgument names file:line of a bad row, or says that no token
// would count in the loss, and leaves nothing; kConflict: something else is at `out`, or another process is making it.
Result<TokenizeReport> tokenize(const TokenizeOptions& options);

// What tokenize() would find wrong at once: files that are not read, a tokenizer that is not, and rows at the beginning
// of the first files that the template does not fit. Returns what the files are. Writes nothing. kInvalidArgument of
// the field "input": a file, or a row as file:line; of the field "tokenizer": its directory, or a file in it.
Result<std::vector<text::InputFile>> check_input(const TokenizeOptions& options);

// The report as the one JSON line that the command prints.
std::string to_json_line(const TokenizeReport& report);

}  // namespace atl::tokenize
