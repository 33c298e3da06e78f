#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "trainer/kernels/backend.h"
#include "trainer/tensor/arena.h"

namespace atl::parallel {

using tensor::Arena;
using tensor::Tensor;

// What the device has at such a tensor (fp64 [1]). Waits for it.
double read_scalar(kernels::Backend& backend, const Tensor& scalar);

// A run's kernels::StepScalars on the device, and how the host gets to know them without making the next step wait.
//
//   scalars.set(backend, {.updates = 7});       // before the first step
//   engine.train(…, {.loss_sum = scalars.loss()});
//   backend.finish_step(rules, scalars.all());
//   store.update(…, {.scalars = scalars.all()});
//   scalars.send(backend);                      // after each step, at most kUnread of them unread
//   … the next step is asked for …
//   const kernels::StepScalars seen = scalars.receive(backend, "step 7");
class DeviceScalars {
  public:
    static constexpr std::int64_t kUnread = 2;

    // With measuring arenas only the memory is counted.
    static DeviceScalars lay_out(Arena& device, Arena& pinned);

    void set(kernels::Backend& backend, const kernels::StepScalars& scalars) const;
    const Tensor& all() const { return all_; }
    Tensor loss() const { return part(offsetof(kernels::StepScalars, loss), 1); }
    Tensor gradient_squares() const { return part(offsetof(kernels::StepScalars, gradient_squares), 1); }
    Tensor loss_scale() const { return part(offsetof(kernels::StepScalars, loss_scale), 1); }
    // loss and gradient_squares, what ranks add up, and pinned memory for them.
    Tensor sums() const { return part(offsetof(kernels::StepScalars, loss), 2); }
    const Tensor& pinned_sums() const { return pinned_sums_; }

    void send(kernels::Backend& backend);
    std::int64_t unread() const { return sent_ - received_; }
    // Of the oldest step not read yet, whose name is for a message: waits for it.
    kernels::StepScalars receive(kernels::Backend& backend, std::string_view step);

  private:
    Tensor part(std::size_t offset_bytes, std::int64_t count) const;

    Tensor all_;          // fp64 [kStepScalars]
    Tensor pinned_sums_;  // fp64 [2]
    struct Copy {
        Tensor scalars;  // pinned
        kernels::Event arrived;
    };
    std::array<Copy, kUnread> copies_;
    std::int64_t sent_ = 0, received_ = 0;
};

}  // namespace atl::parallel
