#include "shared/adapter/module_pattern.h"

#include <algorithm>
#include <bitset>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "shared/base/text.h"

namespace atl::adapter {

using Characters = std::bitset<128>;

// One of its kinds with what that kind uses.
struct ModulePattern::Node {
    enum class Kind : std::uint8_t {
        kCharacter,  // characters
        kSequence,   // children
        kEither,     // children
        kRepeat,     // children[0], min, max
        kStart,
        kEnd,
        kBoundary,  // negated: none
        kLookAhead  // children[0], negated
    };
    Kind kind = Kind::kSequence;
    Characters characters = {};
    std::vector<Node> children = {};
    std::int64_t min = 0, max = 0;
    bool negated = false;
};

namespace {

using Node = ModulePattern::Node;
using Kind = Node::Kind;
// Where in a name something may begin or end: its length plus one.
using Places = std::vector<bool>;

constexpr std::size_t kPatternMax = 4096;    // characters
constexpr int kGroupsMax = 32;               // within one another
constexpr std::size_t kNameMax = 1000;       // characters; a longer name is no module's
constexpr double kRepeatCost = 128;          // of a repetition without an end: about as often as a name is long
constexpr std::int64_t kRepeatMax = 100000;  // more than any name is long
constexpr std::int64_t kForever = std::numeric_limits<std::int64_t>::max();

Characters range_of(char first, char last) {
    Characters set;
    for (auto c = static_cast<unsigned char>(first); c <= static_cast<unsigned char>(last); ++c) set.set(c);
    return set;
}

Characters one(char c) {
    return range_of(c, c);
}

// Of "\d", "\w", "\s"; a capital letter has all others. Absent: the letter names no class.
std::optional<Characters> class_of(char letter) {
    Characters set;
    const char small = static_cast<char>(letter | 0x20);
    if (small == 'd') set = range_of('0', '9');
    if (small == 'w') set = range_of('0', '9') | range_of('a', 'z') | range_of('A', 'Z') | one('_');
    if (small == 's') set = range_of('\t', '\r') | range_of('\x1c', ' ');
    if (set.none()) return std::nullopt;
    return small == letter ? set : ~set;
}

// Of "\n" and the like, or of a sign that stands for itself; absent: another letter or digit.
std::optional<char> control_of(char letter) {
    constexpr std::string_view kLetters = "afnrtv", kControls = "\a\f\n\r\t\v";
    if (const auto at = kLetters.find(letter); at != std::string_view::npos) return kControls[at];
    const bool is_word = class_of('w')->test(static_cast<std::size_t>(letter)) && letter != '_';
    return is_word ? std::nullopt : std::optional(letter);
}

double cost_of(const Node& node) {
    double cost = 0;
    for (const Node& child : node.children) cost += cost_of(child);
    if (node.kind != Kind::kRepeat) return 1 + cost;
    return 1 + cost * std::clamp(static_cast<double>(node.max), 1.0, kRepeatCost);
}

// Reads a pattern as Python's re does, by recursive descent. The first fault ends it.
class PatternParser {
  public:
    explicit PatternParser(std::string_view text) : text_(text) {}

    Result<Node> parse() {
        if (text_.size() > kPatternMax) return invalid_argument("", "has more than 4096 characters");
        if (std::ranges::any_of(text_, [](char c) { return static_cast<unsigned char>(c) > 127; }))
            return invalid_argument("", "holds other characters than ASCII, which is not supported");
        Node node = parse_either();
        if (fault_.empty() && at_ < text_.size()) fail("has a ')' too many");
        if (!fault_.empty()) return invalid_argument("", fault_);
        if (cost_of(node) > ModulePattern::kCostMax)
            return invalid_argument("", "repeats within repetitions too often to be matched");
        return node;
    }

