#include "services/store/blobs/update_check.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "services/store/blobs/model_file.h"
#include "services/store/blobs/version_check.h"
#include "shared/base/text.h"
#include "shared/delta/control_variate.h"
#include "shared/delta/delta.h"
#include "shared/digest/digest.h"
#include "shared/json/bounded.h"
#include "shared/model_config/tensors.h"
#include "shared/model_config/token_counts.h"

namespace atl::store {
namespace {

using store_client::Manifest;
using store_client::ManifestFile;

constexpr const char* kSingleFile = "model.safetensors";
constexpr std::uint64_t kHeadAllowanceBytes = 72U << 10;
constexpr std::uint64_t kFileAllowanceBytes = 8U << 10;
constexpr std::uint64_t kTensorAllowanceBytes = 200;
constexpr int kElementBytesMax = 4;
constexpr std::uint64_t kConfigBytesMax = 1U << 20;
constexpr std::uint64_t kConfigAllowanceBytes = 64U << 10;
constexpr std::size_t kConfigValuesMax = 50'000;

bool is_token_counts(const ManifestFile& file) {
    return file.path == model_config::kTokenCountsFile;
}

bool holds_weights(const ManifestFile& file) {
    return is_safetensors(file) && !is_token_counts(file) && !delta::is_control_variate(file.path);
}

bool is_weight_file(const ManifestFile& file) {
    return holds_weights(file) || file.path == kIndexPath;
}

// What the base says an update may be.
struct Limits {
    struct Tensor {
        safetensors::TensorInfo info;
        int element_bytes_max = kElementBytesMax;
    };
    std::map<std::string, Tensor> tensors;
    std::uint64_t head_bytes_max = kHeadAllowanceBytes;  // of all safetensors files together; of the index, too
    std::uint64_t data_bytes_max = 0;
    std::int64_t tokens = 0;  // that its embedding or head has rows for; 0: it has neither
};

Result<Limits> read_limits(const Manifest& base, const BlobStore& blobs) {
    Limits limits;
    std::uint64_t head_bytes = 0;
    for (const ManifestFile& file : base.files) {
        if (!holds_weights(file)) continue;
        ATOLL_TRY(const safetensors::Header header, read_header(file, blobs));
        head_bytes += header.data_begin;
        limits.head_bytes_max += kFileAllowanceBytes;
        for (const auto& tensor : header.tensors) {
            const int bytes = std::max(kElementBytesMax, safetensors::size_bytes(tensor.dtype));
            const bool is_new = limits.tensors.try_emplace(tensor.name, tensor, bytes).second;
            if (!is_new) continue;
            if (model_config::has_token_rows(tensor.name, tensor.shape)) limits.tokens = tensor.shape[0];
            limits.head_bytes_max += tensor.name.size() + kTensorAllowanceBytes;
            limits.data_bytes_max +=
                static_cast<std::uint64_t>(tensor.element_count()) * static_cast<std::uint64_t>(bytes);
        }
    }
    limits.head_bytes_max = std::max(limits.head_bytes_max, 2 * head_bytes);
    return limits;
}

Result<std::string> hash_content(const ManifestFile& file, const BlobStore& blobs) {
    digest::Sha256 hash;
    for (const auto& chunk : file.chunks) {
        ATOLL_TRY(const std::string bytes, blobs.read(chunk.sha256, 0, chunk.size));
        hash.update(bytes);
    }
    return hash.finish();
}

// Also where the two are cut into chunks otherwise.
Result<bool> same_content(const ManifestFile& a, const ManifestFile& b, const BlobStore& blobs) {
    if (a.size != b.size) return false;
    const auto same_chunk = [](const auto& x, const auto& y) { return x.sha256 == y.sha256; };
    if (std::ranges::equal(a.chunks, b.chunks, same_chunk)) return true;
    ATOLL_TRY(const std::string of_a, hash_content(a, blobs));
    ATOLL_TRY(const std::string of_b, hash_content(b, blobs));
    return of_a == of_b;
}

bool is_container(const json::Json& value) {
    return value.is_object() || value.is_array();
}

// Also that numbers are written alike: nlohmann's 32 is its 32.0, but no reader of a configuration takes both.
bool same_value(const json::Json& a, const json::Json& b) {
    if (is_container(a) && a.type() == b.type()) {
        if (a.size() != b.size()) return false;
        auto of_b = b.begin();
        for (auto of_a = a.begin(); of_a != a.end(); ++of_a, ++of_b)
            if ((a.is_object() && of_a.key() != of_b.key()) || !same_value(*of_a, *of_b)) return false;
        return true;
    }
    return a.is_number_float() == b.is_number_float() && a == b;
}

bool is_dtype(const json::Json& value) {
    return value == "float32" || value == "float16" || value == "bfloat16";
}

// The trainer names in config.json the type that it has saved: that may differ, in one key or the other.
Result<bool> same_config(const ManifestFile& a, const ManifestFile& b, const BlobStore& blobs) {
    if (b.size > kConfigBytesMax || a.size > b.size + kConfigAllowanceBytes) return false;
    const auto read = [&](const ManifestFile& file) -> Result<json::Json> {
        ATOLL_TRY(const std::string text, read_front(file, file.size, blobs));
        auto config = json::parse_bounded(text, kConfigValuesMax);
        return config.ok() ? std::move(config).value() : json::Json();
    };
    ATOLL_TRY(json::Json of_a, read(a));
    ATOLL_TRY(json::Json of_b, read(b));
    if (!of_a.is_object() || !of_b.is_object()) return false;
    for (const char* key : {"dtype", "torch_dtype"}) {
        if (of_a.contains(key) && !is_dtype(of_a[key]) && !(of_b.contains(key) && same_value(of_a[key], of_b[key])))
            return false;
        of_a.erase(key);
        of_b.erase(key);
    }
    return same_value(of_a, of_b);
}

class UpdateCheck {
  public:
    UpdateCheck(const Manifest& update, const Manifest& base, const Limits& limits, const BlobStore& blobs)
        : update_(update), base_(base), limits_(limits), blobs_(blobs) {}

