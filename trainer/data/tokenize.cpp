#include "trainer/data/tokenize.h"

#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "shared/base/file.h"
#include "shared/log/log.h"
#include "trainer/data/data_writer.h"
#include "trainer/data/encoder.h"
#include "trainer/data/line_reader.h"
#include "trainer/data/row_builder.h"
#include "trainer/data/template.h"
#include "trainer/data/tokenizer.h"

namespace atl::data {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kSeqLenMax = 1 << 20;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

Status check_options(const TokenizeOptions& options) {
    if (options.inputs.empty()) return invalid_argument("input", "--input names no file");
    if (options.seq_len < 2 || options.seq_len > kSeqLenMax)
        return invalid_argument("seq-len", "--seq-len must be between 2 and " + std::to_string(kSeqLenMax));
    if (options.validation_percent < 0 || options.validation_percent > 100)
        return invalid_argument("validation-percent", "--validation-percent must be between 0 and 100");
    if (options.threads < 0) return invalid_argument("threads", "--threads must not be negative");
    std::error_code ignored;
    if (!options.overwrite && std::filesystem::exists(options.out, ignored) &&
        !std::filesystem::is_empty(options.out, ignored))
        return conflict(options.out.string() + " exists and is not empty; --overwrite replaces it", "out");
    return {};
}

// Progress lines once the work has taken two seconds, then every two.
class Progress {
  public:
    explicit Progress(bool enabled) : enabled_(enabled) {}
    void update(const LineReader& reader, std::int64_t documents, std::int64_t bytes) {
        const double elapsed_s = seconds_since(start_);
        if (!enabled_ || elapsed_s < next_s_) return;
        next_s_ = elapsed_s + 2.0;
        spdlog::info("tokenize: {:.0f} % read, {} documents, {:.1f} MB of text, {:.2f} MB/s",
                     100.0 * reader.fraction_read(), documents, static_cast<double>(bytes) / 1e6,
                     static_cast<double>(bytes) / 1e6 / elapsed_s);
    }
    double elapsed_s() const { return seconds_since(start_); }

  private:
    bool enabled_;
    Clock::time_point start_ = Clock::now();
    double next_s_ = 2.0;
};

// One run of the command: blocks go to the pool and come back in order, their documents become rows, rows are written.
class Run {
  public:
    Run(const TokenizeOptions& options, const Tokenizer& tokenizer, const Template& text_template, DataWriter& writer)
        : options_(options),
          reader_(options.inputs),
          pool_({&tokenizer, &text_template, options.inputs, options.split, options.validation_percent},
                options.threads > 0 ? options.threads : usable_cores()),
          blocks_max_(2 * static_cast<std::size_t>(options.threads > 0 ? options.threads : usable_cores()) + 2),
          rows_(options.batching, options.seq_len, tokenizer.eos().value_or(0)),
          writer_(writer),
          progress_(options.progress) {}

    Result<TokenizeReport> execute() {
        bool more = true;
        while (more || pool_.in_flight() > 0) {
            if (more && pool_.in_flight() < blocks_max_) {
                ATOLL_TRY(more, submit_next());
                continue;
            }
            ATOLL_TRY(const EncodedBlock block, pool_.next());
            ATOLL_RETURN_IF_ERROR(take(block));
            progress_.update(reader_, report_.documents, report_.bytes);
        }
        rows_.finish();
        ATOLL_RETURN_IF_ERROR(write_rows());
        report_.rows = writer_.rows();
        report_.tokens = rows_.tokens();
        report_.truncated = rows_.documents_truncated();
        report_.tokens_truncated = rows_.tokens_truncated();
        report_.wall_s = progress_.elapsed_s();
        return report_;
    }

  private:
    Result<bool> submit_next() {
        ATOLL_TRY(std::optional<LineBlock> block, reader_.next());
        if (!block) return false;
        pool_.submit(std::move(*block));
        return true;
    }

    Status take(const EncodedBlock& block) {
        std::span<const std::int32_t> ids(block.ids);
        for (const std::int64_t length : block.lengths) {
            rows_.add_document(ids.first(static_cast<std::size_t>(length)));
            ids = ids.subspan(static_cast<std::size_t>(length));
        }
        report_.documents += static_cast<std::int64_t>(block.lengths.size());
        report_.bytes += block.bytes;
        return write_rows();
    }

    Status write_rows() {
        ATOLL_RETURN_IF_ERROR(writer_.append(rows_.ids(), rows_.second()));
        rows_.clear();
        return {};
    }

