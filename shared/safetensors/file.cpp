#include "shared/safetensors/file.h"

#include <utility>

#include "shared/base/mapped_file.h"

namespace atl::safetensors {
namespace {

Error in_file(const std::filesystem::path& path, const Error& error) {
    return {error.code, path.string() + ": " + error.message, path.string()};
}

}  // namespace

struct File::Impl {
    std::filesystem::path path;
    MappedFile file;
    Header header;
};

File::File(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
File::~File() = default;
File::File(File&&) noexcept = default;
File& File::operator=(File&&) noexcept = default;

Result<File> File::open(const std::filesystem::path& path) {
    auto impl = std::make_unique<Impl>();
    impl->path = path;
    ATOLL_TRY(impl->file, MappedFile::open(path));
    const std::span<const std::byte> bytes = impl->file.bytes();
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    auto length = header_length(text, bytes.size());
    if (!length.ok()) return in_file(path, length.error());
    auto header = parse_header(text.substr(8, *length), bytes.size());
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

Status File::read(const TensorInfo& tensor, std::uint64_t offset, std::span<std::byte> out) const {
    check(tensor.begin <= tensor.end && tensor.end <= impl_->header.data_size, "a tensor of another file");
    check(offset <= tensor.end - tensor.begin && out.size() <= tensor.end - tensor.begin - offset,
          "File::read beyond the tensor");
    return impl_->file.read(impl_->header.data_begin + tensor.begin + offset, out);
}

std::span<const std::byte> File::whole() const {
    return impl_->file.bytes();
}

}  // namespace atl::safetensors
