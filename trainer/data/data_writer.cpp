#include "trainer/data/data_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "shared/digest/digest.h"
#include "shared/safetensors/safetensors.h"

namespace atl::data {
namespace {

constexpr std::size_t kHeaderBytes = 512;
constexpr std::size_t kBufferElements = 1U << 18;

Status write_all(int fd, std::string_view bytes, const std::filesystem::path& path) {
    while (!bytes.empty()) {
        const ssize_t written = ::write(fd, bytes.data(), bytes.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return file_error(path, "write");
        bytes.remove_prefix(static_cast<std::size_t>(written));
    }
    return {};
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

Status DataWriter::Spool::append(std::span<const std::int32_t> values) {
    buffer.insert(buffer.end(), values.begin(), values.end());
    return buffer.size() < kBufferElements ? Status() : flush();
}

Status DataWriter::Spool::flush() {
    const auto bytes = std::as_bytes(std::span(buffer));
    ATOLL_RETURN_IF_ERROR(write_all(fd.get(), {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path));
    buffer.clear();
    return {};
}

Result<DataWriter> DataWriter::create(const std::filesystem::path& directory, std::string second_name,
                                      std::int64_t seq_len) {
    DataWriter writer;
    writer.second_name_ = std::move(second_name);
    writer.seq_len_ = seq_len;
    writer.ids_.path = directory / "data.safetensors";
    writer.second_.path = directory / ("." + writer.second_name_ + ".spool");
    for (Spool* spool : {&writer.ids_, &writer.second_}) {
        spool->fd.reset(::open(spool->path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
        if (!spool->fd.valid()) return file_error(spool->path, "create");
    }
    ATOLL_RETURN_IF_ERROR(write_all(writer.ids_.fd.get(), std::string(kHeaderBytes, ' '), writer.ids_.path));
    return writer;
}

Status DataWriter::append(std::span<const std::int32_t> input_ids, std::span<const std::int32_t> second) {
    check(input_ids.size() == second.size() && input_ids.size() % static_cast<std::size_t>(seq_len_) == 0,
          "DataWriter::append takes whole rows");
    rows_ += static_cast<std::int64_t>(input_ids.size()) / seq_len_;
    ATOLL_RETURN_IF_ERROR(ids_.append(input_ids));
    return second_.append(second);
}

Result<std::string> DataWriter::finish() {
    using safetensors::DType;
    ATOLL_RETURN_IF_ERROR(ids_.flush());
    ATOLL_RETURN_IF_ERROR(second_.flush());
    ATOLL_RETURN_IF_ERROR(copy_all(second_.fd.get(), second_.path, ids_.fd.get(), ids_.path));
    std::vector<safetensors::TensorInfo> tensors = {{"input_ids", DType::kI32, {rows_, seq_len_}, 0, 0},
                                                    {second_name_, DType::kI32, {rows_, seq_len_}, 0, 0}};
    const std::string header = safetensors::make_header(tensors, {}, kHeaderBytes);
    check(header.size() == kHeaderBytes, "the reserved header is too small");
    if (::pwrite(ids_.fd.get(), header.data(), header.size(), 0) != static_cast<ssize_t>(header.size()) ||
        ::fsync(ids_.fd.get()) != 0)
        return file_error(ids_.path, "complete");
    ids_.fd.reset();
    second_.fd.reset();
    ::unlink(second_.path.c_str());
    return digest::sha256_file(ids_.path);
}

}  // namespace atl::data
