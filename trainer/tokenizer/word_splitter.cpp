#include "trainer/tokenizer/word_splitter.h"

#include <algorithm>
#include <utility>

#include "trainer/tokenizer/byte_alphabet.h"
#include "trainer/tokenizer/tokenizer_fields.h"
#include "trainer/tokenizer/unicode_classes.h"
#include "trainer/tokenizer/utf8.h"

namespace atl::tokenizer {
namespace {

constexpr const char* kSplitterField = "pre_tokenizer";

// A tokenizer.json is input, too: two Metaspaces in turn multiply the words of a text. Since no word is empty, a limit
// on their bytes limits their number as well. A word of one character becomes at most nine times as long by what real
// tokenizers have, a Metaspace and a ByteLevel; one step at most five times.
constexpr std::size_t kWordsGrowthMax = 16;
constexpr std::size_t kSmallWordsBytes = 256;

// Takes the pieces of a word from left to right, matches and what lies between them, and appends the words that the
// behaviour makes of them (NormalizedString::split of the tokenizers library).
class PieceJoiner {
  public:
    PieceJoiner(SplitBehavior behavior, bool invert, std::string_view text, std::vector<std::string_view>& words)
        : behavior_(behavior), invert_(invert), text_(text), words_(words) {}

    void add_match(std::size_t begin, std::size_t end) {
        if (begin > done_) add(done_, begin, invert_);
        add(begin, end, !invert_);
        done_ = end;
    }
    void finish() {
        if (done_ < text_.size()) add(done_, text_.size(), invert_);
        flush();
    }

  private:
    void add(std::size_t begin, std::size_t end, bool is_match) {
        const bool joins = has_word_ && joins_previous(is_match);
        previous_match_ = is_match;
        if (!joins) flush();
        if (!joins) begin_ = begin;
        end_ = end;
        has_word_ = behavior_ != SplitBehavior::kRemoved || !is_match;
    }
    // Whether a piece belongs to the word before it.
    bool joins_previous(bool is_match) const {
        switch (behavior_) {
            case SplitBehavior::kRemoved:
            case SplitBehavior::kIsolated:
                return false;
            case SplitBehavior::kMergedWithPrevious:
                return is_match && !previous_match_;
            case SplitBehavior::kMergedWithNext:
                return !is_match && previous_match_;
            case SplitBehavior::kContiguous:
                return is_match == previous_match_;
        }
        return false;
    }
    void flush() {
        if (has_word_) words_.push_back(text_.substr(begin_, end_ - begin_));
        has_word_ = false;
    }

