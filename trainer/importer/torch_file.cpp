#include "trainer/importer/torch_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "shared/base/text.h"
#include "trainer/importer/pickle.h"

namespace atl::importer {
namespace {

constexpr std::string_view kPickle = "data.pkl";
constexpr std::size_t kPickleBytesMax = 64U << 20;  // a million tensors

std::string_view as_text(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The folder that all members are in; empty if there is none with a data.pkl.
std::string find_root(const StoredZip& zip) {
    for (const auto& [name, bytes] : zip.members()) {
        const std::size_t slash = name.find('/');
        if (slash != std::string::npos && name.substr(slash + 1) == kPickle) return name.substr(0, slash + 1);
    }
    return {};
}

// Every tensor's storage must be there, with the bytes that its type and size need.
Status check_storage(const StoredZip& zip, const std::string& root, const StoredTensor& tensor) {
    const std::string name = root + "data/" + tensor.storage;
    const auto found = zip.members().find(name);
    if (found == zip.members().end())
        return invalid_argument(
            "", "tensor " + in_quotes(tensor.name) + " is in " + in_quotes(name) + ", which is not there");
    const auto width = static_cast<std::uint64_t>(safetensors::size_bytes(tensor.dtype));
    const std::uint64_t size = found->second.size();
    if (size % width != 0 || size / width != static_cast<std::uint64_t>(tensor.storage_elements))
        return invalid_argument("", "the storage " + in_quotes(name) + " of tensor " + in_quotes(tensor.name) +
                                        " has " + std::to_string(size) + " bytes, but is said to hold " +
                                        std::to_string(tensor.storage_elements) + " elements of " +
                                        std::to_string(width));
    return {};
}

}  // namespace

Error in_file(const std::filesystem::path& path, const std::string& what) {
    return invalid_argument(path.string(), path.string() + ": " + what);
}

Result<TorchFile> TorchFile::open(const std::filesystem::path& path) {
    TorchFile file;
    file.path_ = path;
    ATOLL_TRY(file.zip_, StoredZip::open(path));
    const auto& members = file.zip_.members();
    file.root_ = find_root(file.zip_);
    if (file.root_.empty()) return in_file(path, "holds no data.pkl: torch.save did not write it");
    const auto order = members.find(file.root_ + "byteorder");
    if (order != members.end() && as_text(order->second) != "little")
        return in_file(path, "its byte order is " + in_quotes(as_text(order->second)) + ", not little");
    const auto pickle = members.at(file.root_ + std::string(kPickle));
    if (pickle.size() > kPickleBytesMax) return in_file(path, "its data.pkl is larger than any model's");
    auto tensors = read_state_dict(pickle);
    if (!tensors.ok()) return in_file(path, "data.pkl: " + tensors.error().message);
    file.tensors_ = std::move(tensors).value();
    for (const StoredTensor& tensor : file.tensors_) {
        const Status status = check_storage(file.zip_, file.root_, tensor);
        if (!status.ok()) return in_file(path, status.error().message);
    }
    return file;
}

const StoredTensor* TorchFile::find(std::string_view name) const {
    const auto found =
        std::find_if(tensors_.begin(), tensors_.end(), [&](const auto& one) { return one.name == name; });
    return found == tensors_.end() ? nullptr : &*found;
}

std::span<const std::byte> TorchFile::bytes(const StoredTensor& tensor) const {
    const auto width = static_cast<std::size_t>(safetensors::size_bytes(tensor.dtype));
    return zip_.members()
        .at(root_ + "data/" + tensor.storage)
        .subspan(static_cast<std::size_t>(tensor.begin) * width,
                 static_cast<std::size_t>(tensor.element_count) * width);
}

void TorchFile::forget(const StoredTensor& tensor) const {
    const auto span = bytes(tensor);
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto address = reinterpret_cast<std::uintptr_t>(span.data());
    const std::uintptr_t begin = (address + page - 1) / page * page, end = (address + span.size()) / page * page;
    if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace atl::importer