    Status run() {
        ATOLL_RETURN_IF_ERROR(check_sizes());
        ATOLL_RETURN_IF_ERROR(place_tensors());
        for (std::size_t i = 0; i < update_.files.size(); ++i) {
            if (is_token_counts(update_.files[i]) && limits_.tokens > 0)
                ATOLL_RETURN_IF_ERROR(check_token_counts(i));
            else if (update_.files[i].path == delta::kControlVariateFile)
                ATOLL_RETURN_IF_ERROR(check_control_variate(i));
            else if (is_weight_file(update_.files[i]))
                ATOLL_RETURN_IF_ERROR(check_weight_path(i));
            else
                ATOLL_RETURN_IF_ERROR(check_other_file(i));
        }
        ATOLL_RETURN_IF_ERROR(check_configs_are_there());
        if (const ManifestFile* changes = update_.find(delta::kFile))
            ATOLL_RETURN_IF_ERROR(describe_changes(static_cast<std::size_t>(changes - update_.files.data())));
        std::uint64_t head_bytes = 0;
        for (std::size_t i = 0; i < update_.files.size(); ++i)
            if (holds_weights(update_.files[i])) ATOLL_RETURN_IF_ERROR(check_tensors(i, head_bytes));
        for (const auto& [name, tensor] : limits_.tensors)
            if (!found_.contains(name))
                return invalid_argument(name, "tensor \"" + name + "\" of the base is missing in the update");
        return check_layout();
    }

  private:
    Error refuse(std::size_t i, const std::string& why) const {
        return invalid_argument("manifest.files[" + std::to_string(i) + "].path", update_.files[i].path + " " + why);
    }

    // Before anything is read.
    Status check_sizes() const {
        const std::uint64_t bytes_max = limits_.data_bytes_max + 2 * limits_.head_bytes_max;
        std::uint64_t bytes = 0;
        for (std::size_t i = 0; i < update_.files.size(); ++i) {
            if (!is_weight_file(update_.files[i])) continue;
            bytes += update_.files[i].size;
            if (bytes > bytes_max)
                return refuse(i, "makes the weights larger than " + std::to_string(bytes_max) +
                                     " bytes, all that an update of this base can take");
        }
        return {};
    }

    Status place_tensors() {
        const ManifestFile* index = update_.find(kIndexPath);
        if (index == nullptr) return {};
        auto map = read_index(*index, update_, limits_.head_bytes_max, blobs_);
        if (!map.ok()) return at_path(static_cast<std::size_t>(index - update_.files.data()), map.error());
        weight_map_ = std::move(map).value();
        for (const auto& [tensor, file] : weight_map_) shards_.insert(file);
        return {};
    }

    Status check_weight_path(std::size_t i) const {
        const std::string& path = update_.files[i].path;
        if (path == kIndexPath || path == kSingleFile || path == delta::kFile || base_.find(path) != nullptr) return {};
        if (shards_.contains(path) && path.find('/') == std::string::npos) return {};
        return refuse(i, std::string("is neither a file of the base nor named by ") + kIndexPath);
    }

