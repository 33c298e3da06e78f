#include "trainer/tokenize/data_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "shared/digest/digest.h"
#include "shared/safetensors/safetensors.h"

namespace atl::tokenize {
namespace {

constexpr std::size_t kHeaderBytes = 512;
constexpr std::size_t kBufferElements = 1U << 18;
constexpr auto kElementBytes = static_cast<std::int64_t>(sizeof(std::int32_t));

// The sha256 of a file's bytes from `begin`; nothing when it ends before `count` of them.
Result<std::optional<std::string>> sha256_of_range(int fd, const std::filesystem::path& path, std::int64_t begin,
                                                   std::int64_t count) {
    digest::Sha256 hash;
    std::vector<char> block(1U << 20);
    while (count > 0) {
        const auto wanted = static_cast<std::size_t>(std::min<std::int64_t>(count, std::ssize(block)));
        const ssize_t got = ::pread(fd, block.data(), wanted, begin);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return file_error(path, "read");
        if (got == 0) return std::optional<std::string>();
        hash.update({block.data(), static_cast<std::size_t>(got)});
        begin += got;
        count -= got;
    }
    return std::optional(hash.finish());
}

Status copy_all(int from, const std::filesystem::path& from_path, int to, const std::filesystem::path& to_path) {
    if (::lseek(from, 0, SEEK_SET) != 0) return file_error(from_path, "seek in");
    std::vector<char> block(1U << 20);
    for (;;) {
        const ssize_t got = ::read(from, block.data(), block.size());
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return file_error(from_path, "read");
        if (got == 0) return {};
        ATOLL_RETURN_IF_ERROR(write_all(to, {block.data(), static_cast<std::size_t>(got)}, to_path));
    }
}

}  // namespace

Status DataWriter::Column::open() {
    fd.reset(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (!fd.valid()) return file_error(path, "create");
    part.emplace();
    return {};
}

std::int64_t DataWriter::Column::end_byte() const {
    return first_byte + elements * kElementBytes;
}

Result<bool> DataWriter::Column::holds(std::int64_t count, const std::string& sha256) const {
    ATOLL_TRY(const auto actual, sha256_of_range(fd.get(), path, end_byte(), count * kElementBytes));
    return actual == sha256;
}

Status DataWriter::Column::append(std::span<const std::int32_t> values) {
    buffer.insert(buffer.end(), values.begin(), values.end());
    elements += std::ssize(values);
    return buffer.size() < kBufferElements ? Status() : flush();
}

Status DataWriter::Column::flush() {
    const auto bytes = std::as_bytes(std::span(buffer));
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    part->update(text);
    ATOLL_RETURN_IF_ERROR(write_all(fd.get(), text, path));
    buffer.clear();
    return {};
}

Result<std::string> DataWriter::Column::end_part() {
    ATOLL_RETURN_IF_ERROR(flush());
    if (::fdatasync(fd.get()) != 0) return file_error(path, "sync");
    std::string sha256 = part->finish();
    part.emplace();
    return sha256;
}

Result<DataWriter> DataWriter::open(const Place& place, const std::vector<std::string>& column_names,
                                    std::int64_t seq_len) {
    DataWriter writer;
    writer.seq_len_ = seq_len;
    for (const std::string& name : column_names) {
        Column& column = writer.columns_.emplace_back();
        const bool is_first = writer.columns_.size() == 1;
        column.name = name;
        column.path = is_first ? place.data / "data.safetensors" : place.spool / (name + ".spool");
        column.first_byte = is_first ? kHeaderBytes : 0;
        ATOLL_RETURN_IF_ERROR(column.open());
    }
    return writer;
}

Result<bool> DataWriter::take_part(std::int64_t elements, const std::vector<std::string>& sha256) {
    const std::int64_t count = elements - this->elements();
    if (count < 0 || sha256.size() != columns_.size()) return false;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
        ATOLL_TRY(const bool holds, columns_[i].holds(count, sha256[i]));
        if (!holds) return false;
    }
    for (Column& column : columns_) column.elements += count;
    return true;
}

Status DataWriter::begin() {
    for (Column& column : columns_) {
        // A file that is shorter than its header grows: the header is written last.
        if (::ftruncate(column.fd.get(), column.end_byte()) != 0 ||
            ::lseek(column.fd.get(), column.end_byte(), SEEK_SET) < 0)
            return file_error(column.path, "truncate");
    }
    return {};
}

Status DataWriter::append(std::span<const std::vector<std::int32_t>> columns) {
    check(columns.size() == columns_.size(), "DataWriter::append: another number of columns");
    for (std::size_t i = 0; i < columns.size(); ++i) {
        check(columns[i].size() == columns[0].size(), "DataWriter::append: columns of several lengths");
        ATOLL_RETURN_IF_ERROR(columns_[i].append(columns[i]));
    }
    return {};
}

Result<std::vector<std::string>> DataWriter::end_part() {
    std::vector<std::string> digests;
    for (Column& column : columns_) {
        ATOLL_TRY(std::string sha256, column.end_part());
        digests.push_back(std::move(sha256));
    }
    return digests;
}

Result<std::string> DataWriter::finish() {
    check(elements() % seq_len_ == 0, "DataWriter::finish within a row");
    Column& first = columns_[0];
    std::vector<safetensors::TensorInfo> tensors;
    for (Column& column : columns_) {
        ATOLL_RETURN_IF_ERROR(column.flush());
        tensors.push_back({column.name, safetensors::DType::kI32, {rows(), seq_len_}, 0, 0});
        if (&column == &first) continue;
        ATOLL_RETURN_IF_ERROR(copy_all(column.fd.get(), column.path, first.fd.get(), first.path));
    }
    const std::string header = safetensors::make_header(tensors, {}, kHeaderBytes);
    check(header.size() == kHeaderBytes, "the reserved header is too small");
    if (::pwrite(first.fd.get(), header.data(), header.size(), 0) != static_cast<ssize_t>(header.size()) ||
        ::fsync(first.fd.get()) != 0)
        return file_error(first.path, "complete");
    first.fd.reset();
    return digest::sha256_file(first.path);
}

}  // namespace atl::tokenize
