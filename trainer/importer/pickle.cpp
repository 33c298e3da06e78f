#include "trainer/importer/pickle.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "shared/base/text.h"

namespace atl::importer {
namespace {

using Kind = PickleValue::Kind;
using Place = std::uint32_t;  // in the graph

// Opcodes as in Python's pickletools: those that torch.save writes, and those that are refused by their names.
enum Opcode : std::uint8_t {
    kMark = '(',
    kStop = '.',
    kNone = 'N',
    kBinFloat = 'G',
    kBinInt = 'J',
    kBinInt1 = 'K',
    kBinInt2 = 'M',
    kBinPersistentId = 'Q',
    kReduce = 'R',
    kBinUnicode = 'X',
    kAppend = 'a',
    kBuild = 'b',
    kGlobal = 'c',
    kAppends = 'e',
    kBinGet = 'h',
    kLongBinGet = 'j',
    kBinPut = 'q',
    kLongBinPut = 'r',
    kSetItem = 's',
    kTuple = 't',
    kSetItems = 'u',
    kEmptyTuple = ')',
    kEmptyList = ']',
    kEmptyDict = '}',
    kProtocol = 0x80,
    kTuple1 = 0x85,
    kTuple2 = 0x86,
    kTuple3 = 0x87,
    kTrue = 0x88,
    kFalse = 0x89,
    kLong1 = 0x8a,
};

struct RefusedOpcode {
    std::uint8_t code;
    const char* name;
};
constexpr auto kRefused = std::to_array<RefusedOpcode>({
    {'0', "POP"},
    {'1', "POP_MARK"},
    {'2', "DUP"},
    {'F', "FLOAT"},
    {'I', "INT"},
    {'L', "LONG"},
    {'P', "PERSID"},
    {'S', "STRING"},
    {'T', "BINSTRING"},
    {'U', "SHORT_BINSTRING"},
    {'V', "UNICODE"},
    {'B', "BINBYTES"},
    {'C', "SHORT_BINBYTES"},
    {'d', "DICT"},
    {'g', "GET"},
    {'i', "INST"},
    {'l', "LIST"},
    {'o', "OBJ"},
    {'p', "PUT"},
    {0x81, "NEWOBJ"},
    {0x82, "EXT1"},
    {0x83, "EXT2"},
    {0x84, "EXT4"},
    {0x8b, "LONG4"},
    {0x8c, "SHORT_BINUNICODE"},
    {0x8d, "BINUNICODE8"},
    {0x8e, "BINBYTES8"},
    {0x8f, "EMPTY_SET"},
    {0x90, "ADDITEMS"},
    {0x91, "FROZENSET"},
    {0x92, "NEWOBJ_EX"},
    {0x93, "STACK_GLOBAL"},
    {0x94, "MEMOIZE"},
    {0x95, "FRAME"},
    {0x96, "BYTEARRAY8"},
    {0x97, "NEXT_BUFFER"},
    {0x98, "READONLY_BUFFER"},
});

std::string refusal(std::uint8_t code) {
    char number[8];
    std::snprintf(number, sizeof number, "0x%02x", code);
    const auto found =
        std::find_if(kRefused.begin(), kRefused.end(), [&](const auto& one) { return one.code == code; });
    if (found == kRefused.end()) return std::string("there is no opcode ") + number;
    return std::string("the opcode ") + found->name + " (" + number + ") is refused: tensors do not need it";
}

// The machine that a pickle is a program for. Its errors are caught in one place, which adds the position.
class Machine {
  public:
    Machine(std::span<const std::byte> bytes, const PickleClasses& classes) : bytes_(bytes), classes_(classes) {
        values_.emplace_back();  // None
    }

    Result<Pickle> run() {
        while (!stopped_) {
            const std::size_t position = at_;
            if (const Status status = step(); !status.ok()) {
                return invalid_argument("", "byte " + std::to_string(position) + ": " + status.error().message);
            }
        }
        if (at_ != bytes_.size()) return invalid_argument("", "bytes follow its end at " + std::to_string(at_));
        return Pickle{std::move(values_), stack_.back()};
    }

