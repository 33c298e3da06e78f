#pragma once

#include <string>

#include "services/dispatch/domain/facility.h"

namespace atl::dispatch {

// Shell text that becomes what it is called with, run in the facility's image: in the same directory, with the work
// directory and the host's /dev/shm, and of the environment what MPI, the batch system and the facility's record have
// set. Empty: the facility has no image.
std::string render_image_runner(const Facility& facility);

// Stands in front of a script on the login node: `atoll` and `atoll-trainer` in PATH are those of the facility's image.
// Where the record has its digest they run nothing of another image, or of one whose digest is not known. Empty: the
// facility has none.
std::string render_image_programs(const Facility& facility);

// Defines know_image, which a script that uses moving.sh calls before it runs a program: it does nothing where the
// facility's record has no digest of an image.
std::string render_know_image(const Facility& facility);

// Names for scripts that look at the facility's image: $image, $kept, $wanted, the digest of the record, and functions.
std::string render_image_digest(const Facility& facility);

// Shell text that defines verify_image, for a batch job. Empty: the facility's record has no digest of an image.
std::string render_image_check(const Facility& facility);

// Shell text that defines verify_image for the batch job of a facility's check: it says what the image is. Empty: there
// is none.
std::string render_image_report(const Facility& facility);

}  // namespace atl::dispatch
