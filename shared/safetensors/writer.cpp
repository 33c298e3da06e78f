#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "shared/base/file.h"
#include "shared/safetensors/file.h"

namespace atl::safetensors {
namespace {

// Small appends are gathered into writes of this size.
constexpr std::size_t kBufferBytes = 1U << 20;

}  // namespace

struct Writer::Impl {
    Impl() = default;
    ~Impl() {
        if (fd.valid()) ::unlink(temporary.c_str());
    }
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;

    Status write(std::span<const std::byte> bytes) {
        return write_all(fd.get(), {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
    }

    Status flush() {
        ATOLL_RETURN_IF_ERROR(write(buffer));
        buffer.clear();
        return {};
    }

    Status append(std::span<const std::byte> bytes) {
        if (buffer.size() + bytes.size() > kBufferBytes) ATOLL_RETURN_IF_ERROR(flush());
        if (bytes.size() >= kBufferBytes) return write(bytes);
        buffer.insert(buffer.end(), bytes.begin(), bytes.end());
        return {};
    }

    std::filesystem::path path;
    std::string temporary;
    UniqueFd fd;  // valid until the file is in place
    std::vector<std::byte> buffer;
    std::uint64_t missing = 0;  // bytes of the data section still to come
};

Writer::Writer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Writer::~Writer() = default;
Writer::Writer(Writer&&) noexcept = default;

Result<Writer> Writer::create(const std::filesystem::path& path, std::vector<TensorInfo> tensors,
                              const std::map<std::string, std::string>& metadata) {
    const std::string header = make_header(tensors, metadata);
    const std::uint64_t data_size = tensors.empty() ? 0 : tensors.back().end;
    // What we would not read, we don't write.
    auto parsed = parse_header(std::string_view(header).substr(8), header.size() + data_size);
    if (!parsed.ok()) return invalid_argument(path.string(), path.string() + ": " + parsed.error().message);

    auto impl = std::make_unique<Impl>();
    impl->path = path;
    const std::filesystem::path directory = path.has_parent_path() ? path.parent_path() : ".";
    impl->temporary = (directory / ("." + path.filename().string() + ".XXXXXX")).string();
    impl->fd.reset(::mkostemp(impl->temporary.data(), O_CLOEXEC));
    if (!impl->fd.valid()) return file_error(path, "create a temporary file for");
    impl->missing = data_size;
    impl->buffer.reserve(kBufferBytes);
    ATOLL_RETURN_IF_ERROR(impl->append(std::as_bytes(std::span(header))));
    return Writer(std::move(impl));
}

Status Writer::append(std::span<const std::byte> bytes) {
    check(bytes.size() <= impl_->missing, "more bytes for a safetensors file than its tensors have");
    impl_->missing -= bytes.size();
    return impl_->append(bytes);
}

Status Writer::sync() {
    ATOLL_RETURN_IF_ERROR(impl_->flush());
    return ::fsync(impl_->fd.get()) == 0 ? Status() : Status(file_error(impl_->path, "sync"));
}

Status Writer::finish() {
    check(impl_->fd.valid(), "Writer::finish called twice");
    if (impl_->missing != 0)
        return internal_error(impl_->path.string() + ": " + std::to_string(impl_->missing) + " bytes were not written");
    ATOLL_RETURN_IF_ERROR(impl_->flush());
    if (::fchmod(impl_->fd.get(), 0644) != 0 || ::fsync(impl_->fd.get()) != 0) return file_error(impl_->path, "sync");
    if (::rename(impl_->temporary.c_str(), impl_->path.c_str()) != 0) return file_error(impl_->path, "rename to");
    impl_->fd.reset();
    (void)sync_path(impl_->path.has_parent_path() ? impl_->path.parent_path() : ".");
    return {};
}

}  // namespace atl::safetensors