    const TokenizeOptions& options_;
    LineReader reader_;
    EncoderPool pool_;
    std::size_t blocks_max_;  // in flight: what bounds the memory
    RowBuilder rows_;
    DataWriter& writer_;
    TokenizeReport report_;
    Progress progress_;
};

std::string data_json(const TokenizeOptions& options, const Tokenizer& tokenizer, const TokenizeReport& report) {
    const nlohmann::ordered_json json = {
        {"schema", 1},
        {"tokenizer_sha256", tokenizer.sha256()},
        {"vocab_size", tokenizer.vocab_size()},
        {"seq_len", options.seq_len},
        {"batching", to_string(options.batching)},
        {"template", options.text_template},
        {"split", to_string(options.split)},
        {"validation_percent", options.validation_percent},
        {"documents", report.documents},
        {"rows", report.rows},
        {"tokens", report.tokens},
        {"truncated", report.truncated},
        {"tokens_truncated", report.tokens_truncated},
        {"bytes", report.bytes},
        {"fingerprint", report.fingerprint},
    };
    return json.dump(2) + "\n";
}

// Removes the directory unless it was put in its place.
class WorkDirectory {
  public:
    explicit WorkDirectory(const std::filesystem::path& target)
        : target_(target.has_filename() ? target : target.parent_path()),
          path_(target_.string() + ".partial." + std::to_string(::getpid())) {}
    ~WorkDirectory() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    WorkDirectory(const WorkDirectory&) = delete;
    WorkDirectory& operator=(const WorkDirectory&) = delete;

    const std::filesystem::path& path() const { return path_; }

    Status create() {
        std::error_code error;
        std::filesystem::create_directories(path_, error);
        return status_of(error, "cannot create " + path_.string());
    }

    // A directory already in the place is replaced.
    Status put_in_place() {
        std::error_code error;
        const std::filesystem::path old = path_.string() + ".old";
        if (std::filesystem::exists(target_, error)) {
            std::filesystem::rename(target_, old, error);
            ATOLL_RETURN_IF_ERROR(status_of(error, "cannot move " + target_.string()));
        }
        std::filesystem::rename(path_, target_, error);
        ATOLL_RETURN_IF_ERROR(status_of(error, "cannot rename to " + target_.string()));
        std::filesystem::remove_all(old, error);
        return status_of(error, "cannot remove " + old.string());
    }

  private:
    static Status status_of(const std::error_code& error, const std::string& what) {
        return error ? Status(internal_error(what + ": " + error.message())) : Status();
    }
    std::filesystem::path target_;
    std::filesystem::path path_;
};

}  // namespace

const char* to_string(Batching batching) {
    return batching == Batching::kPacking ? "packing" : "padding";
}

Result<Batching> parse_batching(std::string_view name) {
    if (name == "packing") return Batching::kPacking;
    if (name == "padding") return Batching::kPadding;
    return invalid_argument("batching", "--batching must be packing or padding, not \"" + std::string(name) + "\"");
}

const char* to_string(Split split) {
    switch (split) {
        case Split::kAll:
            return "all";
        case Split::kTrain:
            return "train";
        case Split::kValidation:
            return "validation";
    }
    return "all";
}

Result<Split> parse_split(std::string_view name) {
    for (const Split split : {Split::kAll, Split::kTrain, Split::kValidation})
        if (name == to_string(split)) return split;
    return invalid_argument("split", "--split must be all, train or validation, not \"" + std::string(name) + "\"");
}

Result<TokenizeReport> tokenize(const TokenizeOptions& options) {
    ATOLL_RETURN_IF_ERROR(check_options(options));
    ATOLL_TRY(const Template text_template, Template::parse(options.text_template));
    ATOLL_TRY(const std::unique_ptr<Tokenizer> tokenizer, Tokenizer::open(options.tokenizer));
    WorkDirectory work(options.out);
    ATOLL_RETURN_IF_ERROR(work.create());
    const char* second = options.batching == Batching::kPacking ? "segment_ids" : "labels";
    ATOLL_TRY(DataWriter writer, DataWriter::create(work.path(), second, options.seq_len));
    ATOLL_TRY(TokenizeReport report, Run(options, *tokenizer, text_template, writer).execute());
    if (report.documents == 0)
        return invalid_argument("input",
                                std::string("the input holds no document for the split ") + to_string(options.split));
    ATOLL_TRY(report.fingerprint, writer.finish());
    ATOLL_RETURN_IF_ERROR(write_file_atomic(work.path() / "data.json", data_json(options, *tokenizer, report)));
    ATOLL_RETURN_IF_ERROR(work.put_in_place());
    return report;
}

std::string to_json_line(const TokenizeReport& report) {
    const nlohmann::ordered_json json = {
        {"documents", report.documents},
        {"rows", report.rows},
        {"tokens", report.tokens},
        {"truncated", report.truncated},
        {"tokens_truncated", report.tokens_truncated},
        {"bytes", report.bytes},
        {"wall_s", report.wall_s},
        {"fingerprint", report.fingerprint},
    };
    return json.dump();
}

}  // namespace atl::data
