#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shared/base/result.h"
#include "shared/delta/control_variate.h"
#include "shared/safetensors/file.h"
#include "trainer/weights/load.h"

// The files of parallel::ControlVariate. A run writes the mean of its gradients beside its model, in the int8 format of
// shared/delta/README.md (each tensor of the base, as if it were the change of a model of zeros), and keeps the same
// for the site's next run, in OUT.state. What all sites' means come to lies beside the model that a run begins with, as
// F32 or BF16. shared/delta/control_variate.h has the names.
namespace atl::weights {

// What a run has kept of its own.
class KeptControlVariate {
  public:
    // As RoundingError::open().
    static Result<KeptControlVariate> open(const std::filesystem::path& file, const std::vector<TensorSpec>& tensors,
                                           const std::string& name);

    // Subtracts the tensor's elements from `begin` on.
    Status subtract(const std::string& tensor, std::uint64_t begin, std::span<float> from) const;
    Result<std::string> sha256() const;  // of all that it holds

  private:
    explicit KeptControlVariate(safetensors::File file);
    safetensors::File file_;
};

// What all sites' come to.
class CommonControlVariate {
  public:
    // Absent: the model has none. kInvalidArgument or kNotFound names the file: it lacks a tensor, or has it in another
    // shape or dtype, or a file of the model has none beside it.
    static Result<std::optional<CommonControlVariate>> open(const std::filesystem::path& model,
                                                            const std::vector<TensorSpec>& tensors);

    // The tensor's elements from `begin` on. kInvalidArgument names the file: a value is not finite.
    Status read(const std::string& tensor, std::uint64_t begin, std::span<float> into) const;
    Result<std::string> sha256() const;  // reads all of it

  private:
    struct Place {
        const safetensors::File* file;
        const safetensors::TensorInfo* tensor;
    };
    explicit CommonControlVariate(std::vector<safetensors::File> files) : files_(std::move(files)) {}
    std::optional<Place> find(const std::string& tensor) const;
    std::vector<safetensors::File> files_;
};

// Writes a run's own, twice.
class ControlVariateWriter {
  public:
    struct Options {
        std::filesystem::path file;  // to be sent
        std::filesystem::path kept;  // to stay
        std::string base_name;       // of the base, as the first one's metadata say it
        std::string name;            // whose it is, as the second one's do
    };
    static Result<ControlVariateWriter> create(const Options& options, const std::vector<TensorSpec>& tensors);
    ControlVariateWriter(ControlVariateWriter&&) noexcept;
    ~ControlVariateWriter();  // without finish(): removes what it wrote

    // The next values, of one tensor: whole blocks (delta::kBlockElements), unless they are its last. They become what
    // rounding loses of them. kInvalidArgument names the tensor when one is not finite.
    Status append(const std::string& tensor, std::span<float> values);
    Status finish();

    // Of both files.
    static std::uint64_t bytes(const std::vector<TensorSpec>& tensors);

  private:
    struct Impl;
    explicit ControlVariateWriter(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace atl::weights
