#pragma once

#include <string>

#include "services/dispatch/domain/facility.h"

// Commands that people are advised to type. Pure.
namespace atl::dispatch {

// "atoll facility set NAME ARGUMENTS", as a shell takes it.
std::string set_command(const Facility& facility, const std::string& arguments);
// That command for one field of the record.
std::string set_field_command(const Facility& facility, const std::string& field, const std::string& value);

}  // namespace atl::dispatch
