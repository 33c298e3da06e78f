#include <algorithm>
#include <nlohmann/json.hpp>

#include "trainer/checkpoint/checkpoint.h"

namespace atl::checkpoint {

using nlohmann::json;

std::string differences(const std::string& had, const std::string& now) {
    const json before = json::parse(had, nullptr, false);
    const json after = json::parse(now, nullptr, false);
    if (!before.is_object() || !std::ranges::all_of(before, &json::is_object)) return "no settings that can be read";
    json either = before;
    either.update(after, true);
    std::string all;
    for (const auto& [part, members] : either.items()) {
        for (const auto& [key, value] : members.items()) {
            const json::json_pointer at = json::json_pointer() / part / key;
            const json was = before.value(at, json()), is = after.value(at, json());
            if (was == is) continue;
            all += (all.empty() ? "" : ", ") + (part == "flags" ? "--" + key : part + "." + key) + " " + was.dump() +
                   " (now " + is.dump() + ")";
        }
    }
    return all;
}

}  // namespace atl::checkpoint
