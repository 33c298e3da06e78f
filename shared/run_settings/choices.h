#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

// The settings that are one of a few words.
namespace atl::run_settings {

enum class OnOff : std::uint8_t { kOn, kOff };
enum class OptimizerKind : std::uint8_t { kAdamW, kSgd, kMuon };
enum class LrSchedule : std::uint8_t { kConstant, kLinear, kCosine };
enum class Precision : std::uint8_t { kFp32, kBf16, kFp16 };
enum class MomentsPrecision : std::uint8_t { kFp32, kBf16 };
enum class ReducePrecision : std::uint8_t { kFp32, kBf16 };
enum class Masters : std::uint8_t { kFp32, kNone };
enum class Device : std::uint8_t { kCpu, kCuda, kHip };
enum class DistributedBackend : std::uint8_t { kAuto, kNccl, kMpi };
enum class Offload : std::uint8_t { kNone, kCpu, kNvme };
enum class Quantization : std::uint8_t { kNone, kInt8, kNf4 };
enum class UpdateFormat : std::uint8_t { kModel, kInt8, kInt4 };

// What each rank keeps only its part of (Rajbhandari et al., arXiv:1910.02054).
enum class Sharding : std::uint8_t {
    kNone,            // every rank keeps all
    kShardOptimizer,  // ZeRO-1: moments are sharded
    kShardGradOp,     // ZeRO-2: gradients too
    kFullShard,       // ZeRO-3: weights too
    // As the last two within groups of ranks; each group keeps a whole copy (HYBRID_SHARD and _HYBRID_SHARD_ZERO2 of
    // PyTorch's FSDP, Zhao et al., arXiv:2304.11277).
    kHybridShard,
    kHybridShardZero2,
};
constexpr bool is_hybrid(Sharding sharding) {
    return sharding >= Sharding::kHybridShard;
}

// What of a layer's forward pass the backward pass computes again instead of keeping it.
enum class ActivationCheckpointing : std::uint8_t {
    kNone,
    kFeedForward,      // the feed-forward's first product
    kSelective,        // all of every second layer
    kAllButAttention,  // all but attention itself
    kFull,             // all
};

// Their words, in the order of the enumerators.
template <class Choice>
inline constexpr std::array<std::string_view, 0> kWords;
template <>
inline constexpr std::array<std::string_view, 2> kWords<OnOff> = {"on", "off"};
template <>
inline constexpr std::array<std::string_view, 3> kWords<OptimizerKind> = {"adamw", "sgd", "muon"};
template <>
inline constexpr std::array<std::string_view, 3> kWords<LrSchedule> = {"constant", "linear", "cosine"};
template <>
inline constexpr std::array<std::string_view, 3> kWords<Precision> = {"fp32", "bf16", "fp16"};
template <>
inline constexpr std::array<std::string_view, 2> kWords<MomentsPrecision> = {"fp32", "bf16"};
template <>
inline constexpr std::array<std::string_view, 2> kWords<ReducePrecision> = {"fp32", "bf16"};
template <>
inline constexpr std::array<std::string_view, 2> kWords<Masters> = {"fp32", "none"};
template <>
inline constexpr std::array<std::string_view, 3> kWords<Device> = {"cpu", "cuda", "hip"};
template <>
inline constexpr std::array<std::string_view, 3> kWords<DistributedBackend> = {"auto", "nccl", "mpi"};
template <>
inline constexpr std::array<std::string_view, 3> kWords<Offload> = {"none", "cpu", "nvme"};
template <>
inline constexpr std::array<std::string_view, 3> kWords<Quantization> = {"none", "int8", "nf4"};
template <>
inline constexpr std::array<std::string_view, 3> kWords<UpdateFormat> = {"model", "int8", "int4"};
template <>
inline constexpr std::array<std::string_view, 6> kWords<Sharding> = {
    "none", "shard_optimizer", "shard_grad_op", "full_shard", "hybrid_shard", "hybrid_shard_zero2"};
template <>
inline constexpr std::array<std::string_view, 5> kWords<ActivationCheckpointing> = {"none", "feed-forward", "selective",
                                                                                    "all-but-attention", "full"};

template <class Choice>
constexpr std::optional<Choice> parse_choice(std::string_view word) {
    const auto found = std::ranges::find(kWords<Choice>, word);
    if (found == kWords<Choice>.end()) return std::nullopt;
    return static_cast<Choice>(found - kWords<Choice>.begin());
}

template <class Choice>
constexpr std::string_view to_string(Choice choice) {
    return kWords<Choice>[static_cast<std::size_t>(choice)];
}

}  // namespace atl::run_settings
