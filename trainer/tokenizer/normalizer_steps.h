#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/result.h"
#include "trainer/tokenizer/normalizer.h"
#include "trainer/tokenizer/pattern.h"

namespace atl::tokenizer {

// A step of the "normalizer" of a tokenizer.json.
struct NormalizerStep {
    enum class Kind { kForm, kPrepend, kReplace };
    Kind kind = Kind::kForm;
    NormalForm form = NormalForm::kNfc;
    PatternText pattern = {};  // of kReplace
    std::string content = {};  // what comes before a text that is not empty, or in the place of each match
};

// Those steps one after another. Immutable: any number of threads.
class Normalizer {
  public:
    Normalizer() = default;
    // kInvalidArgument names the pattern that is not supported.
    static Result<Normalizer> create(const std::vector<NormalizerStep>& steps);

    bool empty() const { return steps_.empty(); }

    // Normalizes `text`, which must be UTF-8. `origin_bytes`: how many bytes at its front come from the document's
    // first character (see WordSplitter); updated. kInvalidArgument: an expression runs away, or the steps make far too
    // much of the text.
    Status apply(std::string& text, std::size_t& origin_bytes) const;

  private:
    struct Step {
        NormalizerStep::Kind kind;
        NormalForm form;
        std::string content;
        std::vector<Pattern> pattern;  // one, of kReplace
    };
    std::vector<Step> steps_;
};

}  // namespace atl::tokenizer
