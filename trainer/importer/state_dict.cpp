#include "trainer/importer/state_dict.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "shared/base/text.h"
#include "trainer/importer/pickle.h"

namespace atl::importer {
namespace {

using Kind = PickleValue::Kind;

constexpr std::string_view kTensor = "torch._utils._rebuild_tensor_v2";
constexpr std::string_view kParameter = "torch._utils._rebuild_parameter";
constexpr std::string_view kParameterWithState = "torch._utils._rebuild_parameter_with_state";
constexpr std::string_view kOrderedDict = "collections.OrderedDict";

struct StorageClass {
    std::string_view name;
    weights::DType dtype;
};
constexpr auto kStorages = std::to_array<StorageClass>({
    {"torch.FloatStorage", weights::DType::kF32},
    {"torch.HalfStorage", weights::DType::kF16},
    {"torch.BFloat16Storage", weights::DType::kBF16},
    {"torch.DoubleStorage", weights::DType::kF64},
    {"torch.LongStorage", weights::DType::kI64},
    {"torch.IntStorage", weights::DType::kI32},
    {"torch.ShortStorage", weights::DType::kI16},
    {"torch.CharStorage", weights::DType::kI8},
    {"torch.ByteStorage", weights::DType::kU8},
    {"torch.BoolStorage", weights::DType::kBool},
});

std::optional<weights::DType> find_storage_dtype(std::string_view name) {
    const auto found =
        std::find_if(kStorages.begin(), kStorages.end(), [&](const auto& one) { return one.name == name; });
    return found == kStorages.end() ? std::nullopt : std::optional(found->dtype);
}

bool is_empty_dict(const PickleValue& value) {
    return value.kind == Kind::kDict && value.items.empty();
}

// What the classes of a state dictionary mean. Storages and tensors become values that name bytes elsewhere.
class TensorClasses final : public PickleClasses {
  public:
    bool knows(const std::string& name) const override {
        return name == kTensor || name == kParameter || name == kParameterWithState || name == kOrderedDict ||
               find_storage_dtype(name);
    }

    Result<PickleValue> call(const PickleGraph& graph, const std::string& name,
                             const PickleValue& arguments) const override {
        const auto argument = [&](std::size_t index) -> const PickleValue& { return graph[arguments.items[index]]; };
        if (name == kOrderedDict) {
            if (!arguments.items.empty()) return malformed("an OrderedDict is made with arguments");
            return PickleValue{.kind = Kind::kDict};
        }
        if (name == kParameter || name == kParameterWithState) {  // tensor, requires_grad, hooks[, attributes]
            const std::size_t count = name == kParameter ? 3 : 4;
            if (arguments.items.size() != count || argument(0).kind != Kind::kTensor)
                return malformed(name.substr(name.rfind('.') + 1) + " does not get a tensor, a flag and hooks");
            return argument(0);
        }
        if (name == kTensor) {  // storage, offset, shape, strides, requires_grad, hooks[, metadata]
            const bool sound = (arguments.items.size() == 6 || arguments.items.size() == 7) &&
                               argument(0).kind == Kind::kStorage && argument(1).kind == Kind::kInteger &&
                               argument(2).kind == Kind::kTuple && argument(3).kind == Kind::kTuple;
            if (!sound) return malformed("_rebuild_tensor_v2 does not get a storage, an offset, a shape and strides");
            if (arguments.items.size() == 7 && argument(6).kind != Kind::kNone && !is_empty_dict(argument(6)))
                return malformed("a tensor is a negated or conjugated view, which is not read: save its resolve_neg()");
            return PickleValue{.kind = Kind::kTensor, .items = {arguments.items.begin(), arguments.items.begin() + 4}};
        }
        return malformed("the class " + in_quotes(name) + " is called, which is refused");
    }