  private:
    bool done() const { return at_ == text_.size() || !fault_.empty(); }
    bool sees(std::string_view what) const { return fault_.empty() && text_.substr(at_).starts_with(what); }
    bool take(std::string_view what) {
        if (!sees(what)) return false;
        at_ += what.size();
        return true;
    }
    void fail(const std::string& why) {
        if (fault_.empty()) fault_ = why + ", at character " + std::to_string(at_ + 1);
    }
    void refuse(std::string_view what) { fail("uses " + std::string(what) + ", which is not supported"); }

    Node parse_either() {
        Node either{.kind = Kind::kEither};
        if (++depth_ > kGroupsMax) fail("has groups within groups too deep");
        do {
            either.children.push_back(parse_sequence());
        } while (take("|"));
        --depth_;
        return either.children.size() == 1 ? std::move(either.children.front()) : std::move(either);
    }

    Node parse_sequence() {
        Node sequence;
        while (!done() && !sees("|") && !sees(")")) {
            Node item = parse_item();
            const bool is_place = item.kind == Kind::kStart || item.kind == Kind::kEnd || item.kind == Kind::kBoundary;
            sequence.children.push_back(parse_repeats(std::move(item), is_place));
        }
        return sequence;
    }

    Node parse_item() {
        if (take("(")) return parse_group();
        if (take("[")) return parse_class();
        if (take("\\")) return parse_escape();
        if (take("^")) return {.kind = Kind::kStart};
        if (take("$")) return {.kind = Kind::kEnd};
        if (take(".")) return {.kind = Kind::kCharacter, .characters = ~one('\n')};
        const std::size_t before = at_;
        if (parse_counts()) fail("has nothing to repeat");
        at_ = before + 1;
        return literal(text_[before]);
    }

    static Node literal(char c) { return {.kind = Kind::kCharacter, .characters = one(c)}; }

    Node parse_group() {
        Node group;
        if (take("?=") || take("?!")) {
            group = {.kind = Kind::kLookAhead, .negated = text_[at_ - 1] == '!'};
            group.children.push_back(parse_either());
        } else if (sees("?<=") || sees("?<!")) {
            refuse("look-behind");
        } else if (sees("?P=") || sees("?(")) {
            refuse("a reference to a group");
        } else if (take("?P<")) {
            while (!done() && !sees(">")) ++at_;
            if (!take(">")) fail("has a group whose name does not end");
            group = parse_either();
        } else if (sees("?") && !take("?:")) {
            refuse("'(" + std::string(text_.substr(at_, 2)) + "'");
        } else {
            group = parse_either();
        }
        if (!take(")")) fail("has a '(' that is not closed");
        return group;
    }

    Node parse_escape() {
        if (done()) return fail("ends in a '\\'"), Node();
        const char letter = text_[at_++];
        if (letter == 'A') return {.kind = Kind::kStart};
        if (letter == 'Z') return {.kind = Kind::kEnd};
        if (letter == 'b' || letter == 'B') return {.kind = Kind::kBoundary, .negated = letter == 'B'};
        if (const auto characters = class_of(letter)) return {.kind = Kind::kCharacter, .characters = *characters};
        if (const auto control = control_of(letter)) return literal(*control);
        return refuse("'\\" + std::string(1, letter) + "'"), Node();
    }

    // Of a class: a sign, or what stands for several (then no range begins with it).
    std::pair<Characters, std::optional<char>> parse_member() {
        if (!take("\\")) {
            const char c = text_[at_++];
            return {one(c), c};
        }
        if (done()) return fail("ends in a '\\'"), std::pair<Characters, std::optional<char>>();
        const char letter = text_[at_++];
        if (letter == 'b') return {one('\b'), '\b'};
        if (const auto characters = class_of(letter)) return {*characters, std::nullopt};
        if (const auto control = control_of(letter)) return {one(*control), control};
        return refuse("'\\" + std::string(1, letter) + "'"), std::pair<Characters, std::optional<char>>();
    }

