#include "trainer/checkpoint/state_format.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "shared/digest/digest.h"

namespace atl::checkpoint {
namespace {

constexpr std::array<const char*, 4> kKinds = {"weights", "moment1", "moment2", "gradient_sum"};

// Of file P: this, the state's id, "-P".
std::string part_begin(const std::filesystem::path& file) {
    return file.stem().string() + "-";
}

}  // namespace

std::vector<Saved> saved_kinds(const parallel::ParameterStore& store, Content content) {
    std::vector<Saved> kinds;
    for (int kind = content == Content::kState ? 0 : 1; kind <= store.moment_count(); ++kind)
        kinds.push_back(static_cast<Saved>(kind));
    if (content == Content::kState && store.has_gradient_sums()) kinds.push_back(Saved::kGradientSum);
    return kinds;
}

std::string tensor_name(Saved saved, const model::FsdpUnit& unit) {
    return std::string(kKinds[static_cast<std::size_t>(saved)]) + "." + unit.name;
}

std::vector<Section> own_sections(const parallel::ParameterStore& store, Content content) {
    std::vector<Section> sections;
    for (std::size_t unit = 0; unit < store.unit_count(); ++unit) {
        if (!store.trains(unit)) continue;
        const parallel::ParameterStore::Range own = store.own_range(unit);
        const std::int64_t count =
            std::clamp<std::int64_t>(store.shard_spec(unit).element_count - own.begin, 0, own.count);
        if (count == 0) continue;
        for (const Saved saved : saved_kinds(store, content)) {
            sections.push_back({tensor_name(saved, store.model().units[unit]), saved, unit,
                                store.saved_dtype(saved, unit), store.storage(unit), own.begin, count});
        }
    }
    return sections;
}

std::filesystem::path part_file(const std::filesystem::path& file, const std::string& id, int part) {
    if (part == 0) return file;
    return file.parent_path() / (part_begin(file) + id + "-" + std::to_string(part) + file.extension().string());
}

bool is_part_file(std::string_view name, const std::filesystem::path& file) {
    return name.starts_with(part_begin(file)) && name.ends_with(file.extension().string());
}

bool is_part_of(std::string_view name, const std::filesystem::path& file, const std::string& id) {
    return is_part_file(name, file) && name.starts_with(part_begin(file) + id + "-");
}

std::string metadata_digest(const Metadata& metadata) {
    return digest::sha256(nlohmann::json(metadata).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

std::string_view as_text(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace atl::checkpoint
