#include "trainer/tokenize/partial_run.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <initializer_list>
#include <utility>

#include "shared/base/file_lock.h"
#include "shared/base/out_directory.h"
#include "shared/json/json.h"
#include "shared/log/log.h"

namespace atl::tokenize {
namespace {

constexpr std::int64_t kMax = std::int64_t{1} << 62;

Status to_status(const std::error_code& error, const char* what, const std::filesystem::path& path) {
    return error ? Status(file_error(path, what, error)) : Status();
}

Status make_directory(const std::filesystem::path& path) {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    return to_status(error, "create", path);
}

Status remove_in(const std::filesystem::path& directory, std::initializer_list<const char*> names) {
    std::error_code error;
    for (const char* name : names) {
        std::filesystem::remove_all(directory / name, error);
        ATOLL_RETURN_IF_ERROR(to_status(error, "remove", directory / name));
    }
    return {};
}

// The lock of OUT.partial, which is made. A process that ends removes the file: its lock would keep nobody away then.
Result<UniqueFd> lock_partial(const std::filesystem::path& directory, const std::filesystem::path& target) {
    const Error taken = conflict("another process is making " + target.string(), "out");
    const auto lock = directory / "lock";
    constexpr int kTries = 10;
    for (int i = 0; i < kTries; ++i) {
        ATOLL_RETURN_IF_ERROR(make_directory(directory));
        UniqueFd fd(::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
        if (!fd.valid()) return file_error(lock, "create");
        if (!try_lock(fd)) return taken;
        if (leads_to(lock, fd)) return fd;
    }
    return taken;
}

std::vector<PartRecord> read_parts(const std::filesystem::path& journal) {
    std::vector<PartRecord> parts;
    const auto text = read_file(journal);
    if (!text.ok()) return parts;
    for (std::string_view rest = *text; rest.find('\n') != std::string_view::npos;) {
        const auto end = rest.find('\n');
        auto part = PartRecord::parse(rest.substr(0, end));
        if (!part.ok()) break;
        parts.push_back(std::move(part).value());
        rest.remove_prefix(end + 1);
    }
    return parts;
}

}  // namespace

std::string PartRecord::to_line() const {
    const json::Json json = {{"file", next.file},
                             {"offset", next.offset},
                             {"line", next.line},
                             {"record", next.record},
                             {"fill", rows.fill},
                             {"segment", rows.segment},
                             {"tokens", rows.tokens},
                             {"targets", rows.targets},
                             {"longer", rows.documents_longer},
                             {"tokens_truncated", rows.tokens_truncated},
                             {"documents", documents},
                             {"bytes", bytes},
                             {"elements", elements},
                             {"sha256", sha256}};
    return json.dump() + "\n";
}

Result<PartRecord> PartRecord::parse(std::string_view line) {
    ATOLL_TRY(const json::Json parsed, json::parse(line));
    if (!parsed.is_object()) return invalid_argument("parts.jsonl", "a line is no object");
    json::ObjectReader reader(parsed);
    const auto number = [&](const char* key) { return reader.required_integer(key, 0, kMax); };
    PartRecord part;
    part.next.file = static_cast<std::size_t>(number("file"));
    part.next.offset = static_cast<std::uint64_t>(number("offset"));
    part.next.line = number("line");
    part.next.record = number("record");
    part.rows.fill = number("fill");
    part.rows.segment = static_cast<std::int32_t>(reader.required_integer("segment", 0, 1 << 30));
    part.rows.tokens = number("tokens");
    part.rows.targets = number("targets");
    part.rows.documents_longer = number("longer");
    part.rows.tokens_truncated = number("tokens_truncated");
    part.documents = number("documents");
    part.bytes = number("bytes");
    part.elements = number("elements");
    for (const json::Json& digest : reader.required_array("sha256"))
        part.sha256.push_back(digest.is_string() ? digest.get<std::string>() : "");
    ATOLL_RETURN_IF_ERROR(reader.finish());
    return part;
}

Result<PartialRun> PartialRun::open(const std::filesystem::path& target, const nlohmann::json& description) {
    PartialRun run;
    run.target_ = target.has_filename() ? target : target.parent_path();
    run.path_ = run.target_.string() + ".partial";
    ATOLL_TRY(run.lock_, lock_partial(run.path_, run.target_));
    const std::string text = description.dump(2) + "\n";
    const auto earlier = read_file(run.path_ / "run.json");
    if (earlier.ok() && *earlier == text) {
        run.parts_ = read_parts(run.path_ / "parts.jsonl");
    } else {
        if (earlier.ok()) spdlog::info("tokenize: {} is of other input or options: begins anew", run.path_.string());
        ATOLL_RETURN_IF_ERROR(run.begin_anew(text));
    }
    ATOLL_RETURN_IF_ERROR(run.create());
    return run;
}

Status PartialRun::begin_anew(const std::string& description) {
    ATOLL_RETURN_IF_ERROR(remove_in(path_, {"run.json", "parts.jsonl", "data", "spool"}));
    return write_file_atomic(path_ / "run.json", description);
}

Status PartialRun::create() {
    ATOLL_RETURN_IF_ERROR(make_directory(data()));
    ATOLL_RETURN_IF_ERROR(make_directory(spool()));
    const auto journal = path_ / "parts.jsonl";
    journal_.reset(::open(journal.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (!journal_.valid()) return file_error(journal, "create");
    return {};
}

Status PartialRun::keep(std::size_t count) {
    parts_.resize(count);
    std::string text;
    for (const PartRecord& part : parts_) text += part.to_line();
    ATOLL_RETURN_IF_ERROR(write_file_atomic(path_ / "parts.jsonl", text));
    return create();  // the journal is another file now
}

Status PartialRun::add(const PartRecord& part) {
    const std::string line = part.to_line();
    if (::write(journal_.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()) ||
        ::fdatasync(journal_.get()) != 0)
        return file_error(path_ / "parts.jsonl", "write");
    return {};
}

bool is_data_file(std::string_view name) {
    return name == kDataInfo || name == "data.safetensors";
}

Status PartialRun::put_in_place() {
    ATOLL_RETURN_IF_ERROR(check_replaceable(target_, kDataInfo, is_data_file));  // again: hours may have passed
    std::error_code error;
    const auto old = path_ / "old";
    std::filesystem::remove_all(old, error);
    if (std::filesystem::exists(target_, error)) {
        std::filesystem::rename(target_, old, error);
        ATOLL_RETURN_IF_ERROR(to_status(error, "move", target_));
    }
    std::filesystem::rename(data(), target_, error);
    ATOLL_RETURN_IF_ERROR(to_status(error, "rename to", target_));
    return discard();
}

Status PartialRun::discard() {
    ATOLL_RETURN_IF_ERROR(remove_in(path_, {"run.json", "parts.jsonl", "data", "spool", "old", "lock"}));
    std::error_code holds_more;
    std::filesystem::remove(path_, holds_more);
    return {};
}

}  // namespace atl::tokenize
