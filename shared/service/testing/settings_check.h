#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "shared/json/json.h"

namespace atl::service {

// For tests of a service's settings: `least` with any one of these members is refused, and the error names the member
// in full ("store.root").
template <class Parse>
void expect_wrong_keys_are_named(Parse parse, const std::string& service, const json::Json& least,
                                 const std::vector<std::pair<std::string, json::Json>>& wrong) {
    for (const auto& [key, value] : wrong) {
        json::Json own = least;
        own[key] = value;
        const auto settings = parse(own);
        ASSERT_FALSE(settings.ok()) << key;
        EXPECT_EQ(settings.error().field, service + "." + key);
    }
}

}  // namespace atl::service
