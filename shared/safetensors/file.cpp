#include "shared/safetensors/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "shared/base/file.h"

namespace atl::safetensors {
namespace {

Error in_file(const std::filesystem::path& path, const Error& error) {
    return {error.code, path.string() + ": " + error.message, path.string()};
}

}  // namespace

struct File::Impl {
    Impl() = default;
    ~Impl() {
        if (size != 0) ::munmap(address, size);
    }
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;

    std::filesystem::path path;
    void* address = nullptr;
    std::size_t size = 0;
    Header header;
};

File::File(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
File::~File() = default;
File::File(File&&) noexcept = default;
File& File::operator=(File&&) noexcept = default;

Result<File> File::open(const std::filesystem::path& path) {
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) return file_error(path, "open");
    struct stat status{};
    if (::fstat(fd.get(), &status) != 0) return file_error(path, "stat");
    if (!S_ISREG(status.st_mode)) return invalid_argument(path.string(), path.string() + " is not a regular file");
    auto impl = std::make_unique<Impl>();
    impl->path = path;
    if (status.st_size > 0) {
        void* address = ::mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_PRIVATE, fd.get(), 0);
        if (address == MAP_FAILED) return file_error(path, "map");
        impl->address = address;
        impl->size = static_cast<std::size_t>(status.st_size);
    }
    const std::string_view text(static_cast<const char*>(impl->address), impl->size);
    auto length = header_length(text, impl->size);
    if (!length.ok()) return in_file(path, length.error());
    auto header = parse_header(text.substr(8, *length), impl->size);
    if (!header.ok()) return in_file(path, header.error());
    impl->header = std::move(header).value();
    return File(std::move(impl));
}

const Header& File::header() const {
    return impl_->header;
}

const std::filesystem::path& File::path() const {
    return impl_->path;
}

std::span<const std::byte> File::bytes(const TensorInfo& tensor) const {
    check(tensor.begin <= tensor.end && tensor.end <= impl_->header.data_size, "a tensor of another file");
    return whole().subspan(impl_->header.data_begin + tensor.begin, tensor.end - tensor.begin);
}

std::span<const std::byte> File::whole() const {
    return {static_cast<const std::byte*>(impl_->address), impl_->size};
}

}  // namespace atl::safetensors
