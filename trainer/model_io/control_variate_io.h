#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "trainer/comm/comm.h"
#include "trainer/parallel/control_variate.h"
#include "trainer/weights/control_variate.h"

namespace atl::model_io {

// Where a run's control variates are to be found.
struct ControlVariateFrom {
    std::filesystem::path model;  // that it begins with
    std::filesystem::path kept;   // the site's own of the round before; empty: there was none
    std::string if_named;         // whose alone is taken, and only if it fits; empty: all others are errors
    bool weighs_rows = false;     // the sites' changes of a token's row are weighed by how often each saw the token
};

// What corrects a run's gradients: the mean of all sites' gradients, c, and this site's own, cᵢ. Rank 0 reads; every
// rank makes the same calls and gets the same outcomes.
class ControlVariateSource {
  public:
    // Finds and checks both, for which it reads all of them. Where one is missing nothing is corrected. Errors name the
    // file.
    static Result<ControlVariateSource> open(const ControlVariateFrom& from, const model::Model& model,
                                             comm::Comm& comm);

    // What stands for the content of both; empty: nothing is corrected.
    const std::string& sha256() const { return sha256_; }
    // On rank 0: cᵢ was asked for, is not taken, and why was said in a warning.
    bool begins_anew() const { return begins_anew_; }

    // Sets factor · (c − cᵢ), each operation rounded to fp32, as the correction; nothing where nothing is corrected.
    // Where rows are weighed, that of a token's row is multiplied with |cᵢ| / |c| of the row if that is less than one.
    // Once.
    Status load(double factor, const parallel::ParameterStore& store, parallel::ControlVariate& control,
                kernels::Backend& backend, comm::Comm& comm);

  private:
    Status open_files(const ControlVariateFrom& from, const model::Model& model);
    Status read(float factor, const model::Parameter& parameter, std::int64_t begin, std::span<float> values) const;
    bool has_weighed_rows(const model::Parameter& parameter) const;

    std::optional<weights::CommonControlVariate> common_;  // on rank 0, both or none
    std::optional<weights::KeptControlVariate> own_;
    std::string sha256_;
    bool weighs_rows_ = false;
    bool begins_anew_ = false;
};

// Where the mean of a run's gradients goes.
struct SaveControlVariate {
    weights::ControlVariateWriter::Options files;
    double steps = 0;  // that the gradient sums are of; 0: they are zero
};
// Writes it on rank 0, from the store's gradient sums. Every rank takes part and gets the same outcome.
Status save_control_variate(const SaveControlVariate& save, parallel::ParameterStore& store, kernels::Backend& backend,
                            comm::Comm& comm);
// What it takes on the disk.
std::uint64_t control_variate_bytes(const model::Model& model);

}  // namespace atl::model_io
