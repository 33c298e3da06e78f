#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "trainer/kernels/backend.h"
#include "trainer/kernels/host_timed_event.h"

namespace atl::kernels {

// A device as far from the host as backend.h lets one be. Its memory is at addresses that fault when the host touches
// them, and its operations take that and pinned memory alone. What it is asked for waits until the host waits for an
// outcome, or asks a second time whether it is there and for nothing else in between; then the streams run in any order
// that their events allow, by a seed. So a host that touches device memory ends by SIGSEGV, one that hands over memory
// of its own by a message, one that reads pinned memory too early finds what was there before, and a missing event
// gives other bits than the CPU's. A region is replayed as a graph would be: what its key does not say is not seen.
// Counts how often the host waited.
class FarBackend : public Backend {
  public:
    using Shape = AttentionShape;

    explicit FarBackend(std::unique_ptr<Backend> device, std::uint64_t seed = 1)
        : device_(std::move(device)), random_(seed) {}

    int host_waits() const { return host_waits_; }

    std::string name() const override { return device_->name(); }
    bool host_reaches_device() const override { return false; }
    std::optional<DeviceMemory> device_memory() const override { return device_->device_memory(); }
    // After some bytes of its own, so that whoever knows what a device keeps is found out.
    std::int64_t attention_kept_bytes(const Shape& shape) const override {
        return kKeptBefore + device_->attention_kept_bytes(shape);
    }
    std::int64_t attention_workspace_bytes(const Shape& shape) const override {
        return device_->attention_workspace_bytes(shape);
    }
    std::int64_t attention_cached_workspace_bytes(const Shape& shape, std::int64_t keys_max) const override {
        return device_->attention_cached_workspace_bytes(shape, keys_max);
    }

    std::int64_t loss_rows(std::int64_t vocabulary) const override { return device_->loss_rows(vocabulary); }

