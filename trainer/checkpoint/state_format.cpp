#include "trainer/checkpoint/state_format.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "shared/digest/digest.h"

namespace atl::checkpoint {
namespace {

constexpr std::array<const char*, 3> kKinds = {"weights", "moment1", "moment2"};
constexpr std::string_view kPartBegin = "state-", kPartEnd = ".safetensors";

}  // namespace

std::vector<Saved> saved_kinds(const parallel::ParameterStore& store) {
    std::vector<Saved> kinds;
    for (int kind = 0; kind <= store.moment_count(); ++kind) kinds.push_back(static_cast<Saved>(kind));
    return kinds;
}

std::string tensor_name(Saved saved, const model::FsdpUnit& unit) {
    return std::string(kKinds[static_cast<std::size_t>(saved)]) + "." + unit.name;
}

std::vector<Section> own_sections(const parallel::ParameterStore& store) {
    std::vector<Section> sections;
    for (std::size_t unit = 0; unit < store.unit_count(); ++unit) {
        if (!store.trains(unit)) continue;
        const parallel::ParameterStore::Range own = store.own_range(unit);
        const std::int64_t count =
            std::clamp<std::int64_t>(store.shard_spec(unit).element_count - own.begin, 0, own.count);
        if (count == 0) continue;
        for (const Saved saved : saved_kinds(store)) {
            sections.push_back({tensor_name(saved, store.model().units[unit]), saved, unit,
                                store.saved_dtype(saved, unit), store.storage(unit), own.begin, count});
        }
    }
    return sections;
}

std::filesystem::path part_file(const std::filesystem::path& file, const std::string& id, int part) {
    if (part == 0) return file;
    return file.parent_path() / (std::string(kPartBegin) + id + "-" + std::to_string(part) + std::string(kPartEnd));
}

bool is_part_file(std::string_view name) {
    return name.starts_with(kPartBegin) && name.ends_with(kPartEnd);
}

bool is_part_of(std::string_view name, const std::string& id) {
    return is_part_file(name) && name.substr(kPartBegin.size()).starts_with(id + "-");
}

std::string metadata_digest(const Metadata& metadata) {
    return digest::sha256(nlohmann::json(metadata).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

std::string_view as_text(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace atl::checkpoint