  private:
    // Reading. After the end zeros are read, and `short_` says so.
    std::uint64_t little_endian(std::size_t count) {
        std::uint64_t number = 0;
        for (std::size_t i = 0; i < count; ++i) number |= static_cast<std::uint64_t>(byte()) << (8 * i);
        return number;
    }
    std::uint8_t byte() {
        if (at_ < bytes_.size()) return static_cast<std::uint8_t>(bytes_[at_++]);
        short_ = true;
        return 0;
    }
    std::string text(std::uint64_t count) {
        if (count > bytes_.size() - at_) return short_ = true, std::string();
        const auto* begin = reinterpret_cast<const char*>(bytes_.data()) + at_;
        at_ += static_cast<std::size_t>(count);
        return {begin, static_cast<std::size_t>(count)};
    }
    std::string line() {
        const auto rest = bytes_.subspan(at_);
        const auto end = std::find(rest.begin(), rest.end(), std::byte{'\n'});
        if (end == rest.end()) return short_ = true, std::string();
        std::string result = text(static_cast<std::uint64_t>(end - rest.begin()));
        ++at_;
        return result;
    }

    Status push(PickleValue value) {
        if (values_.size() >= std::numeric_limits<Place>::max()) return malformed("there are too many values");
        values_.push_back(std::move(value));
        stack_.push_back(static_cast<Place>(values_.size() - 1));
        return {};
    }
    Status push_integer(std::int64_t number) { return push({.kind = Kind::kInteger, .number = number}); }

    // The topmost value above the last mark.
    Result<Place> pop() {
        const std::size_t floor = marks_.empty() ? 0 : marks_.back();
        if (stack_.size() <= floor) return malformed("it takes a value from an empty stack");
        const Place top = stack_.back();
        stack_.pop_back();
        return top;
    }
    // All above the last mark, and the mark.
    Result<std::vector<Place>> pop_mark() {
        if (marks_.empty()) return malformed("there is no mark");
        const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
        std::vector<Place> items(begin, stack_.end());
        stack_.erase(begin, stack_.end());
        marks_.pop_back();
        return items;
    }
    Result<PickleValue*> top_as(Kind kind, const char* what) {
        const std::size_t floor = marks_.empty() ? 0 : marks_.back();
        if (stack_.size() <= floor) return malformed("it takes a value from an empty stack");
        PickleValue& value = values_[stack_.back()];
        if (value.kind != kind) return malformed(std::string("the value changed is not ") + what);
        return &value;
    }

    Status tuple(std::size_t count) {
        std::vector<Place> items(count);
        for (std::size_t i = count; i-- > 0;) {
            ATOLL_TRY(items[i], pop());
        }
        return push({.kind = Kind::kTuple, .items = std::move(items)});
    }
    Status append(std::vector<Place> items) {
        ATOLL_TRY(PickleValue* const list, top_as(Kind::kList, "a list"));
        list->items.insert(list->items.end(), items.begin(), items.end());
        return {};
    }
    Status set(const std::vector<Place>& items) {
        if (items.size() % 2 != 0) return malformed("a key has no value");
        ATOLL_TRY(PickleValue* const dict, top_as(Kind::kDict, "a dictionary"));
        dict->items.insert(dict->items.end(), items.begin(), items.end());
        return {};
    }
    Status set_item() {
        ATOLL_TRY(const Place value, pop());
        ATOLL_TRY(const Place key, pop());
        return set({key, value});
    }
    // The state that an ordered dictionary of weights carries (its _metadata) says nothing about them.
    Status build() {
        ATOLL_TRY(const Place state, pop());
        if (values_[state].kind != Kind::kDict) return malformed("the state of a dictionary is not a dictionary");
        return top_as(Kind::kDict, "a dictionary").ok() ? Status() : malformed("BUILD is refused but for dictionaries");
    }
    Status global() {
        const std::string module = line(), name = module + "." + line();
        if (short_) return {};
        if (!classes_.knows(name))
            return malformed("the class or function " + in_quotes(name) + " is refused: tensors do not need it");
        return push({.kind = Kind::kClass, .text = name});
    }
    Status reduce() {
        ATOLL_TRY(const Place arguments, pop());
        ATOLL_TRY(const Place callee, pop());
        if (values_[callee].kind != Kind::kClass) return malformed("what REDUCE calls is not a class");
        if (values_[arguments].kind != Kind::kTuple) return malformed("the arguments of REDUCE are not a tuple");
        ATOLL_TRY(PickleValue value, classes_.call(values_, values_[callee].text, values_[arguments]));
        return push(std::move(value));
    }
    Status persistent() {
        ATOLL_TRY(const Place id, pop());
        ATOLL_TRY(PickleValue value, classes_.load(values_, values_[id]));
        return push(std::move(value));
    }
    Status long1() {
        const std::size_t count = byte();
        if (count > 8) return malformed("an integer of " + std::to_string(count) + " bytes does not fit 64 bits");
        const std::uint64_t bits = little_endian(count);
        const int unused = 64 - 8 * static_cast<int>(count);
        if (count == 0) return push_integer(0);
        return push_integer(static_cast<std::int64_t>(bits << unused) >> unused);
    }
    Status get(std::uint64_t key) {
        const auto found = memo_.find(key);
        if (found == memo_.end()) return malformed("the memo has no " + std::to_string(key));
        stack_.push_back(found->second);
        return {};
    }
    Status put(std::uint64_t key) {
        if (stack_.empty()) return malformed("there is nothing to remember");
        memo_[key] = stack_.back();
        return {};
    }
    Status stop() {
        if (stack_.size() != 1 || !marks_.empty()) return malformed("it ends with more or less than one value");
        stopped_ = true;
        return {};
    }

