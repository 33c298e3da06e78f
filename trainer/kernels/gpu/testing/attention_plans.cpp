// attention_plans CARD.json: plans attention for that card, which need not be here. Reads a shape a line, "bf16 1 4096
// 32 32 128 0" (format, sequences, tokens, query heads, key/value heads, channels, places for documents), and prints it
// with the bytes of workspace of the forward and the backward pass, or "none". Why there is none is on standard error.

#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>

#include "trainer/kernels/gpu/sdpa.h"

namespace {

using atl::kernels::AttentionShape;
using atl::kernels::gpu::Sdpa;
using atl::tensor::DType;

bool parse(const std::string& line, AttentionShape& shape, std::int64_t& places) {
    std::istringstream words(line);
    std::string format;
    words >> format >> shape.batch >> shape.length >> shape.heads >> shape.kv_heads >> shape.head_channels >> places;
    shape.format = format == "fp16" ? DType::kF16 : DType::kBF16;
    return !words.fail() && (format == "bf16" || format == "fp16");
}

std::string plan(Sdpa& sdpa, const Sdpa::Kind& kind) {
    const auto bytes = sdpa.workspace_bytes(kind);
    if (bytes.ok()) return std::to_string(*bytes);
    std::cerr << bytes.error().message << "\n";
    return "none";
}

}  // namespace

int main(int argc, char** argv) {
    std::ifstream file(argc > 1 ? argv[1] : "");
    const std::string card(std::istreambuf_iterator<char>(file), {});
    const auto sdpa = Sdpa::open_for_card(card);
    if (!sdpa.ok()) {
        std::cerr << describe(sdpa.error()) << "\n";
        return 1;
    }
    std::cerr << (*sdpa)->library() << "\n";
    for (std::string line; std::getline(std::cin, line);) {
        AttentionShape shape{};
        std::int64_t places = 0;
        if (!parse(line, shape, places)) {
            std::cerr << "not a shape: " << line << "\n";
            return 2;
        }
        std::cout << line << " " << plan(**sdpa, {shape, Sdpa::Pass::kForward, places}) << " "
                  << plan(**sdpa, {shape, Sdpa::Pass::kBackward, places}) << std::endl;
    }
    return 0;
}
