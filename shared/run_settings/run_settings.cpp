#include "shared/run_settings/run_settings.h"

#include "shared/run_settings/embedded.h"

namespace atl::run_settings {

std::string_view table_json() {
    return kRunSettingsJson;
}

}  // namespace atl::run_settings