    Status step() {
        if (at_ == bytes_.size()) return malformed("it ends without STOP");
        const std::uint8_t opcode = byte();
        const Status status = execute(opcode);
        return short_ ? Status(malformed("it is cut off")) : status;
    }

    Status execute(std::uint8_t opcode) {
        switch (opcode) {
            case kProtocol:
                return byte() == 2 ? Status() : malformed("its protocol is not 2, which torch.save writes");
            case kMark:
                marks_.push_back(stack_.size());
                return {};
            case kStop:
                return stop();
            case kNone:
                stack_.push_back(0);
                return {};
            case kTrue:
            case kFalse:
                return push({.kind = Kind::kBool, .number = opcode == kTrue});
            case kBinFloat:
                text(8);
                return push({.kind = Kind::kReal});
            case kBinInt:
                return push_integer(static_cast<std::int32_t>(little_endian(4)));
            case kBinInt1:
                return push_integer(static_cast<std::int64_t>(little_endian(1)));
            case kBinInt2:
                return push_integer(static_cast<std::int64_t>(little_endian(2)));
            case kLong1:
                return long1();
            case kBinUnicode:
                return push({.kind = Kind::kText, .text = text(little_endian(4))});
            default:
                return execute_structure(opcode);
        }
    }

    Status execute_structure(std::uint8_t opcode) {
        switch (opcode) {
            case kEmptyTuple:
                return tuple(0);
            case kTuple1:
                return tuple(1);
            case kTuple2:
                return tuple(2);
            case kTuple3:
                return tuple(3);
            case kTuple: {
                ATOLL_TRY(auto items, pop_mark());
                return push({.kind = Kind::kTuple, .items = std::move(items)});
            }
            case kEmptyList:
                return push({.kind = Kind::kList});
            case kEmptyDict:
                return push({.kind = Kind::kDict});
            case kAppend: {
                ATOLL_TRY(const Place item, pop());
                return append({item});
            }
            case kAppends: {
                ATOLL_TRY(auto items, pop_mark());
                return append(std::move(items));
            }
            case kSetItem:
                return set_item();
            case kSetItems: {
                ATOLL_TRY(const auto items, pop_mark());
                return set(items);
            }
            default:
                return execute_reference(opcode);
        }
    }

    Status execute_reference(std::uint8_t opcode) {
        switch (opcode) {
            case kGlobal:
                return global();
            case kReduce:
                return reduce();
            case kBuild:
                return build();
            case kBinPersistentId:
                return persistent();
            case kBinGet:
                return get(little_endian(1));
            case kLongBinGet:
                return get(little_endian(4));
            case kBinPut:
                return put(little_endian(1));
            case kLongBinPut:
                return put(little_endian(4));
            default:
                return malformed(refusal(opcode));
        }
    }

    std::span<const std::byte> bytes_;
    const PickleClasses& classes_;
    std::size_t at_ = 0;
    bool short_ = false;
    bool stopped_ = false;
    PickleGraph values_;
    std::vector<Place> stack_;
    std::vector<std::size_t> marks_;  // heights of the stack
    std::unordered_map<std::uint64_t, Place> memo_;
};

}  // namespace

Result<Pickle> read_pickle(std::span<const std::byte> bytes, const PickleClasses& classes) {
    return Machine(bytes, classes).run();
}

Error malformed(std::string what) {
    return invalid_argument("", std::move(what));
}

}  // namespace atl::importer
