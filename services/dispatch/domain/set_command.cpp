#include "services/dispatch/domain/set_command.h"

#include "shared/base/shell.h"

namespace atl::dispatch {

std::string set_command(const Facility& facility, const std::string& arguments) {
    return "atoll facility set " + facility.name + " " + arguments;
}

std::string set_field_command(const Facility& facility, const std::string& field, const std::string& value) {
    return set_command(facility, "--set " + shell_word(field + "=" + value));
}

}  // namespace atl::dispatch