    // Its metadata say what its tensors must be.
    Status describe_changes(std::size_t i) {
        for (const ManifestFile& other : update_.files)
            if (is_weight_file(other) && other.path != delta::kFile)
                return refuse(i, "stands beside " + other.path + ": an update is a model or a change of one");
        const auto length = read_header_length(update_.files[i], blobs_);
        if (!length.ok()) return at_path(i, length.error());
        if (8 + *length > limits_.head_bytes_max) return {};  // check_tensors() refuses it
        const auto header = read_header(update_.files[i], blobs_);
        if (!header.ok()) return at_path(i, header.error());
        const auto said = delta::describe(*header);
        if (!said.ok()) return at_path(i, said.error());
        ATOLL_RETURN_IF_ERROR(check_base(i, *said));
        changes_ = said->format;
        return {};
    }

    Status check_base(std::size_t i, const delta::Description& said) const {
        const std::string base = store_client::manifest_digest(base_);
        if (said.base == base) return {};
        return refuse(i, "is a change of " + in_quotes(said.base) + ", but the update's base is " + base);
    }

    // What may travel beside an update: its size is bounded by the base, and a strategy normalizes what it says.
    Status check_token_counts(std::size_t i) const {
        const ManifestFile& file = update_.files[i];
        const std::uint64_t bytes_max =
            kFileAllowanceBytes + static_cast<std::uint64_t>(limits_.tokens) * sizeof(float);
        if (file.size > bytes_max) return refuse(i, "has more than " + std::to_string(bytes_max) + " bytes");
        const auto header = read_header(file, blobs_);
        if (!header.ok()) return at_path(i, header.error());
        const Status counts = model_config::check_token_counts(*header, limits_.tokens);
        return counts.ok() ? counts : Status(refuse(i, counts.error().message));
    }

    // Likewise: each tensor has the size that the base's gives it. Whether all are there only a strategy asks.
    Status check_control_variate(std::size_t i) const {
        const ManifestFile& file = update_.files[i];
        const auto length = read_header_length(file, blobs_);
        if (!length.ok()) return at_path(i, length.error());
        if (8 + *length > limits_.head_bytes_max)
            return refuse(i, "has a header of more than " + std::to_string(limits_.head_bytes_max) + " bytes");
        const auto header = read_header(file, blobs_);
        if (!header.ok()) return at_path(i, header.error());
        const auto said = delta::describe(*header);
        if (!said.ok()) return at_path(i, said.error());
        if (said->format != delta::Format::kInt8) return refuse(i, "must be int8");
        ATOLL_RETURN_IF_ERROR(check_base(i, *said));
        for (const safetensors::TensorInfo& tensor : header->tensors) {
            const auto of_base = limits_.tensors.find(tensor.name);
            if (of_base == limits_.tensors.end())
                return refuse(i, "has the tensor \"" + tensor.name + "\", which is not in the base");
            const Status fits = delta::check_tensor(said->format, of_base->second.info, tensor);
            if (!fits.ok()) return refuse(i, "does not fit the base: " + fits.error().message);
        }
        return {};
    }

    Status check_other_file(std::size_t i) const {
        const ManifestFile& file = update_.files[i];
        const ManifestFile* of_base = base_.find(file.path);
        if (of_base == nullptr) return refuse(i, "is no file of the base");
        if (file.path == adapter::kConfigFile) return check_adapter_config(i, file, *of_base);
        ATOLL_TRY(bool is_same, same_content(file, *of_base, blobs_));
        if (!is_same && file.path == "config.json") {
            ATOLL_TRY(is_same, same_config(file, *of_base, blobs_));
        }
        return is_same ? Status() : refuse(i, "differs from the base's");
    }

    // Without them nobody can load the update.
    Status check_configs_are_there() const {
        for (const char* path : {"config.json", adapter::kConfigFile})
            if (base_.find(path) != nullptr && update_.find(path) == nullptr)
                return invalid_argument("manifest.files", std::string(path) + " of the base is missing in the update");
        return {};
    }

    // Notes beside the mathematics may differ.
    Status check_adapter_config(std::size_t i, const ManifestFile& file, const ManifestFile& of_base) const {
        const auto own = read_adapter_config(file, blobs_);
        if (!own.ok()) return at_path(i, own.error());
        ATOLL_TRY(const adapter::LoraOptions base, read_adapter_config(of_base, blobs_));
        const std::string key = adapter::differing_key(*own, base);
        return key.empty() ? Status() : refuse(i, "has another " + key + " than the base: such adapters do not add up");
    }