    SplitBehavior behavior_;
    bool invert_;
    std::string_view text_;
    std::vector<std::string_view>& words_;
    std::size_t done_ = 0;   // the end of the last match
    std::size_t begin_ = 0;  // of the word that is not appended yet
    std::size_t end_ = 0;
    bool has_word_ = false;
    bool previous_match_ = false;  // whether the piece before was a match
};

void find_members(std::string_view text, bool (*is_member)(char32_t), PieceJoiner& joiner) {
    for (std::size_t at = 0; at < text.size();) {
        const CodePoint next = first_code_point(text.substr(at));
        if (is_member(next.code)) joiner.add_match(at, at + next.length);
        at += next.length;
    }
}

void append_replaced(std::string_view text, const std::string& replacement, std::string& out) {
    for (std::size_t space = 0; (space = text.find(' ')) != std::string_view::npos; text.remove_prefix(space + 1))
        out.append(text.substr(0, space)).append(replacement);
    out += text;
}

}  // namespace

Result<WordSplitter> WordSplitter::create(const std::vector<PreTokenizerStep>& steps, bool add_prefix_space) {
    WordSplitter splitter;
    for (const PreTokenizerStep& step : steps)
        ATOLL_RETURN_IF_ERROR(splitter.add(step, add_prefix_space, &step == &steps.back()));
    if (splitter.in_alphabet_) splitter.steps_.push_back({.action = Action::kFromAlphabet});
    return splitter;
}

Status WordSplitter::add(const PreTokenizerStep& step, bool add_prefix_space, bool last) {
    using Kind = PreTokenizerStep::Kind;
    const bool rewrites = step.kind == Kind::kMetaspace || step.kind == Kind::kByteLevel;
    if (in_alphabet_ && rewrites)
        return fields::bad(kSplitterField, "Metaspace and ByteLevel after ByteLevel are not supported");
    Step cut{.behavior = step.behavior, .invert = step.invert};
    switch (step.kind) {
        case Kind::kSplit: {
            ATOLL_TRY(cut.pattern, Pattern::compile(kSplitterField, step.pattern));
            break;
        }
        case Kind::kDigits:
            cut.is_member = is_numeric;
            break;
        case Kind::kPunctuation:
            cut.is_member = is_punctuation;
            break;
        case Kind::kMetaspace: {
            steps_.push_back({.action = Action::kMetaspace, .replacement = step.replacement, .prepend = step.prepend});
            if (!step.splits) return {};
            ATOLL_TRY(cut.pattern, Pattern::compile(kSplitterField, {step.replacement, false}));
            cut.behavior = SplitBehavior::kMergedWithNext;
            break;
        }
        case Kind::kByteLevel: {
            if (add_prefix_space) steps_.push_back({.action = Action::kPrefixSpace});
            in_alphabet_ = !last;
            if (step.splits) {
                ATOLL_TRY(cut.pattern, Pattern::compile(kSplitterField, {kGpt2Expression, true}));
                steps_.push_back(std::move(cut));
            }
            if (in_alphabet_) steps_.push_back({.action = Action::kToAlphabet});
            return {};
        }
    }
    steps_.push_back(std::move(cut));
    return {};
}

Status WordSplitter::split(std::string_view text, std::size_t origin_bytes, Words& words) const {
    const std::size_t bytes_max = kSmallWordsBytes + kWordsGrowthMax * text.size();
    words.buffer.clear();
    words.list.assign(1, text);
    words.origin_end = text.data() + std::min(origin_bytes, text.size());
    for (const Step& step : steps_) {
        if (step.action != Action::kCut) rewrite(step, words);
        if (step.action == Action::kCut) ATOLL_RETURN_IF_ERROR(cut(step, words));
        if (words.buffer.size() > bytes_max) return fields::bad(kSplitterField, "the steps make a text far too long");
    }
    return {};
}

Status WordSplitter::cut(const Step& step, Words& words) {
    const Expression* expression = step.pattern ? step.pattern->expression() : nullptr;
    std::vector<std::string_view> parts;
    std::vector<Match> matches;
    for (const std::string_view word : words.list) {
        if (expression != nullptr && step.behavior == SplitBehavior::kIsolated) {
            ATOLL_RETURN_IF_ERROR(expression->split(word, parts));
            continue;
        }
        PieceJoiner joiner(step.behavior, step.invert, word, parts);
        matches.clear();
        if (step.pattern) ATOLL_RETURN_IF_ERROR(step.pattern->find_matches(word, matches));
        for (const Match& match : matches) joiner.add_match(match.begin, match.end);
        if (!step.pattern) find_members(word, step.is_member, joiner);
        joiner.finish();
    }
    words.list.swap(parts);
    return {};
}

void WordSplitter::rewrite(const Step& step, Words& words) {
    std::string out;
    std::size_t origin = 0;
    std::vector<std::size_t> ends;
    ends.reserve(words.list.size());
    for (const std::string_view word : words.list) {
        const bool at_origin = word.data() < words.origin_end;
        const std::size_t origin_bytes =
            at_origin ? std::min(word.size(), static_cast<std::size_t>(words.origin_end - word.data())) : 0;
        if (step.action == Action::kToAlphabet) append_in_alphabet(word, out);
        if (step.action == Action::kFromAlphabet) out += bytes_of_alphabet(word).value_or("");
        if (step.action == Action::kPrefixSpace || step.action == Action::kMetaspace) {
            const bool is_first = step.prepend == PrependScheme::kFirst && at_origin;
            const bool prepends =
                step.action == Action::kPrefixSpace || step.prepend == PrependScheme::kAlways || is_first;
            const std::string space = step.action == Action::kPrefixSpace ? " " : step.replacement;
            if (prepends && !word.starts_with(' ') && !word.starts_with(space)) out += space;
            append_replaced(word.substr(0, origin_bytes), space, out);
            if (at_origin) origin = out.size();
            append_replaced(word.substr(origin_bytes), space, out);
        }
        ends.push_back(out.size());
    }
    words.buffer.swap(out);
    std::size_t begin = 0;
    for (std::size_t i = 0; i < ends.size(); ++i) {
        words.list[i] = std::string_view(words.buffer).substr(begin, ends[i] - begin);
        begin = ends[i];
    }
    words.origin_end = words.buffer.data() + origin;
}

}  // namespace atl::tokenizer
