#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shared/base/result.h"
#include "shared/base/staged_directory.h"
#include "shared/delta/delta.h"
#include "trainer/weights/load.h"
#include "trainer/weights/rounding_error.h"
#include "trainer/weights/save.h"

namespace atl::weights {

struct DeltaOptions {
    delta::Format format = delta::Format::kInt8;
    std::string base_name;  // of the base, as delta.safetensors says it
    // The error that the training before left is added to the change; none: there was no such training.
    std::optional<RoundingError> error = {};
    std::filesystem::path error_out;                   // where this one's goes
    std::string error_name;                            // whose it is
    std::map<std::string, std::string> metadata = {};  // what else the file says
};

// Writes the change from a base as delta.safetensors (shared/delta), beside files that are staged already, as
// WeightWriter writes whole models: `append` takes the new weights, tensor by tensor in the order of the specs, in
// pieces of any size. The base's weights are read meanwhile. What rounding loses appears in its own file before the
// delta does.
class DeltaWriter {
  public:
    // `gate`: the file without which the directory is nothing. The base has these tensors.
    static Result<DeltaWriter> create(StagedDirectory staged, std::string gate, WeightReader base,
                                      std::vector<TensorSpec> tensors, DeltaOptions options);
    ~DeltaWriter();  // without finish(): removes what it wrote
    DeltaWriter(DeltaWriter&&) noexcept;
    DeltaWriter& operator=(DeltaWriter&&) noexcept;

    // kInvalidArgument names the tensor when a value is NaN or infinite.
    Status append(std::span<const float> values);
    // As WeightWriter's.
    Status add_file(const std::string& name, std::string_view bytes);
    Status finish();
    const std::filesystem::path& staged() const;
    std::uint64_t bytes() const;  // of the delta and of the rounding error

  private:
    struct Impl;
    explicit DeltaWriter(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace atl::weights