    Status check_tensors(std::size_t i, std::uint64_t& head_bytes) {
        const auto length = read_header_length(update_.files[i], blobs_);
        if (!length.ok()) return at_path(i, length.error());
        head_bytes += 8 + *length;
        if (head_bytes > limits_.head_bytes_max)
            return refuse(i, "makes the headers larger than " + std::to_string(limits_.head_bytes_max) +
                                 " bytes, all that those of this base's tensors can take");
        const auto header = read_header(update_.files[i], blobs_);
        if (!header.ok()) return at_path(i, header.error());
        for (const auto& tensor : header->tensors) ATOLL_RETURN_IF_ERROR(check_tensor(i, tensor));
        return {};
    }

    Error at_path(std::size_t i, Error error) const {
        if (error.code == ErrorCode::kInvalidArgument) error.field = "manifest.files[" + std::to_string(i) + "].path";
        return error;
    }

    Status check_tensor(std::size_t i, const safetensors::TensorInfo& tensor) {
        const std::string name = "tensor \"" + tensor.name + "\"";
        const auto of_base = limits_.tensors.find(tensor.name);
        if (of_base == limits_.tensors.end()) return refuse(i, "has the " + name + ", which is not in the base");
        const safetensors::TensorInfo& expected = of_base->second.info;
        const Status change = changes_ ? delta::check_tensor(*changes_, expected, tensor) : Status();
        if (!change.ok()) return refuse(i, "is no change of the base: " + change.error().message);
        if (!changes_ && expected.shape != tensor.shape)
            return refuse(i, "has the " + name + " in the shape " + json::Json(tensor.shape).dump() + " but " +
                                 json::Json(expected.shape).dump() + " in the base");
        if (safetensors::size_bytes(tensor.dtype) > of_base->second.element_bytes_max)
            return refuse(i, "has the " + name + " as " + safetensors::to_string(tensor.dtype) + ", of more than " +
                                 std::to_string(of_base->second.element_bytes_max) + " bytes an element");
        if (!changes_ && tensor.dtype != expected.dtype && !model_config::is_weight_dtype(tensor.dtype))
            return refuse(i, "has the " + name + " as " + safetensors::to_string(tensor.dtype) + ", not as " +
                                 safetensors::to_string(expected.dtype) + " as in the base, nor as F32, F16 or BF16");
        if (!found_.emplace(tensor.name, update_.files[i].path).second)
            return refuse(i, "has the " + name + " of another file again");
        return {};
    }

    // Whoever opens the update as the base is opened finds every tensor.
    Status check_layout() const {
        if (const ManifestFile* index = update_.find(kIndexPath))
            return check_index(static_cast<std::size_t>(index - update_.files.data()));
        std::set<std::string> own;
        for (const auto& file : update_.files)
            if (is_weight_file(file)) own.insert(file.path);
        std::set<std::string> of_base;
        for (const auto& file : base_.files)
            if (is_weight_file(file)) of_base.insert(file.path);
        if (own == of_base || own == std::set<std::string>{kSingleFile} || changes_) return {};
        return invalid_argument("manifest.files",
                                "the weights are neither in the base's files nor in "
                                "model.safetensors, and no model.safetensors.index.json names them");
    }

    // Index `i` and tensors agree in both directions: the trainer refuses a model where they do not.
    Status check_index(std::size_t i) const {
        for (const auto& [tensor, path] : found_) {
            const auto mapped = weight_map_.find(tensor);
            if (mapped == weight_map_.end() || mapped->second != path)
                return refuse(i, "does not say that the tensor \"" + tensor + "\" is in " + path);
            if (path != kSingleFile && update_.find(kSingleFile) != nullptr)
                return refuse(i, "places the tensor \"" + tensor + "\" in " + path + " beside " + kSingleFile +
                                     ", which is then read alone");
        }
        for (const auto& [tensor, path] : weight_map_)
            if (!found_.contains(tensor))
                return refuse(i, "places the tensor \"" + tensor + "\" in " + path + ", which does not hold it");
        return {};
    }

    const Manifest& update_;
    const Manifest& base_;
    const Limits& limits_;
    const BlobStore& blobs_;
    std::optional<delta::Format> changes_;      // it is a change of the base; none: a model
    safetensors::WeightMap weight_map_;         // of the index
    std::set<std::string> shards_;              // the files that it names
    std::map<std::string, std::string> found_;  // tensor to file
};

}  // namespace

Status check_update(const Manifest& update, const Manifest& base, const BlobStore& blobs) {
    ATOLL_TRY(const Limits limits, read_limits(base, blobs));
    return UpdateCheck(update, base, limits, blobs).run();
}

}  // namespace atl::store
