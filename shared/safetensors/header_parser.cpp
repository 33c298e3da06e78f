#include "shared/safetensors/header_parser.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>
#include <utility>

#include "shared/base/text.h"

namespace atl::safetensors {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kDimensionsMax = 16;
constexpr std::uint64_t kInt64Max = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

// Names go into messages, maps and files of other tools: nothing that is a path or that a terminal would obey.
bool is_plain_name(std::string_view name) {
    if (name.empty() || name == "." || name == "..") return false;
    for (const char c : name)
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '/' || c == '\\') return false;
    return true;
}

// The bytes of a tensor, or nothing when they do not fit 63 bits. Zero extents count as one here, so that the
// product of the others can't wrap around either.
std::optional<std::uint64_t> byte_count(const TensorInfo& tensor) {
    std::uint64_t product = static_cast<std::uint64_t>(size_bytes(tensor.dtype));
    bool empty = false;
    for (const std::int64_t extent : tensor.shape) {
        empty = empty || extent == 0;
        const auto factor = static_cast<std::uint64_t>(extent == 0 ? 1 : extent);
        if (product > kInt64Max / factor) return std::nullopt;
        product *= factor;
    }
    return empty ? 0 : product;
}

// Receives the events of nlohmann's parser. Where we are is `place_`; any event that the place doesn't expect is an
// error, so that the nesting is bounded by the enumeration.
class HeaderEvents final : public nlohmann::json_sax<Json> {
  public:
    Header header;
    Status status;

    bool start_object(std::size_t) override {
        switch (place_) {
            case Place::kStart:
                return go(Place::kTop);
            case Place::kTensorValue:
                return go(Place::kTensor);
            case Place::kMetadataValue:
                return go(Place::kMetadata);
            default:
                return unexpected("an object");
        }
    }

    bool end_object() override {
        if (place_ == Place::kTop) return go(Place::kEnd);
        if (place_ == Place::kTensor && !finish_tensor()) return false;
        return go(Place::kTop);
    }

    bool key(std::string& name) override {
        switch (place_) {
            case Place::kTop:
                return top_key(name);
            case Place::kMetadata:
                metadata_key_ = name;
                if (header.metadata.contains(name))
                    return fail("__metadata__", "__metadata__ has the key " + in_quotes(name) + " twice");
                return go(Place::kMetadataText);
            default:
                return tensor_key(name);
        }
    }

    bool string(std::string& value) override {
        if (place_ == Place::kMetadataText) {
            header.metadata.emplace(metadata_key_, value);
            return go(Place::kMetadata);
        }
        if (place_ != Place::kDType) return unexpected("a string");
        auto dtype = parse_dtype(value);
        if (!dtype.ok()) return fail_at(key_, dtype.error().message);
        tensor_.dtype = *dtype;
        return go(Place::kTensor);
    }

    bool start_array(std::size_t) override {
        if (place_ == Place::kShapeValue) return go(Place::kShape);
        if (place_ == Place::kOffsetsValue) return go(Place::kOffsets);
        return unexpected("an array");
    }

    bool end_array() override { return go(Place::kTensor); }

    bool number_unsigned(std::uint64_t value) override {
        if (place_ == Place::kShape) return add_extent(value);
        if (place_ == Place::kOffsets) return add_offset(value);
        return unexpected("a number");
    }

    bool number_integer(std::int64_t) override { return unexpected("a negative number"); }
    bool number_float(double, const std::string&) override { return unexpected("a number that is no 64-bit integer"); }
    bool boolean(bool) override { return unexpected("a boolean"); }
    bool null() override { return unexpected("null"); }
    bool binary(Json::binary_t&) override { return unexpected("binary data"); }

    bool parse_error(std::size_t position, const std::string&, const Json::exception&) override {
        return fail("header", "the header is not valid JSON at byte " + std::to_string(position));
    }

  private:
    enum class Place {
        kStart,
        kTop,
        kMetadataValue,
        kMetadata,
        kMetadataText,
        kTensorValue,
        kTensor,
        kDType,
        kShapeValue,
        kShape,
        kOffsetsValue,
        kOffsets,
        kEnd,
    };

    bool go(Place place) {
        place_ = place;
        return true;
    }

