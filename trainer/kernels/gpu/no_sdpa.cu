// Where there is no library for attention: all of it is by products.

#include "trainer/kernels/gpu/sdpa.h"

namespace atl::kernels::gpu {

struct Sdpa::State {};

Sdpa::Sdpa(std::unique_ptr<State> state) : state_(std::move(state)) {}
Sdpa::~Sdpa() = default;

Result<std::unique_ptr<Sdpa>> Sdpa::open() {
    return std::unique_ptr<Sdpa>();
}

Result<std::unique_ptr<Sdpa>> Sdpa::open_for_card(const std::string&) {
    return std::unique_ptr<Sdpa>();
}

std::string Sdpa::library() const {
    return {};
}

Result<std::int64_t> Sdpa::workspace_bytes(const Kind&) {
    return unavailable("there is no library for attention in this build");
}

void Sdpa::run(cudaStream_t, const Kind&, const Tensors&, std::byte*) {
    check(false, "there is no library for attention in this build");
}

}  // namespace atl::kernels::gpu
