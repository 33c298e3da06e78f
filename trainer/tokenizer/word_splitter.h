#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"
#include "trainer/tokenizer/pattern.h"

namespace atl::tokenizer {

// What becomes of the matches at which a text is split.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
// Before which words a Metaspace puts its character: never, at the beginning of a document, before each one.
enum class PrependScheme { kNever, kFirst, kAlways };

// A step of the "pre_tokenizer" of a tokenizer.json.
struct PreTokenizerStep {
    enum class Kind { kSplit, kDigits, kPunctuation, kMetaspace, kByteLevel };
    Kind kind = Kind::kSplit;
    PatternText pattern = {};                           // of kSplit
    SplitBehavior behavior = SplitBehavior::kIsolated;  // of kSplit, kDigits and kPunctuation
    bool invert = false;                                // of kSplit: what lies between two matches counts as a match
    std::string replacement = {};                       // of kMetaspace, for spaces
    PrependScheme prepend = PrependScheme::kAlways;     // of kMetaspace
    bool splits = true;  // of kMetaspace (before its character), of kByteLevel (as GPT-2)
};

// Cuts normalized texts into the words that byte-pair encoding works on, by those steps one after another. Immutable:
// any number of threads.
class WordSplitter {
  public:
    // Words of a text: views into it or into `buffer`.
    struct Words {
        std::vector<std::string_view> list;
        std::string buffer;
        const char* origin_end = nullptr;  // words that begin before it stand at the beginning of the document
    };

    WordSplitter() = default;
    // `add_prefix_space`: ByteLevel puts a space before each word that begins with none. kInvalidArgument names what is
    // not supported.
    static Result<WordSplitter> create(const std::vector<PreTokenizerStep>& steps, bool add_prefix_space);

    // Puts the words of `text`, which must be UTF-8, into `words`. They are views: valid while the text and `words`
    // are. `origin_bytes`: how many bytes at the text's front come from the document's first character. Metaspace's
    // scheme "first" puts its character before a word that begins with one of them. kInvalidArgument: an expression
    // runs away, or the steps make the text far too long.
    Status split(std::string_view text, std::size_t origin_bytes, Words& words) const;

  private:
    enum class Action { kCut, kPrefixSpace, kMetaspace, kToAlphabet, kFromAlphabet };
    struct Step {
        Action action = Action::kCut;
        std::optional<Pattern> pattern = std::nullopt;  // else by characters
        bool (*is_member)(char32_t) = nullptr;
        SplitBehavior behavior = SplitBehavior::kIsolated;
        bool invert = false;
        std::string replacement = {};
        PrependScheme prepend = PrependScheme::kNever;
    };
    Status add(const PreTokenizerStep& step, bool add_prefix_space, bool last);
    static Status cut(const Step& step, Words& words);
    static void rewrite(const Step& step, Words& words);

    std::vector<Step> steps_;
    bool in_alphabet_ = false;
};

}  // namespace atl::tokenizer