    Node parse_class() {
        Node node{.kind = Kind::kCharacter};
        const bool is_negated = take("^");
        for (bool is_first = true; is_first || !sees("]"); is_first = false) {
            if (done()) return fail("has a '[' that is not closed"), node;
            const auto [characters, first] = parse_member();
            if (!sees("-") || text_.substr(at_).starts_with("-]")) {
                node.characters |= characters;
                continue;
            }
            take("-");
            if (done()) return fail("has a '[' that is not closed"), node;
            const auto [ignored, last] = parse_member();
            if (!first || !last || *first > *last) return fail("has a range of characters that is none"), node;
            node.characters |= range_of(*first, *last);
        }
        take("]");
        if (is_negated) node.characters.flip();
        return node;
    }

    std::optional<std::int64_t> parse_digits() {
        const std::size_t begin = at_;
        std::int64_t value = 0;
        while (!done() && text_[at_] >= '0' && text_[at_] <= '9') {
            value = std::min(value * 10 + (text_[at_++] - '0'), kRepeatMax);
        }
        return at_ == begin ? std::nullopt : std::optional(value);
    }

    // Least and most of a repetition that stands here; absent: none does. A '{' that begins none is a literal.
    std::optional<std::pair<std::int64_t, std::int64_t>> parse_counts() {
        if (take("*")) return std::pair(std::int64_t{0}, kForever);
        if (take("+")) return std::pair(std::int64_t{1}, kForever);
        if (take("?")) return std::pair(std::int64_t{0}, std::int64_t{1});
        const std::size_t begin = at_;
        if (sees("{}") || !take("{")) return std::nullopt;
        const auto low = parse_digits();
        const bool has_comma = take(",");
        const auto high = has_comma ? parse_digits() : low;
        if (!take("}")) {
            at_ = begin;
            return std::nullopt;
        }
        const std::pair counts(low.value_or(0), high.value_or(kForever));
        if (counts.first > counts.second) fail("has a repetition whose least is more than its most");
        if (counts.first == kRepeatMax) fail("has a repetition of too many");
        return counts;
    }

    Node parse_repeats(Node item, bool is_place) {
        const auto counts = parse_counts();
        if (!counts) return item;
        if (is_place) fail("repeats a place");
        if (sees("+")) refuse("a possessive repetition");
        take("?");  // lazy
        const std::size_t before = at_;
        if (parse_counts()) {
            at_ = before;
            fail("repeats a repetition");
        }
        Node repeat{.kind = Kind::kRepeat, .min = counts->first, .max = counts->second};
        repeat.children.push_back(std::move(item));
        return repeat;
    }

    std::string_view text_;
    std::size_t at_ = 0;
    int depth_ = 0;
    std::string fault_;
};

bool is_word_at(std::string_view name, std::size_t at) {
    return at < name.size() && static_cast<unsigned char>(name[at]) < 128 &&
           class_of('w')->test(static_cast<std::size_t>(name[at]));
}

bool has_any(const Places& places) {
    return std::ranges::find(places, true) != places.end();
}

// What matching may still take.
class Steps {
  public:
    explicit Steps(std::uint64_t steps) : left_(steps) {}
    // Whether there are so many left, which are gone then.
    bool take(std::uint64_t steps) {
        left_ -= std::min(steps, left_);
        return left_ > 0;
    }
    std::uint64_t left() const { return left_; }