    bool fail(std::string field, std::string message) {
        if (status.ok()) status = invalid_argument(std::move(field), std::move(message));
        return false;
    }

    // What is wrong is the tensor's `key`, or with none the tensor itself.
    bool fail_at(const std::string& key, const std::string& what) {
        return fail(tensor_.name + (key.empty() ? "" : "." + key), "tensor " + in_quotes(tensor_.name) + ": " + what);
    }

    bool unexpected(const char* what) {
        const std::string text = std::string(what) + " in an unexpected place";
        switch (place_) {
            case Place::kStart:
            case Place::kTop:
            case Place::kEnd:
                return fail("header", text);
            case Place::kMetadataValue:
            case Place::kMetadata:
            case Place::kMetadataText:
                return fail("__metadata__", "__metadata__: " + text + " (it maps strings to strings)");
            default:
                return fail_at(key_, text);
        }
    }

    bool top_key(const std::string& name) {
        if (!names_.insert(name).second) return fail(name, "the header has the key " + in_quotes(name) + " twice");
        if (name == "__metadata__") return go(Place::kMetadataValue);
        if (!is_plain_name(name)) return fail("header", "a tensor may not be named " + in_quotes(name));
        tensor_ = TensorInfo{};
        tensor_.name = name;
        key_.clear();
        has_dtype_ = has_shape_ = has_offsets_ = false;
        offset_count_ = 0;
        return go(Place::kTensorValue);
    }

    bool tensor_key(const std::string& name) {
        if (name == "dtype") return once(has_dtype_, name, Place::kDType);
        if (name == "shape") return once(has_shape_, name, Place::kShapeValue);
        if (name == "data_offsets") return once(has_offsets_, name, Place::kOffsetsValue);
        return fail_at("", "unknown key " + in_quotes(name));
    }

    bool once(bool& seen, const std::string& name, Place place) {
        key_ = name;
        if (std::exchange(seen, true)) return fail_at(name, "the key " + in_quotes(name) + " comes twice");
        return go(place);
    }

    bool add_extent(std::uint64_t value) {
        if (value > kInt64Max) return fail_at(key_, "an extent of its shape does not fit 63 bits");
        if (tensor_.shape.size() == kDimensionsMax) return fail_at(key_, "more than 16 dimensions");
        tensor_.shape.push_back(static_cast<std::int64_t>(value));
        return true;
    }

    bool add_offset(std::uint64_t value) {
        if (offset_count_ == 2) return fail_at(key_, "data_offsets has more than two numbers");
        (offset_count_++ == 0 ? tensor_.begin : tensor_.end) = value;
        return true;
    }

    bool finish_tensor() {
        if (!has_dtype_) return fail_at("dtype", "dtype is missing");
        if (!has_shape_) return fail_at("shape", "shape is missing");
        if (!has_offsets_) return fail_at("data_offsets", "data_offsets is missing");
        if (offset_count_ != 2) return fail_at("data_offsets", "data_offsets needs two numbers");
        if (tensor_.begin > tensor_.end) return fail_at("data_offsets", "data_offsets end before they begin");
        const auto size = byte_count(tensor_);
        if (!size) return fail_at("shape", "the size of its shape does not fit 63 bits");
        if (tensor_.end - tensor_.begin != *size)
            return fail_at("data_offsets", "data_offsets span " + std::to_string(tensor_.end - tensor_.begin) +
                                               " bytes, but shape and dtype need " + std::to_string(*size));
        header.tensors.push_back(std::move(tensor_));
        return true;
    }

    Place place_ = Place::kStart;
    std::unordered_set<std::string> names_;
    std::string metadata_key_;
    TensorInfo tensor_;
    std::string key_;  // of the tensor, whose value is being read
    bool has_dtype_ = false;
    bool has_shape_ = false;
    bool has_offsets_ = false;
    int offset_count_ = 0;
};

}  // namespace

Result<Header> parse_header_json(std::string_view json) {
    HeaderEvents events;
    const bool parsed = Json::sax_parse(json.begin(), json.end(), &events);
    ATOLL_RETURN_IF_ERROR(events.status);
    check(parsed, "the JSON parser failed without an error");
    return std::move(events.header);
}

}  // namespace atl::safetensors
