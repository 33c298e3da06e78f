#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/parallel/parameter_store.h"

// The files of a state: one a rank that saved it, so that all write at once. A unit's flat buffer is cut into as many
// equal sections as there are files; file p has section p of its weights and moments, the last ones less or nothing. So
// no value is written twice, and no file says which ranks or which sharding there were.
//
// File 0, state.safetensors, is written last and makes the state: its metadata has what is to be known of the run, the
// state's id and the number of files. The others are state-ID-P.safetensors. The optimizer's part alone has the same
// files, optimizer.safetensors and optimizer-ID-P.safetensors. Each file ends with a tensor of digests,
// rows of kDigestBytes: of each tensor before it; in file 0 of the digests of file 1, 2, …; of the file's metadata.
namespace atl::checkpoint {

inline constexpr const char* kSchema = "5";
inline constexpr const char* kDigests = "sha256";
inline constexpr const char* kFingerprint = "fingerprint";  // keys of file 0's metadata
inline constexpr const char* kName = "name";
inline constexpr std::size_t kDigestBytes = 64;  // hexadecimal
inline constexpr std::int64_t kPieceElements = std::int64_t{1} << 17;

using Saved = parallel::ParameterStore::Saved;
using Metadata = std::map<std::string, std::string>;

// A run's state, or of that the optimizer's part alone: the moments.
enum class Content : std::uint8_t { kState, kOptimizer };
// What is saved of a trained unit.
std::vector<Saved> saved_kinds(const parallel::ParameterStore& store, Content content);
std::string tensor_name(Saved saved, const model::FsdpUnit& unit);

// What one file has of a unit's tensor: elements [begin, begin + count) of the flat buffer, without padding.
struct Section {
    std::string name;
    Saved saved = Saved::kExactWeights;
    std::size_t unit = 0;
    tensor::DType dtype = tensor::DType::kF32;   // as it is saved
    tensor::DType stored = tensor::DType::kF32;  // of the weights that the model computes with
    std::int64_t begin = 0;
    std::int64_t count = 0;
    std::int64_t size_bytes() const { return tensor::size_bytes(dtype, count); }
};
// Of this rank's file; those without an element are left out.
std::vector<Section> own_sections(const parallel::ParameterStore& store, Content content);

// File `part` of a state, beside `file`, its file 0.
std::filesystem::path part_file(const std::filesystem::path& file, const std::string& id, int part);
// Whether a file's name is that of such a file but 0; which state's whose file 0 has that name.
bool is_part_file(std::string_view name, const std::filesystem::path& file);
bool is_part_of(std::string_view name, const std::filesystem::path& file, const std::string& id);

std::string metadata_digest(const Metadata& metadata);
std::string_view as_text(std::span<const std::byte> bytes);

}  // namespace atl::checkpoint
