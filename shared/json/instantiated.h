#pragma once

#include <nlohmann/json.hpp>

// Compiled once, in instantiated.cpp, and not again in each source that uses it, which takes a sixth of that source's
// time. It is among the precompiled headers (cmake/AtollPrecompiled.cmake).
extern template class nlohmann::basic_json<>;