  private:
    std::uint64_t left_;
};

Places starts_of(const Node& node, std::string_view name, const Places& ends, Steps& steps);

// Where the repeated may begin: by going back from the ends as often as it may be repeated. It stops where another
// turn changes nothing.
Places starts_of_repeat(const Node& node, std::string_view name, const Places& ends, Steps& steps) {
    Places now = ends;
    for (std::int64_t i = 0; i < node.min && steps.left() > 0; ++i) {
        Places next = starts_of(node.children[0], name, now, steps);
        if (next == now) break;
        now = std::move(next);
    }
    Places all = now;
    for (std::int64_t i = node.min; i < node.max && steps.left() > 0; ++i) {
        now = starts_of(node.children[0], name, now, steps);
        bool has_more = false;
        for (std::size_t at = 0; at < all.size(); ++at) {
            has_more = has_more || (now[at] && !all[at]);
            all[at] = all[at] || now[at];
        }
        if (!has_more) break;
    }
    return all;
}

// The places from which the node leads to one of the ends; anything once no steps are left.
Places starts_of(const Node& node, std::string_view name, const Places& ends, Steps& steps) {
    Places starts(ends.size());
    if (!steps.take(ends.size())) return starts;
    const auto keep_where = [&](auto&& holds) {
        for (std::size_t at = 0; at < ends.size(); ++at) starts[at] = ends[at] && holds(at);
    };
    switch (node.kind) {
        case Kind::kCharacter:
            for (std::size_t at = 0; at < name.size(); ++at) {
                const auto c = static_cast<unsigned char>(name[at]);
                starts[at] = ends[at + 1] && c < 128 && node.characters.test(c);
            }
            break;
        case Kind::kSequence:
            starts = ends;
            for (auto child = node.children.rbegin(); child != node.children.rend() && has_any(starts); ++child)
                starts = starts_of(*child, name, starts, steps);
            break;
        case Kind::kEither:
            for (const Node& child : node.children) {
                const Places some = starts_of(child, name, ends, steps);
                for (std::size_t at = 0; at < starts.size(); ++at) starts[at] = starts[at] || some[at];
            }
            break;
        case Kind::kRepeat:
            return starts_of_repeat(node, name, ends, steps);
        case Kind::kStart:
            keep_where([](std::size_t at) { return at == 0; });
            break;
        case Kind::kEnd:
            keep_where([&](std::size_t at) { return at == name.size(); });
            break;
        case Kind::kBoundary:
            keep_where([&](std::size_t at) {
                return ((at > 0 && is_word_at(name, at - 1)) != is_word_at(name, at)) != node.negated;
            });
            break;
        case Kind::kLookAhead: {
            const Places seen = starts_of(node.children[0], name, Places(ends.size(), true), steps);
            keep_where([&](std::size_t at) { return seen[at] != node.negated; });
            break;
        }
    }
    return starts;
}

// The places in the name from which the pattern leads to its end or, of a prefix, to any place.
Places starts_in(const Node& root, std::string_view name, ModulePattern::Extent extent, Steps& steps) {
    Places ends(name.size() + 1, extent == ModulePattern::Extent::kPrefix);
    ends.back() = true;
    return starts_of(root, name, ends, steps);
}

}  // namespace

Result<ModulePattern> ModulePattern::parse(std::string_view text, Extent extent) {
    auto root = PatternParser(text).parse();
    if (!root.ok()) return invalid_argument("", in_quotes(text) + " " + root.error().message);
    ModulePattern pattern;
    pattern.text_ = text;
    pattern.extent_ = extent;
    pattern.cost_ = cost_of(*root);
    pattern.root_ = std::make_shared<const Node>(std::move(root).value());
    return pattern;
}

bool ModulePattern::matches(std::string_view module) const {
    if (module.size() > kNameMax) return false;
    Steps unlimited(std::numeric_limits<std::uint64_t>::max());
    const Places starts = starts_in(*root_, module, extent_, unlimited);
    if (starts[0] || extent_ != Extent::kLastParts) return starts[0];
    const std::size_t end = std::min(module.find('\n'), module.size());  // "." is no line's end
    for (std::size_t at = 0; at < end; ++at)
        if (module[at] == '.' && starts[at + 1]) return true;
    return false;
}

std::uint64_t ModulePattern::steps(std::string_view module, std::uint64_t steps_max) const {
    if (module.size() > kNameMax) return 0;
    Steps steps(steps_max);
    starts_in(*root_, module, extent_, steps);
    return steps_max - steps.left();
}

}  // namespace atl::adapter
