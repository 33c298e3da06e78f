#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "shared/base/result.h"

// A reader of Python's pickles (protocol 2, as torch.save writes) that builds plain values and runs nothing: no class
// is looked up and no function called, but for the few that `PickleClasses` gives a meaning of its own.
namespace atl::importer {

// A value; others are named by their place in the graph, so that sharing costs nothing and cycles do no harm.
struct PickleValue {
    enum class Kind : std::uint8_t {
        kNone,
        kBool,     // number
        kInteger,  // number
        kReal,     // its value is not kept
        kText,     // text
        kTuple,    // items
        kList,     // items
        kDict,     // items: key, value, key, value, …
        kClass,    // text: "module.name"
        kStorage,  // text: its key; number: elements; dtype
        kTensor,   // items: storage, offset, shape, strides
    };
    Kind kind = Kind::kNone;
    std::uint8_t dtype = 0;
    std::int64_t number = 0;
    std::string text = {};
    std::vector<std::uint32_t> items = {};
};

// All values of a pickle, each made once; [0] is None.
using PickleGraph = std::deque<PickleValue>;

// What classes mean. Errors are about the value; the reader adds where.
class PickleClasses {
  public:
    virtual ~PickleClasses() = default;
    // Whether a pickle may name it at all ("collections.OrderedDict").
    virtual bool knows(const std::string& name) const = 0;
    // The value of calling it with a tuple of arguments.
    virtual Result<PickleValue> call(const PickleGraph& graph, const std::string& name,
                                     const PickleValue& arguments) const = 0;
    // The value that lies outside of the pickle under that id.
    virtual Result<PickleValue> load(const PickleGraph& graph, const PickleValue& id) const = 0;
};

struct Pickle {
    PickleGraph values;
    std::uint32_t root = 0;
};

// kInvalidArgument says at which byte, and names the opcode or the class that is refused. Memory is at most some 100
// times the pickle's size.
Result<Pickle> read_pickle(std::span<const std::byte> bytes, const PickleClasses& classes);

// An error about the inside of a file; who knows the file's name adds it.
Error malformed(std::string what);

}  // namespace atl::importer