    Result<tensor::Memory> allocate(Space space, std::int64_t bytes) override {
        ATOLL_TRY(tensor::Memory memory, device_->allocate(space, bytes));
        const std::int64_t size = memory.size_bytes();
        if (space == Space::kPinned) {
            std::byte* const data = memory.data();
            pinned_.emplace(data, std::move(memory));
            return tensor::Memory(data, size, [this](std::byte* freed, std::int64_t) {
                run_all();
                pinned_.erase(freed);
            });
        }
        void* const far = ::mmap(nullptr, static_cast<std::size_t>(size), PROT_NONE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        check(far != MAP_FAILED, "no addresses left");
        auto* const begin = static_cast<std::byte*>(far);
        regions_.emplace(begin, std::move(memory));
        return tensor::Memory(begin, size, [this](std::byte* data, std::int64_t count) {
            run_all();
            regions_.erase(data);
            ::munmap(data, static_cast<std::size_t>(count));
        });
    }

    // --- streams ---
    Event record(Stream stream) override {
        check(region_ == nullptr, "an event in a region");
        const Event event{++last_event_};
        put(stream, {[this, event] { happened_.at(event.number - 1) = true; }, {}});
        happened_.push_back(false);
        return event;
    }
    void wait(Stream stream, Event event) override {
        put(stream, {[] {}, event});
    }
    bool has_happened(Event event) override {
        if (is_over(event)) return true;
        if (++questions_ == 1) return false;
        if (questions_ == 2) ++host_waits_;
        while (!is_over(event)) run_one();
        return true;
    }
    std::shared_ptr<const TimedEvent> record_timed(Stream stream) override {
        check(region_ == nullptr, "an event in a region");
        auto event = std::make_shared<HostTimedEvent>();
        put(stream, {[event] { event->happen(); }, {}});
        return event;
    }
    void transfer(Stream stream, const Tensor& from, const Tensor& to) override {
        check(is_far(from) != is_far(to), "a transfer is between pinned and device memory");
        check(stream != Stream::kCompute, "transfers have streams of their own");
        put(stream, {[this, from, to] { device_->copy(near(from), near(to)); }, {}});
    }

    // The second time and later the operations of the first are asked for again, and `body` is not run.
    void region(const std::vector<std::uint64_t>& key, const std::function<void()>& body) override {
        check(region_ == nullptr, "a region in a region");
        const auto [kept, is_new] = kept_.try_emplace(key);
        if (is_new) {
            region_ = &kept->second;
            body();
            region_ = nullptr;
        } else {
            ++replays_;
            for (const auto& call : kept->second) compute(call);
        }
    }
    int replays() const { return replays_; }

    // --- what the host waits for ---
    void synchronize() override {
        check(region_ == nullptr, "the host waits in a region");
        ++host_waits_;
        run_all();
    }
    void copy_to_host(const Tensor& from, void* to) override {
        synchronize();
        device_->copy_to_host(near(from), to);
    }

    void copy_from_host(const void* from, const Tensor& to) override {
        compute([this, from, to] { device_->copy_from_host(from, near(to)); });
        wait_on_host(record(Stream::kCompute));
    }

    // --- what comes later ---
    void copy(const Tensor& from, const Tensor& to) override { later(&Backend::copy, from, to); }
    void zero(const Tensor& x) override { later(&Backend::zero, x); }
    void matmul(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b, const Tensor& c,
                bool accumulate) override {
        later(&Backend::matmul, a, transpose_a, b, transpose_b, c, accumulate);
    }
    void add(const Tensor& a, const Tensor& b, const Tensor& out) override { later(&Backend::add, a, b, out); }
    void scale(const Tensor& x, float factor) override { later(&Backend::scale, x, factor); }
    void sum(const Tensor& x, const Tensor& into, bool accumulate) override {
        later(&Backend::sum, x, into, accumulate);
    }
    void sum_of_squares(std::span<const Tensor> all, const Tensor& into, bool accumulate) override {
        compute([this, all = std::vector(all.begin(), all.end()), into, accumulate] {
            std::vector<Tensor> near_all;
            for (const Tensor& one : all) near_all.push_back(near(one));
            device_->sum_of_squares(near_all, near(into), accumulate);
        });
    }
    void divide_by_norm(const Tensor& x, const Tensor& squares, float norm_min) override {
        later(&Backend::divide_by_norm, x, squares, norm_min);
    }
    void sum_pieces(const Tensor& pieces, const Tensor& sum) override { later(&Backend::sum_pieces, pieces, sum); }
    void convert(const Tensor& from, const Tensor& to) override { later(&Backend::convert, from, to); }
    bool multiplies_quantized() const override { return device_->multiplies_quantized(); }
    void dequantize(const Tensor& from, const Tensor& to) override { later(&Backend::dequantize, from, to); }
    void embedding_forward(const Tensor& table, const Tensor& ids, const Tensor& out) override {
        later(&Backend::embedding_forward, table, ids, out);
    }
    void embedding_backward(const Tensor& ids, const Tensor& by_id, const Tensor& out_gradient,
                            const Tensor& table_gradient, bool accumulate) override {
        later(&Backend::embedding_backward, ids, by_id, out_gradient, table_gradient, accumulate);
    }
    void rmsnorm_forward(const Tensor& x, const Tensor& weight, float epsilon, const Tensor& out,
                         const Tensor& rstd) override {
        later(&Backend::rmsnorm_forward, x, weight, epsilon, out, rstd);
    }
    void add_rmsnorm_forward(const Tensor& x, const Tensor& delta, const Tensor& weight, float epsilon,
                             const Tensor& sum, const Tensor& out, const Tensor& rstd) override {
        later(&Backend::add_rmsnorm_forward, x, delta, weight, epsilon, sum, out, rstd);
    }
    void rmsnorm_apply(const Tensor& x, const Tensor& weight, const Tensor& rstd, const Tensor& out) override {
        later(&Backend::rmsnorm_apply, x, weight, rstd, out);
    }
    void rmsnorm_backward(const Tensor& x, const Tensor& weight, const Tensor& rstd, const Tensor& out_gradient,
                          const Tensor& residual_gradient, const Tensor& x_gradient, const Tensor& weight_gradient,
                          bool accumulate) override {
        later(&Backend::rmsnorm_backward, x, weight, rstd, out_gradient, residual_gradient, x_gradient, weight_gradient,
              accumulate);
    }
    void norm_heads(const Shape& shape, const Tensor& qkv, const Tensor& query_weight, const Tensor& key_weight,
                    float epsilon, const Tensor& out, const Tensor& rstd) override {
        later(&Backend::norm_heads, shape, qkv, query_weight, key_weight, epsilon, out, rstd);
    }
    void norm_heads_backward(const Shape& shape, const Tensor& qkv, const Tensor& query_weight,
                             const Tensor& key_weight, const Tensor& rstd, const Tensor& gradient,
                             const Tensor& query_weight_gradient, const Tensor& key_weight_gradient,
                             bool accumulate) override {
        later(&Backend::norm_heads_backward, shape, qkv, query_weight, key_weight, rstd, gradient,
              query_weight_gradient, key_weight_gradient, accumulate);
    }
    void layernorm_forward(const Tensor& x, const Tensor& weight, const Tensor& bias, float epsilon, const Tensor& out,
                           const Tensor& moments) override {
        later(&Backend::layernorm_forward, x, weight, bias, epsilon, out, moments);
    }
    void layernorm_apply(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& moments,
                         const Tensor& out) override {
        later(&Backend::layernorm_apply, x, weight, bias, moments, out);
    }
    void layernorm_backward(const Tensor& x, const Tensor& weight, const Tensor& moments, const Tensor& out_gradient,
                            const Tensor& residual_gradient, const Tensor& x_gradient, const Tensor& weight_gradient,
                            const Tensor& bias_gradient, bool accumulate) override {
        later(&Backend::layernorm_backward, x, weight, moments, out_gradient, residual_gradient, x_gradient,
              weight_gradient, bias_gradient, accumulate);
    }
    void add_bias(const Tensor& x, const Tensor& bias, const Tensor& residual, const Tensor& out) override {
        later(&Backend::add_bias, x, bias, residual, out);
    }
    void bias_relu(const Tensor& x, const Tensor& bias) override { later(&Backend::bias_relu, x, bias); }
    void relu_backward(const Tensor& out, const Tensor& gradient) override {
        later(&Backend::relu_backward, out, gradient);
    }
    void sum_rows(const Tensor& x, const Tensor& out, bool accumulate) override {
        later(&Backend::sum_rows, x, out, accumulate);
    }
    void rope(const Shape& shape, const Tensor& table, const Tensor& positions, const Tensor& qkv,
              bool backward) override {
        later(&Backend::rope, shape, table, positions, qkv, backward);
    }
    void attention_forward(const Shape& shape, const Tensor& qkv, const Documents& documents, const Tensor& out,
                           const Tensor& kept, tensor::Arena& workspace) override {
        later_with(workspace, attention_workspace_bytes(shape), [=, this](tensor::Arena& own) {
            device_->attention_forward(shape, near(qkv), near(documents), near(out), of_device(kept), own);
        });
    }
    void attention_backward(const Shape& shape, const Tensor& qkv, const Documents& documents, const Tensor& out,
                            const Tensor& kept, const Tensor& out_gradient, const Rotation& rotation,
                            const Tensor& qkv_gradient, tensor::Arena& workspace) override {
        later_with(workspace, attention_workspace_bytes(shape), [=, this](tensor::Arena& own) {
            device_->attention_backward(shape, near(qkv), near(documents), near(out), of_device(kept),
                                        near(out_gradient), {near(rotation.table), near(rotation.positions)},
                                        near(qkv_gradient), own);
        });
    }
    void attention_cached(const Shape& shape, const Tensor& qkv, std::int64_t past, const Tensor& key_cache,
                          const Tensor& value_cache, const Tensor& out, tensor::Arena& workspace) override {
        const std::int64_t bytes = attention_cached_workspace_bytes(shape, past + shape.length);
        later_with(workspace, bytes, [=, this](tensor::Arena& own) {
            device_->attention_cached(shape, near(qkv), past, near(key_cache), near(value_cache), near(out), own);
        });
    }
    void swiglu_forward(const Tensor& gate_up, const Tensor& out) override {
        later(&Backend::swiglu_forward, gate_up, out);
    }
    void swiglu_backward(const Tensor& gate_up, const Tensor& out_gradient, const Tensor& gate_up_gradient,
                         const Tensor& out) override {
        later(&Backend::swiglu_backward, gate_up, out_gradient, gate_up_gradient, out);
    }
    void dropout(const Dropout& dropout, const Tensor& x, const Tensor& out) override {
        later(&Backend::dropout, dropout, x, out);
    }
    void cross_entropy_forward(const Tensor& logits, const Tensor& targets, const Tensor& losses) override {
        later(&Backend::cross_entropy_forward, logits, targets, losses);
    }
    void cross_entropy_backward(const Tensor& logits, const Tensor& targets, float gradient_scale,
                                const Tensor& loss_scale, const Tensor& losses) override {
        later(&Backend::cross_entropy_backward, logits, targets, gradient_scale, loss_scale, losses);
    }
    void finish_step(const StepRules& rules, const Tensor& scalars) override {
        later(&Backend::finish_step, rules, scalars);
    }
    void adamw(const AdamWStep& step, const Tensor& scalars, std::span<const OptimizerRange> ranges) override {
        compute([this, step, scalars, ranges = std::vector(ranges.begin(), ranges.end())] {
            device_->adamw(step, near(scalars), near(ranges));
        });
    }
    void sgd(const SgdStep& step, const Tensor& scalars, std::span<const OptimizerRange> ranges) override {
        compute([this, step, scalars, ranges = std::vector(ranges.begin(), ranges.end())] {
            device_->sgd(step, near(scalars), near(ranges));
        });
    }
    void nesterov(float momentum, const Tensor& scalars, std::span<const OptimizerRange> ranges) override {
        compute([this, momentum, scalars, ranges = std::vector(ranges.begin(), ranges.end())] {
            device_->nesterov(momentum, near(scalars), near(ranges));
        });
    }

  protected:
    // A tensor as the host may touch it, once all that was asked for is done: for tests that spoil results.
    Tensor reach(const Tensor& tensor) {
        run_all();
        return near(tensor);
    }

  private:
    void wait_without_limit(Event event) override {
        if (is_over(event)) return;
        ++host_waits_;
        while (!is_over(event)) run_one();
    }

    struct Call {
        std::function<void()> run;
        Event after;  // that has to happen first
    };
    using Regions = std::map<std::byte*, tensor::Memory>;

    void put(Stream stream, Call call) {
        queues_[static_cast<std::size_t>(stream)].push_back(std::move(call));
        questions_ = 0;
    }
    void compute(std::function<void()> call) {
        if (region_ != nullptr) region_->push_back(call);
        put(Stream::kCompute, {std::move(call), {}});
    }
    template <class... Parameters, class... Arguments>
    void later(void (Backend::*operation)(Parameters...), const Arguments&... arguments) {
        compute([=, this] { (device_.get()->*operation)(near(arguments)...); });
    }
    // The caller's scope has ended by then, so the call keeps the place that it would have taken.
    void later_with(tensor::Arena& workspace, std::int64_t bytes, std::function<void(tensor::Arena&)> call) {
        const tensor::Arena::Scope scope(workspace);
        std::byte* const place = workspace.allocate_bytes(tensor::Category::kWorkspace, bytes);
        compute([this, place, bytes, call = std::move(call)] {
            tensor::Arena own = tensor::Arena::borrowing(near(place), bytes);
            call(own);
        });
    }

    bool is_over(Event event) const { return event.number == 0 || happened_.at(event.number - 1); }
    void run_one() {
        if (random_() % kCallsOfAnOrder == 0) std::ranges::shuffle(order_, random_);
        const auto chosen = std::ranges::find_if(order_, [&](std::size_t stream) {
            return !queues_[stream].empty() && is_over(queues_[stream].front().after);
        });
        check(chosen != order_.end(), "every stream waits for an event that nothing will record");
        Call call = std::move(queues_[*chosen].front());
        queues_[*chosen].pop_front();
        call.run();
    }
    void run_all() {
        const auto is_busy = [&] {
            return std::ranges::any_of(queues_, [](const auto& stream) { return !stream.empty(); });
        };
        while (is_busy()) run_one();
    }

    // Where the device has what the host knows by an address; null: this is no memory of the device's, nor pinned.
    static std::byte* find(const Regions& regions, std::byte* data) {
        auto after = regions.upper_bound(data);
        if (after == regions.begin()) return nullptr;
        const auto& [begin, memory] = *--after;
        return data < begin + memory.size_bytes() ? memory.data() + (data - begin) : nullptr;
    }
    std::byte* near(std::byte* data) const {
        if (std::byte* const device = find(regions_, data)) return device;
        check(find(pinned_, data) != nullptr, "an operation is given memory that is neither the device's nor pinned");
        return data;
    }
    Tensor near(const Tensor& tensor) const {
        return tensor.empty() ? tensor : tensor.at_address(near(static_cast<std::byte*>(tensor.data())));
    }
    Documents near(const Documents& documents) const {
        return {near(documents.segment_starts), near(documents.first_rows), near(documents.lengths)};
    }
    static constexpr std::int64_t kKeptBefore = tensor::kAlignmentBytes;  // of what attention keeps
    Tensor of_device(const Tensor& kept) const {
        const Tensor all = near(kept);
        return {all.at(kKeptBefore), all.dtype(), {all.byte_count() - kKeptBefore}};
    }
    OptimizerRange near(OptimizerRange range) const {
        range.weights = near(range.weights);
        range.gradients = near(range.gradients);
        range.first_moments = near(range.first_moments);
        range.second_moments = near(range.second_moments);
        range.stored = near(range.stored);
        return range;
    }
    std::vector<OptimizerRange> near(std::vector<OptimizerRange> ranges) const {
        for (OptimizerRange& range : ranges) range = near(range);
        return ranges;
    }
    template <class Value>
    const Value& near(const Value& value) const {
        return value;
    }
    bool is_far(const Tensor& tensor) const {
        return find(regions_, static_cast<std::byte*>(tensor.data())) != nullptr;
    }

    std::unique_ptr<Backend> device_;
    std::mt19937_64 random_;
    Regions regions_;  // by where they seem to be
    Regions pinned_;
    std::array<std::deque<Call>, 3> queues_;
    // Which stream goes first of those that may; for so long, on average, that another one falls far behind.
    std::array<std::size_t, 3> order_ = {0, 1, 2};
    static constexpr std::uint64_t kCallsOfAnOrder = 200;
    std::vector<bool> happened_;
    std::uint64_t last_event_ = 0;
    int host_waits_ = 0;
    int questions_ = 0;  // whether something has happened that has not, since the host last asked for work
    using Calls = std::vector<std::function<void()>>;
    std::map<std::vector<std::uint64_t>, Calls> kept_;  // regions
    Calls* region_ = nullptr;                           // that is kept now
    int replays_ = 0;
};

}  // namespace atl::kernels
