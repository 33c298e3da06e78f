#include "shared/json/instantiated.h"

template class nlohmann::basic_json<>;
