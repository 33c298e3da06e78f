#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "shared/base/result.h"

namespace atl::adapter {

// A regular expression over module names, as peft hands it to Python's re: literals, ".", classes, groups, "|",
// repetitions, "^", "$", "\A", "\Z", "\b", "\d", "\w", "\s" and look-ahead. Only whether a name matches is asked, so
// that greedy and lazy repetitions are the same. No backtracking: a pattern that nests repetitions too deep is refused
// instead. Immutable and cheap to copy.
class ModulePattern {
  public:
    // What must match: all of a name (re.fullmatch), its beginning (re.match), or its last parts between dots, as peft
    // asks re.match of "(.*\.)?(PATTERN)$".
    enum class Extent { kWhole, kPrefix, kLastParts };

    // kInvalidArgument says what of the pattern is not supported (look-behind, references, flags, other than ASCII),
    // is no regular expression, or takes too long to match.
    static Result<ModulePattern> parse(std::string_view text, Extent extent = Extent::kWhole);

    // A name of more than 1000 characters matches nothing.
    bool matches(std::string_view module) const;
    // How long matches() takes with that name: characters looked at, up to steps_max. Finds out no faster.
    std::uint64_t steps(std::string_view module, std::uint64_t steps_max) const;
    const std::string& text() const { return text_; }
    // Steps that matching takes for each character of a name, at most. At most kCostMax; whoever takes many patterns
    // from a file limits their sum.
    double cost() const { return cost_; }
    static constexpr double kCostMax = 1e5;
    bool operator==(const ModulePattern& other) const { return text_ == other.text_ && extent_ == other.extent_; }

    struct Node;  // of its syntax tree

  private:
    std::string text_;
    Extent extent_ = Extent::kWhole;
    double cost_ = 0;
    std::shared_ptr<const Node> root_;
};

}  // namespace atl::adapter