    // ("storage", class, key, location, elements)
    Result<PickleValue> load(const PickleGraph& graph, const PickleValue& id) const override {
        const auto part = [&](std::size_t index) -> const PickleValue& { return graph[id.items[index]]; };
        const bool sound = id.kind == Kind::kTuple && id.items.size() == 5 && part(0).kind == Kind::kText &&
                           part(0).text == "storage" && part(1).kind == Kind::kClass && part(2).kind == Kind::kText &&
                           part(3).kind == Kind::kText && part(4).kind == Kind::kInteger && part(4).number >= 0;
        if (!sound) return malformed("a persistent id is not that of a storage");
        const auto dtype = find_storage_dtype(part(1).text);
        if (!dtype) return malformed("the class " + in_quotes(part(1).text) + " is not a storage");
        return PickleValue{.kind = Kind::kStorage,
                           .dtype = static_cast<std::uint8_t>(*dtype),
                           .number = part(4).number,
                           .text = part(2).text};
    }
};

const char* what_is(Kind kind) {
    static constexpr auto kNames =
        std::to_array<const char*>({"None", "a flag", "an integer", "a number", "text", "a tuple", "a list",
                                    "a dictionary", "a class", "a storage", "a tensor"});
    return kNames[static_cast<std::size_t>(kind)];
}

Result<std::vector<std::int64_t>> integers(const PickleGraph& graph, const PickleValue& tuple) {
    std::vector<std::int64_t> numbers;
    for (const std::uint32_t item : tuple.items) {
        if (graph[item].kind != Kind::kInteger || graph[item].number < 0)
            return malformed("has a shape or strides that are not whole numbers from 0");
        numbers.push_back(graph[item].number);
    }
    return numbers;
}

// The product of the extents; kInvalidArgument when it does not fit 64 bits.
Result<std::int64_t> count_elements(const std::vector<std::int64_t>& shape) {
    std::int64_t count = 1;
    if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return std::int64_t{0};
    for (const std::int64_t extent : shape) {
        if (__builtin_mul_overflow(count, extent, &count)) return malformed("has more elements than 64 bits can count");
    }
    return count;
}

bool is_contiguous(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides) {
    std::int64_t expected = 1;
    for (std::size_t i = shape.size(); i-- > 0;) {
        if (shape[i] != 1 && strides[i] != expected) return false;
        expected *= shape[i];
    }
    return true;
}

Result<StoredTensor> parse_tensor(const PickleGraph& graph, const PickleValue& value) {
    const PickleValue& storage = graph[value.items[0]];
    StoredTensor tensor;
    tensor.dtype = static_cast<weights::DType>(storage.dtype);
    tensor.storage = storage.text;
    tensor.storage_elements = storage.number;
    tensor.begin = graph[value.items[1]].number;
    ATOLL_TRY(tensor.shape, integers(graph, graph[value.items[2]]));
    ATOLL_TRY(const auto strides, integers(graph, graph[value.items[3]]));
    ATOLL_TRY(tensor.element_count, count_elements(tensor.shape));
    if (strides.size() != tensor.shape.size()) return malformed("has more or fewer strides than dimensions");
    if (tensor.element_count > 0 && !is_contiguous(tensor.shape, strides))
        return malformed("is not row-major without gaps: save it with .contiguous()");
    if (tensor.begin < 0 || tensor.begin > tensor.storage_elements ||
        tensor.element_count > tensor.storage_elements - tensor.begin)
        return malformed("lies outside of its storage " + in_quotes(tensor.storage));
    return tensor;
}

// A storage that is named with two types or sizes is a lie.
class StorageCheck {
  public:
    bool agrees(const StoredTensor& tensor) {
        const std::pair now{tensor.dtype, tensor.storage_elements};
        return seen_.emplace(tensor.storage, now).first->second == now;
    }

  private:
    std::map<std::string, std::pair<weights::DType, std::int64_t>> seen_;
};

}  // namespace

Result<std::vector<StoredTensor>> read_state_dict(std::span<const std::byte> pickle) {
    ATOLL_TRY(const Pickle read, read_pickle(pickle, TensorClasses()));
    const PickleValue& root = read.values[read.root];
    if (root.kind != Kind::kDict)
        return malformed(std::string("it holds ") + what_is(root.kind) + ", not tensors by name");
    std::vector<StoredTensor> tensors;
    std::set<std::string> names;
    StorageCheck storages;
    for (std::size_t i = 0; i < root.items.size(); i += 2) {
        const PickleValue& key = read.values[root.items[i]];
        const PickleValue& value = read.values[root.items[i + 1]];
        if (key.kind != Kind::kText)
            return malformed(std::string("a key of it is ") + what_is(key.kind) + ", not a name");
        if (value.kind != Kind::kTensor)
            return malformed("its value " + in_quotes(key.text) + " is " + what_is(value.kind) + ", not a tensor");
        auto tensor = parse_tensor(read.values, value);
        if (!tensor.ok()) return malformed("tensor " + in_quotes(key.text) + " " + tensor.error().message);
        tensor->name = key.text;
        if (!names.insert(key.text).second) return malformed("tensor " + in_quotes(key.text) + " comes twice");
        if (!storages.agrees(*tensor))
            return malformed("the storage of tensor " + in_quotes(key.text) + " has another type or size elsewhere");
        tensors.push_back(std::move(tensor).value());
    }
    return tensors;
}

}  // namespace atl::importer
