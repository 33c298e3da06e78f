#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "shared/safetensors/safetensors.h"

namespace atl::safetensors {

// A memory-mapped safetensors file, read only. Errors name the file.
class File {
  public:
    static Result<File> open(const std::filesystem::path& path);
    ~File();
    File(File&&) noexcept;
    File& operator=(File&&) noexcept;

    const Header& header() const;
    const std::filesystem::path& path() const;
    std::span<const std::byte> bytes(const TensorInfo& tensor) const;
    std::span<const std::byte> whole() const;
    // Reads out.size() bytes of a tensor from `offset` on, without mapping pages: faster for what is read once, and a
    // file that has shrunk or a broken disk is an error, not a signal. Any number of threads.
    Status read(const TensorInfo& tensor, std::uint64_t offset, std::span<std::byte> out) const;

  private:
    struct Impl;
    explicit File(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

using WeightMap = std::map<std::string, std::string, std::less<>>;  // tensor -> name of a file beside the index

// The index of a sharded model (PyTorch's pytorch_model.bin.index.json too): {"metadata": {…}, "weight_map": {"tensor":
// "file", …}}. A tensor that comes twice and a file that is not a plain name are errors.
Result<WeightMap> read_weight_index(const std::filesystem::path& path);

// The tensors of a Hugging Face model directory: model.safetensors, or the shards that model.safetensors.index.json
// names.
//
//   ATOLL_TRY(const auto model, safetensors::Model::open("/models/llama"));
//   for (const auto& [file, tensor] : model.entries()) {
//       std::vector<std::byte> bytes(tensor->end - tensor->begin);
//       ATOLL_RETURN_IF_ERROR(file->read(*tensor, 0, bytes));
//   }
class Model {
  public:
    static Result<Model> open(const std::filesystem::path& directory);
    // The tensors of one file of any name.
    static Result<Model> open_file(const std::filesystem::path& path);

    struct Entry {
        const File* file;
        const TensorInfo* tensor;
    };
    std::vector<Entry> entries() const;  // all tensors, file by file, in file order
    const Entry* find(std::string_view name) const;
    const std::vector<File>& files() const { return files_; }

  private:
    void index_tensors();
    std::vector<File> files_;
    std::map<std::string, Entry, std::less<>> by_name_;
};

// Writes a file tensor by tensor, in the order given; fsyncs and renames in finish(), so that a crash leaves no half
// file.
//
//   ATOLL_TRY(auto writer, safetensors::Writer::create(path, {{.name = "w", .dtype = DType::kF32, .shape = {2, 3}}}));
//   ATOLL_RETURN_IF_ERROR(writer.append(std::as_bytes(std::span(w))));  // in any number of pieces
//   return writer.finish();                                             // without it there is no file
class Writer {
  public:
    static Result<Writer> create(const std::filesystem::path& path, std::vector<TensorInfo> tensors,
                                 const std::map<std::string, std::string>& metadata = {});
    ~Writer();
    Writer(Writer&&) noexcept;

    Status append(std::span<const std::byte> bytes);  // the next bytes of the data section
    Status sync();    // what was appended is on the disk: finish() has that much less to wait for
    Status finish();  // an error if bytes are missing

  private:
    struct Impl;
    explicit Writer(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace atl::safetensors
