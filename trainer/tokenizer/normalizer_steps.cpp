#include "trainer/tokenizer/normalizer_steps.h"

#include <algorithm>
#include <utility>

#include "trainer/tokenizer/growth.h"
#include "trainer/tokenizer/utf8.h"

namespace atl::tokenizer {
namespace {

// What stands in the place of a match has the place of the match's last character.
Status replace_matches(const Pattern& pattern, const std::string& content, std::string& text, std::size_t& origin_bytes,
                       std::size_t bytes_max) {
    std::vector<Match> matches;
    ATOLL_RETURN_IF_ERROR(pattern.find_matches(text, matches));
    if (matches.empty()) return {};
    if (text.size() + matches.size() * content.size() > bytes_max)
        return invalid_argument("normalizer", "normalizer: a Replace makes the text far too long");
    std::string result;
    result.reserve(text.size());
    std::size_t done = 0;
    std::size_t origin = 0;  // of the result
    const auto append_text = [&](std::size_t end) {
        if (done < origin_bytes) origin = result.size() + std::min(end, origin_bytes) - done;
        result.append(text, done, end - done);
    };
    for (const Match& match : matches) {
        append_text(match.begin);
        result += content;
        if (match.end <= origin_bytes) origin = result.size();
        done = match.end;
    }
    append_text(text.size());
    text = std::move(result);
    origin_bytes = origin;
    return {};
}

}  // namespace

Result<Normalizer> Normalizer::create(const std::vector<NormalizerStep>& steps) {
    Normalizer result;
    for (const NormalizerStep& step : steps) {
        Step& added = result.steps_.emplace_back(Step{step.kind, step.form, step.content, {}});
        if (step.kind != NormalizerStep::Kind::kReplace) continue;
        ATOLL_TRY(Pattern pattern, Pattern::compile("normalizer", step.pattern));
        added.pattern.push_back(std::move(pattern));
    }
    return result;
}

Status Normalizer::apply(std::string& text, std::size_t& origin_bytes) const {
    const std::size_t bytes_max = grown_bytes_max(text.size());
    for (const Step& step : steps_) {
        switch (step.kind) {
            case NormalizerStep::Kind::kForm:
                text = normalized(text, step.form);
                if (origin_bytes > 0 && !text.empty()) origin_bytes = first_code_point(text).length;
                break;
            case NormalizerStep::Kind::kPrepend:
                if (text.empty()) break;
                text.insert(0, step.content);
                if (origin_bytes > 0) origin_bytes += step.content.size();
                break;
            case NormalizerStep::Kind::kReplace:
                ATOLL_RETURN_IF_ERROR(
                    replace_matches(step.pattern.front(), step.content, text, origin_bytes, bytes_max));
                break;
        }
    }
    return {};
}

}  // namespace atl::tokenizer
