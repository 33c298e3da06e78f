#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shared/base/result.h"
#include "shared/safetensors/file.h"
#include "trainer/weights/load.h"

// What rounding lost of a training's change when it was written as int8 or int4: the next training adds it to its own
// (error feedback). An fp32 file of the model's tensors that stays at the site, with their sha256 at its end.
namespace atl::weights {

// "OUT.state/rounding_error.safetensors"
inline constexpr char kRoundingErrorFile[] = "rounding_error.safetensors";

class RoundingError {
  public:
    // Reads and checks all of it. kNotFound: there is none. kInvalidArgument names the file: it is damaged, or of other
    // tensors. kConflict: it has another name than `name`; empty: any will do.
    static Result<RoundingError> open(const std::filesystem::path& file, const std::vector<TensorSpec>& tensors,
                                      const std::string& name);

    // The tensor's elements from `begin` on.
    Status read(const std::string& tensor, std::uint64_t begin, std::span<float> into) const;

  private:
    explicit RoundingError(safetensors::File file);
    safetensors::File file_;
};

// Writes such a file, tensor by tensor in the order of the specs; it appears with finish().
class RoundingErrorWriter {
  public:
    static Result<RoundingErrorWriter> create(const std::filesystem::path& file, const std::vector<TensorSpec>& tensors,
                                              const std::string& name);
    RoundingErrorWriter(RoundingErrorWriter&&) noexcept;
    ~RoundingErrorWriter();

    Status append(std::span<const float> values);
    Status finish();

  private:
    struct Impl;
    explicit RoundingErrorWriter(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace atl::weights
