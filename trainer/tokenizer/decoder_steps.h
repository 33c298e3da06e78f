#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace atl::tokenizer {

// A step of the "decoder" of a tokenizer.json.
struct DecoderStep {
    enum class Kind { kReplace, kByteFallback, kFuse, kStrip, kMetaspace, kByteLevel };
    Kind kind = Kind::kFuse;
    std::string pattern = {};  // of kReplace; the character of kStrip and kMetaspace
    std::string content = {};  // of kReplace
    std::size_t start = 0;     // of kStrip: how many of the character are taken from the front of each token at most
    std::size_t stop = 0;      // of kStrip: and from its back
    bool drops_first = false;  // of kMetaspace: its characters in the first token stand for nothing
};

// The text of `tokens` as these steps of the tokenizers library make it, one after another. A Replace that would make
// all tokens together longer than grown_bytes_max() of them as they were given is not applied, and no step after it is.
std::string decode_tokens(const std::vector<DecoderStep>& steps, std::vector<std::string> tokens);

}  // namespace atl::tokenizer
