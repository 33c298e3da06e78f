#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shared/json/json.h"

namespace atl::dispatch {

// The image (a SIF file) that a site's programs are in, and how a container of it is started.
struct ImageSpec {
    std::string path;                  // absolute, at the site
    std::string sha256;                // of the file; empty: whatever lies there
    std::string runtime;               // "singularity" or "apptainer"; empty: whichever is in PATH
    std::string gpu;                   // "none", "nv" or "rocm"
    std::vector<std::string> binds;    // beside the work directory: "/place" or "/place:/inside:ro"
    std::vector<std::string> options;  // of the runtime's exec, beside dispatch's own
    bool operator==(const ImageSpec&) const = default;
};

// Null: none.
Result<std::optional<ImageSpec>> parse_image_spec(const json::Json& value, const std::string& field);
json::Json to_json(const ImageSpec& image);

}  // namespace atl::dispatch
